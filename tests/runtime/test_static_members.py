"""Static members (KIP-345) of real groups: they go and come back, crash, wait, and are fenced."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import GroupError
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.types import NO_PARTITIONS, BatchPlan
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigResource
from spark_groups.wire.group_settings import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from tests.runtime.members import (
    QueryLike,
    all_at,
    committed,
    describe,
    fill,
    filled_topic,
    heartbeat,
    instance_epochs,
    queries,
)
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

Versions = Callable[[str], EmbeddedKafka]
OLDEST_AND_USUAL = pytest.mark.parametrize("version", ["4.0.0", "4.3.1"])
OLDEST_USUAL_NEWEST = pytest.mark.parametrize("version", ["4.0.0", "4.3.1", "4.4.0"])
AT_ONCE_S = 30.0
"""Less than the session of 45 s, and enough for a machine that is busy."""


def configure(kafka: EmbeddedKafka, group_id: str, **values_ms: int) -> None:
    """Change a group's settings, as an operator does."""
    names = {"session": SESSION_TIMEOUT_MS, "heartbeat": HEARTBEAT_INTERVAL_MS}
    changes = {names[name]: str(value) for name, value in values_ms.items()}
    with Cluster(kafka.bootstrap_servers) as cluster:
        cluster.alter_configuration(ConfigResource.GROUP, group_id, changes)


def static(instance_id: str | None) -> dict[str, object]:
    return {"instance_id": instance_id}


def settle(members: list[QueryLike], partitions: int) -> list[set[str]]:
    """Trigger until all partitions are divided evenly; return who has what."""

    def divided() -> bool:
        for each in members:
            each.run()
        return [len(each.assigned) for each in members] == [partitions // len(members)] * len(
            members
        )

    wait_until(divided, what="an even assignment")
    return [each.assigned for each in members]


def await_assigned(query: QueryLike, wanted: set[str], within_s: float = AT_ONCE_S) -> None:
    def has_it() -> bool:
        query.run()
        return query.assigned == wanted

    wait_until(has_it, within_s, what=f"{wanted} for {query.member_id}")


@OLDEST_AND_USUAL
def test_rolling_restart_moves_no_partition_and_reads_nothing_twice(
    kafka_version: Versions, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name, 6)
    names = ["i1", "i2", "i3"]
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        members = [start(member=static(name)) for name in names]
        before = settle(members, 6)
        group_epoch = describe(kafka.bootstrap_servers, group_id).group_epoch
        ranges = []
        for index, name in enumerate(names):
            fill(kafka.bootstrap_servers, topic_name, 6, 10)
            old = members[index]
            old.plan_rows()
            old.commit_all()
            ranges += old.ranges
            old.driver.leave(will_return=True)
            assert instance_epochs(kafka.bootstrap_servers, group_id)[name] == -2
            members[index] = start(member=static(name))
            await_assigned(members[index], before[index])
            assert members[index].member_id != old.member_id

        def all_read() -> bool:
            for each in members:
                each.run()
            return committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 6, 30)

        wait_until(all_read, what="all to be read")
        assert describe(kafka.bootstrap_servers, group_id).group_epoch == group_epoch
        assert [each.assigned for each in members] == before
        for partition in range(6):
            spans = sorted(
                each[2:]
                for each in [*ranges, *(r for m in members for r in m.ranges)]
                if each[1] == partition
            )
            assert [first for first, _ in spans] == [0, *(until for _, until in spans[:-1])]


def crashed(query: QueryLike) -> BatchPlan:
    """Let a query end without a word in the middle of a batch; what its checkpoint ends at."""
    assert query.running is not None
    query.vanish()
    return query.running


@OLDEST_USUAL_NEWEST
@pytest.mark.parametrize(
    "change",
    [("i1", "i1"), ("i1", None), (None, "i1"), ("i1", "renamed"), (None, None)],
)
def test_restart_from_the_checkpoint_of_a_killed_run_waits_for_no_session(
    kafka_version: Versions,
    version: str,
    change: tuple[str | None, str | None],
    topic_name: str,
    group_id: str,
) -> None:
    kafka, (before, after) = kafka_version(version), change
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start(member=static(before))
        killed.plan_rows()
        plan = crashed(killed)
        group_epoch = describe(kafka.bootstrap_servers, group_id).group_epoch
        again = start(member=static(after), checkpointed=plan)
        await_assigned(again, {f"{topic_name}-0", f"{topic_name}-1"})
        assert list(instance_epochs(kafka.bootstrap_servers, group_id)) == [after]
        if before == after == "i1":
            assert describe(kafka.bootstrap_servers, group_id).group_epoch == group_epoch
        again.driver.finish(plan)
        again.plan()
        again.commit_all()
        assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 2, 10)


@OLDEST_AND_USUAL
def test_instance_id_of_a_run_that_left_no_checkpoint_is_waited_for_and_reported(
    kafka_version: Versions,
    version: str,
    topic_name: str,
    group_id: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    configure(kafka, group_id, session=6_000)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start(member=static("i1"))
        killed.plan()
        group_epoch = describe(kafka.bootstrap_servers, group_id).group_epoch
        killed.vanish()
        # The timeout of the first answer is much shorter than the wait.
        again = start(member=static("i1"), driver={"api_timeout_s": 4.0})
        planning = threading.Thread(target=again.plan)
        planning.start()

        def waits() -> dict[str, object] | None:
            view = again.driver.snapshot()
            return view if view.instance_wait_left_s is not None else None

        view = wait_until(waits, what="a wait that can be seen")
        assert view is not None
        assert view.instance_id == "i1"
        assert view.state.name == "JOINING"
        planning.join(LONG_S)
        assert not planning.is_alive()
        assert again.driver.snapshot().instance_wait_left_s is None
        await_assigned(again, {f"{topic_name}-0", f"{topic_name}-1"})
        assert describe(kafka.bootstrap_servers, group_id).group_epoch > group_epoch, (
            "the old one was removed"
        )
    assert "instance id 'i1' is held by another member; retrying for up to" in caplog.text


def test_instance_id_that_is_held_fails_the_query_at_once_if_that_is_wanted(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start(member=static("i1"))
        killed.plan()
        killed.vanish()
        again = start(member={"instance_id": "i1", "await_instance": False})
        began_at = time.monotonic()
        with pytest.raises(GroupError, match="UNRELEASED_INSTANCE_ID"):
            again.plan()
        assert time.monotonic() - began_at < AT_ONCE_S


def test_holder_that_lives_elsewhere_keeps_the_instance_id(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    configure(kafka, group_id, session=8_000, heartbeat=1_000)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        holder = start(member=static("i1"))
        holder.plan()
        # As if it were on another host.
        assert holder.driver._instance_lock is not None
        holder.driver._instance_lock.release()
        again = start(member=static("i1"))
        with pytest.raises(GroupError, match="its holder is alive"):
            again.plan()
        assert holder.run() is None
        assert holder.assigned == {f"{topic_name}-0"}


@OLDEST_AND_USUAL
def test_member_that_was_replaced_fails_with_the_reason(
    kafka_version: Versions, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        fenced = start(member={**static("i1"), "fast_heartbeats": False})
        fenced.plan()
        wait_until(lambda: fenced.driver.snapshot().state.name == "STABLE", what="a quiet member")
        shared = {"group_id": group_id, "instance_id": "i1"}
        gone = HeartbeatRequest(member_id=fenced.member_id, member_epoch=-2, **shared)
        # A heartbeat of the old one between the two would be answered FENCED_MEMBER_EPOCH.
        with fenced.driver._engine.changed:
            heartbeat(kafka.bootstrap_servers, gone)
            newer = heartbeat(
                kafka.bootstrap_servers,
                HeartbeatRequest(
                    member_id="the-newer-one",
                    member_epoch=0,
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=(topic_name,),
                    topic_partitions=NO_PARTITIONS,
                    **shared,
                ),
            )
        assert newer.error_code == 0

        def fails() -> str:
            try:
                fenced.run()
            except GroupError as error:
                return str(error)
            return ""

        message = wait_until(fails, what="the end of the fenced query")
        assert "FENCED_INSTANCE_ID" in message
        assert "a newer query joined with the same kafka.group.instance.id" in message


def test_second_query_of_this_host_fails_at_once_and_names_the_holder(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        holder = start(member=static("i1"))
        holder.plan()
        began_at = time.monotonic()
        with pytest.raises(GroupError) as refused:
            start(member=static("i1"))
        assert time.monotonic() - began_at < AT_ONCE_S
        assert f"process {os.getpid()}, member {holder.member_id}" in str(refused.value)
        assert holder.run() is None, "the holder does not notice"
        holder.driver.leave(will_return=True)
        await_assigned(start(member=static("i1")), {f"{topic_name}-0"})


@OLDEST_AND_USUAL
def test_static_and_dynamic_members_share_a_group(
    kafka_version: Versions, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name, 4)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        first, second = start(member=static("i1")), start()
        before = settle([first, second], 4)
        first.driver.leave(will_return=True)
        second.run()
        first = start(member=static("i1"))
        await_assigned(first, before[0])
        assert second.assigned == before[1]
        second.driver.leave()
        await_assigned(first, before[0] | before[1], LONG_S)
        assert list(instance_epochs(kafka.bootstrap_servers, group_id)) == ["i1"]


@OLDEST_AND_USUAL
def test_leaving_for_good_frees_the_partitions_at_once(
    kafka_version: Versions, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name, 4)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        members = [start(member=static(name)) for name in ("i1", "i2")]
        before = settle(members, 4)
        members[0].driver.leave(will_return=False)
        assert list(instance_epochs(kafka.bootstrap_servers, group_id)) == ["i2"]
        await_assigned(members[1], before[0] | before[1])
