"""Members of real groups, driven as Spark drives them: plan, run, prove finished, plan again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.available_now_wait import USUAL_WAIT, AvailableNowWait
from spark_groups.group.batches.liveness import ADAPTIVE, LivenessLimits
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    found_and_failed,
)
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.trigger import Patience
from spark_groups.runtime.driver import GroupDriver
from spark_groups.types import BatchPlan
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.security.security import Security
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import LONG_S, wait_until

NO_LIMIT = PlanLimit()


def patient(monkeypatch: pytest.MonkeyPatch, **waits_s: float) -> None:
    """Let the triggers of new drivers wait so long, however busy this machine is."""
    monkeypatch.setattr("spark_groups.runtime.driver.Patience", partial(Patience, **waits_s))


class QueryLike:
    """A group member that lives as a micro-batch query does, without Spark.

    Args:
        bootstrap_servers: The broker.
        group_id: The group.
        topics: Topic names, separated by commas.
        start: Where the group starts.
        checkpointed: The plan that a checkpoint ended at.
        warm_up_tasks: How many tasks warm it up before it joins.
        member: Further fields of MemberConfig.
        driver: Further arguments of GroupDriver.
        liveness: How long the query may be silent.
        available_now_wait: How AvailableNow ends where partitions do not come.
        security: How connections are secured.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topics: str,
        *,
        start: StartingPoint = StartingPoint.EARLIEST,
        checkpointed: BatchPlan | None = None,
        warm_up_tasks: int = 0,
        member: dict[str, Any] | None = None,
        driver: dict[str, Any] | None = None,
        security: Security | None = None,
        fail_on_data_loss: bool = True,
        liveness: LivenessLimits = ADAPTIVE,
        available_now_wait: AvailableNowWait = USUAL_WAIT,
    ) -> None:
        config = ClientConfig(
            member=MemberConfig(
                **{
                    "group_id": group_id,
                    "subscription": Subscription.of_names(topics),
                    **(member or {}),
                }
            ),
            starting_offsets=StartingOffsets(start),
            fail_on_data_loss=fail_on_data_loss,
            liveness=liveness,
            available_now_wait=available_now_wait,
        )
        self.driver = GroupDriver(
            config,
            bootstrap_servers=tuple(bootstrap_servers.split(",")),
            client_id="query-like",
            security=security or Security(),
            **(driver or {}),
        )
        self.running: BatchPlan | None = None
        self.ranges: list[tuple[str, int, int, int]] = []
        self.driver.start(checkpointed, warm_up_tasks=warm_up_tasks)

    def plan(self, limit: PlanLimit = NO_LIMIT) -> BatchPlan | None:
        """Begin the next batch, if there is one."""
        plan = self.driver.plan(limit)
        if plan is not None:
            self.running = plan
            self.ranges += [
                (each.topic, each.partition, each.from_offset, each.until_offset)
                for each in plan.ranges
            ]
        return plan

    def finish(self) -> None:
        """Prove the running batch finished."""
        if self.running is not None:
            plan, self.running = self.running, None
            self.driver.finish(plan)

    def plan_rows(self, limit: PlanLimit = NO_LIMIT, timeout_s: float = 120.0) -> BatchPlan:
        """Trigger until a batch with ranges begins."""

        def trigger() -> BatchPlan | None:
            self.finish()
            plan = self.plan(limit)
            return plan if plan is not None and plan.ranges else None

        plan = wait_until(trigger, timeout_s, what="a batch with ranges")
        assert plan is not None
        return plan

    def run(self, limit: PlanLimit = NO_LIMIT) -> BatchPlan | None:
        """Run one trigger: prove the last batch finished, plan the next."""
        self.finish()
        return self.plan(limit)

    def commit_all(self) -> None:
        """Finish what runs and wait until it is committed."""
        self.finish()
        assert self.driver.await_commits(LONG_S), self.driver.snapshot()

    @property
    def assigned(self) -> set[str]:
        return set(self.driver.snapshot().assigned)

    @property
    def timeline(self) -> str:
        """Its events so far, a line each."""
        return "\n".join(self.driver.snapshot().timeline)

    @property
    def member_id(self) -> str:
        return str(self.driver.snapshot().member_id)

    def vanish(self) -> None:
        """End without a word, as a process that is killed."""
        self.driver.close()


@contextmanager
def queries(bootstrap_servers: str, group_id: str, topics: str) -> Iterator[Callable[..., Any]]:
    """Give a function that starts members of one group; all leave at the end."""
    started: list[QueryLike] = []

    def start(**options: Any) -> QueryLike:
        query = QueryLike(bootstrap_servers, group_id, topics, **options)
        started.append(query)
        return query

    try:
        yield start
    finally:
        for each in started:
            each.driver.leave(20.0)


def two_sharing(start: Callable[[], QueryLike]) -> tuple[QueryLike, QueryLike]:
    """Start two members of a group, and return them once each has one of its two partitions."""
    first, second = start(), start()

    def shared() -> bool:
        first.run()
        second.run()
        return len(first.assigned) == len(second.assigned) == 1

    wait_until(shared, what="each to have one partition")
    return first, second


def committed(bootstrap_servers: str, group_id: str) -> dict[tuple[str, int], int]:
    """Return the committed offsets of a group by topic name and partition."""
    with Cluster(bootstrap_servers) as cluster:
        found, failed = found_and_failed(cluster.fetch_all_offsets(group_id))
        assert not failed, failed
        names = {
            topic.topic_id: topic.name
            for topic in cluster.metadata(
                MetadataRequest(topic_ids=frozenset(key.topic_id for key in found))
            ).topics
        }
        return {
            (names[key.topic_id], key.partition): each.committed_offset
            for key, each in found.items()
            if each.committed_offset >= 0 and key.topic_id in names
        }


def describe(bootstrap_servers: str, group_id: str) -> DescribeGroupResponse:
    """Return what the coordinator says of a group."""
    with Cluster(bootstrap_servers) as cluster:
        return cluster.describe_group(DescribeGroupRequest(group_id=group_id))


def instance_epochs(bootstrap_servers: str, group_id: str) -> dict[str | None, int]:
    """Return the member epoch of each instance: -2 is one that will be back."""
    members = describe(bootstrap_servers, group_id).members
    return {each.instance_id: each.member_epoch for each in members}


def heartbeat(bootstrap_servers: str, request: HeartbeatRequest) -> HeartbeatResponse:
    """Send one heartbeat as somebody else would."""
    with Cluster(bootstrap_servers) as cluster:
        found = cluster.find_coordinator(FindCoordinatorRequest(group_id=request.group_id))
    assert found.coordinator is not None
    connection = CoordinatorConnection()
    try:
        response = connection.send(found.coordinator, request, LONG_S)
    finally:
        connection.close()
    assert isinstance(response, HeartbeatResponse)
    return response


def filled_topic(bootstrap_servers: str, topic: str, partitions: int, rows_each: int) -> None:
    """Create a topic with rows in every partition."""
    create_topic(bootstrap_servers, topic, partitions)
    fill(bootstrap_servers, topic, partitions, rows_each)


def fill(bootstrap_servers: str, topic: str, partitions: int, rows_each: int) -> None:
    """Produce so many rows to each partition."""
    rows = [Row(b"v", partition=each) for each in range(partitions) for _ in range(rows_each)]
    produce(bootstrap_servers, topic, rows)


def all_at(topic: str, partitions: int, until: int) -> dict[tuple[str, int], int]:
    """Return the committed offsets if all partitions are read up to `until`."""
    return {(topic, partition): until for partition in range(partitions)}


def evict(bootstrap_servers: str, group_id: str, member_id: str) -> None:
    """Remove a member in its name, as an operator does."""
    request = HeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=-1)
    assert heartbeat(bootstrap_servers, request).error_code == ErrorCode.NONE
