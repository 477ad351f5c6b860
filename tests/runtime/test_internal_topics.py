"""Patterns that match Kafka's internal topics, on a real broker: assigned, held, never read."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.group.member.subscription import Subscription
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.views import GroupView, view_group
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic
from spark_groups.wire.cluster import Cluster
from tests.cli.commands import invoke
from tests.runtime.members import QueryLike, all_at, committed, describe, filled_topic, queries
from workshop.parts.brokers import ANSWER_S, produce
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def servers(kafka: EmbeddedKafka, topic_name: str) -> str:
    """A cluster with both internal topics, and a topic of two partitions with ten rows each."""
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    transactional = {"transactional.id": topic_name, "log_level": 0}
    Producer({"bootstrap.servers": kafka.bootstrap_servers, **transactional}).init_transactions(
        ANSWER_S
    )
    return kafka.bootstrap_servers


def by_pattern(topic: str) -> dict[str, Any]:
    """Return the fields of a member that subscribes to a topic and to all internal ones."""
    return {"subscription": Subscription.of_pattern(f"{topic}|__.*")}


def is_settled(query: QueryLike) -> bool:
    """Run a trigger, and return whether the query has all partitions that it will have."""
    query.run()
    snapshot = query.driver.snapshot()
    phases = {each.phase.name for each in snapshot.partitions}
    return (
        snapshot.state.name == "STABLE"
        and bool(phases)
        and phases <= {"READY", "HELD"}
        and not (snapshot.pending or snapshot.revoking)
        and snapshot.assignment_epoch == snapshot.member_epoch
    )


def internal_of(query: QueryLike) -> set[str]:
    return {each for each in query.assigned if each.startswith("__")}


def view_of(servers: str, group_id: str) -> GroupView:
    with GroupObserver(servers) as observer:
        return view_group(observer.observe(group_id))


@pytest.mark.parametrize("start_at", [StartingPoint.EARLIEST, StartingPoint.LATEST])
def test_they_are_assigned_and_neither_read_nor_committed(
    servers: str, topic_name: str, group_id: str, start_at: StartingPoint
) -> None:
    with queries(servers, group_id, topic_name) as start:
        query = start(member=by_pattern(topic_name), start=start_at)
        wait_until(partial(is_settled, query), what="its partitions")
        assert {each.rsplit("-", 1)[0] for each in internal_of(query)} == {OFFSETS, TRANSACTIONS}
        produce(servers, topic_name, [b"one more"])
        rows = 21 if start_at is StartingPoint.EARLIEST else 1
        wait_until(
            lambda: query.run() or sum(until - at for _, _, at, until in query.ranges) == rows,
            what=f"{rows} rows",
        )
        query.commit_all()
        planned = len(query.ranges)
        # Each commit writes to an internal topic: there must be no batch because of it.
        for _ in range(10):
            assert query.run() is None
        assert {topic for topic, *_ in query.ranges} == {topic_name}
        assert len(query.ranges) == planned
        assert {topic for topic, _ in committed(servers, group_id)} == {topic_name}
        said = [line for line in query.timeline.splitlines() if "internal to Kafka" in line]
        assert len(said) == 1
        assert f"{OFFSETS}, {TRANSACTIONS}" in said[0]


def test_they_are_released_at_once_and_never_keep_members_waiting(
    servers: str, topic_name: str, group_id: str
) -> None:
    with queries(servers, group_id, topic_name) as start:
        begin: Callable[[], QueryLike] = partial(
            start, member=by_pattern(topic_name), start=StartingPoint.LATEST
        )
        first = begin()
        wait_until(partial(is_settled, first), what="the first member's partitions")
        everything = first.assigned
        second = begin()
        wait_until(
            lambda: is_settled(first) and is_settled(second) and second.assigned,
            what="both to have their share",
        )
        assert first.assigned | second.assigned == everything
        assert internal_of(first)
        assert internal_of(second)
        second.driver.leave(60.0)
        wait_until(
            lambda: is_settled(first) and first.assigned == everything, what="all partitions again"
        )
        assert {topic for topic, _ in committed(servers, group_id)} == {topic_name}


def test_available_now_ends_and_has_read_the_other_topics(
    servers: str, topic_name: str, group_id: str
) -> None:
    with queries(servers, group_id, topic_name) as start:
        query = start(member=by_pattern(topic_name))
        query.driver.prepare_available_now()
        while query.run() is not None:
            pass
        assert internal_of(query)
        assert {(topic, at, until) for topic, _, at, until in query.ranges} == {(topic_name, 0, 10)}
    assert committed(servers, group_id) == all_at(topic_name, 2, 10)


def test_one_that_is_named_is_read(servers: str, topic_name: str, group_id: str) -> None:
    with queries(servers, group_id, OFFSETS) as start:
        query = start()
        query.plan_rows()
        assert {topic for topic, *_ in query.ranges} == {OFFSETS}
        assert "internal to Kafka" not in query.timeline
        query.commit_all()
    assert {topic for topic, _ in committed(servers, group_id)} == {OFFSETS}


def test_a_batch_of_an_older_version_that_read_one_keeps_nothing_back(
    servers: str, topic_name: str, group_id: str
) -> None:
    with Cluster(servers) as cluster:
        known = cluster.topics([OFFSETS]).topics
    topic_id = next(iter(known))
    old = BatchPlan(
        group_id,
        "an-earlier-member",
        1,
        tuple(OffsetRange(topic_id, OFFSETS, each, 0, 1) for each in range(5)),
        (PlanTopic(topic_id, OFFSETS, 5),),
    )
    with queries(servers, group_id, topic_name) as start:
        first = start(member=by_pattern(topic_name), checkpointed=old)
        first.driver.replay(old)
        first.running = old
        wait_until(partial(is_settled, first), what="the first member's partitions")
        everything = first.assigned
        second = start(member=by_pattern(topic_name))
        wait_until(
            lambda: is_settled(first) and is_settled(second) and second.assigned,
            what="both to have their share",
        )
        assert first.assigned | second.assigned == everything
    assert {topic for topic, _ in committed(servers, group_id)} == {topic_name}


def test_views_from_outside_count_no_lag_in_them(
    servers: str, topic_name: str, group_id: str
) -> None:
    with queries(servers, group_id, topic_name) as start:
        query = start(member=by_pattern(topic_name))
        query.plan_rows()
        query.commit_all()
        assert query.run() is None
        view = view_of(servers, group_id)
        held = [each for each in view.partitions if each.topic.startswith("__")]
        assert held
        assert {each.lag for each in held} == {0}
        assert {each.remark for each in held} == {"internal topic, matched by a pattern: not read"}
        assert (view.totals.lag, view.totals.unknown_lag_partitions) == (0, 0)
        asked = ("--bootstrap-server", servers, "--json")
        lag = json.loads(invoke("lag", group_id, *asked).stdout)
        assert [each["lag"] for each in lag["groups"]] == [0]
        said = json.loads(invoke("preflight", group_id, *asked).stdout)
        rights = [each["reason"] for each in said["findings"] if OFFSETS in each["reason"]]
        assert [each.partition(";")[0] for each in rights] == [f"READ and DESCRIBE on {topic_name}"]
        assert "internal to Kafka: assigned, and not read by a query" in rights[0]
    assert describe(servers, group_id).members == ()
