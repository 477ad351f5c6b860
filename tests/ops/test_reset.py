"""Offsets that are set anew on a real broker, and what Kafka's own tool would set."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.offsets.starting import commit_metadata
from spark_groups.ops.reset import Committed, counts_to_keep, reset_offsets
from spark_groups.ops.reset_plan import ResetKind, ResetTarget
from spark_groups.protocol.messages import OffsetAndMetadata
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.brokers import Row, create_topic, grow_topic, produce
from tests.runtime.members import queries
from tests.waiting import wait_until
from tests.wire.test_cluster import topic_id

BASE_MS = 1_700_000_000_000
TOPIC = uuid.UUID(int=1)


def offsets(**counts: int | None) -> Committed:
    """Committed offsets of a topic, `p0=4` beside a count of 4, `p1=None` beside none."""
    return {
        TopicIdPartition(TOPIC, int(name[1:])): OffsetAndMetadata(
            5, "" if count is None else commit_metadata(count)
        )
        for name, count in counts.items()
    }


@pytest.mark.parametrize(
    ("committed", "taken_over", "reset", "kept"),
    [
        ({}, {}, (0, 1, 2, 3), 4),
        ({}, {}, (0,), 4),
        ({"p0": 2, "p1": 3}, {}, (0, 1), 2),
        ({"p0": 2, "p1": None}, {}, (1,), 2),
        ({}, {"p0": 2}, (0,), 2),
        ({"p0": 3}, {"p0": 2}, (0,), 2),
        ({"p0": None, "p1": None}, {}, (0, 1), 0),
        ({"p0": None, "p1": None}, {}, (2, 3), 4),
        ({"p0": None}, {}, (0, 1, 2, 3), 4),
        ({}, {"p0": None}, (0,), 0),
    ],
)
def test_a_reset_keeps_the_count_of_the_beginning(committed, taken_over, reset, kept) -> None:
    """A group that has nothing committed begins now; 0 is what nobody knows any more."""
    keys = [TopicIdPartition(TOPIC, each) for each in reset]
    found = counts_to_keep(offsets(**committed), offsets(**taken_over), keys, {TOPIC: 4})
    assert found == {TOPIC: kept}


def new_offsets(view) -> dict[int, int | None]:
    return {each.partition: each.new_offset for each in view.rows}


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_a_group_without_members_is_set_to_what_was_planned(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name, 2)
    rows = [Row(b"x", partition=0, timestamp_ms=BASE_MS + each) for each in range(10)]
    produce(servers, topic_name, rows)
    chosen = {topic_name: None}
    with Cluster(servers) as cluster:

        def planned(kind: ResetKind, number: int = 0, other: str = "") -> dict[int, int | None]:
            target = ResetTarget(kind, number, other)
            return new_offsets(reset_offsets(cluster, group_id, target, chosen, execute=False))

        assert planned(ResetKind.TO_EARLIEST) == {0: 0, 1: 0}
        assert planned(ResetKind.TO_LATEST) == {0: 10, 1: 0}
        assert planned(ResetKind.TO_DATETIME, BASE_MS + 4) == {0: 4, 1: 0}
        assert planned(ResetKind.TO_DATETIME, BASE_MS + 99) == {0: 10, 1: 0}
        assert planned(ResetKind.SHIFT_BY, 1) == {0: None, 1: None}
        assert cluster.fetch_all_offsets(group_id).offsets == {}

        to = ResetTarget(ResetKind.TO_OFFSET, 7)
        done = reset_offsets(cluster, group_id, to, chosen, execute=True)
        assert (done.group_state, done.is_complete, new_offsets(done)) == (
            "Dead",
            True,
            {0: 7, 1: 0},
        )
        back = ResetTarget(ResetKind.SHIFT_BY, -3)
        shifted = reset_offsets(cluster, group_id, back, None, execute=True)
        assert (shifted.group_state, new_offsets(shifted)) == ("Empty", {0: 4, 1: 0})
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        kept = cluster.fetch_all_offsets(group_id).offsets[key]
        assert (kept.committed_offset, kept.metadata) == (4, '{"partitions":2,"reset":true}')

        grow_topic(servers, topic_name, 3)
        over = ResetTarget(ResetKind.FROM_GROUP, group_id=group_id)
        whole = {topic_name: None}
        named = reset_offsets(cluster, f"{group_id}-named", over, whole, execute=True)
        assert (named.is_complete, new_offsets(named)) == (True, {0: 4, 1: 0, 2: None})
        copied = reset_offsets(cluster, f"{group_id}-copy", over, None, execute=True)
        assert (copied.is_complete, new_offsets(copied)) == (True, {0: 4, 1: 0})
        kept = cluster.fetch_all_offsets(f"{group_id}-copy").offsets[key]
        assert kept.metadata == '{"partitions":2,"reset":true}'


@pytest.mark.broker
def test_a_group_with_members_is_not_touched(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    target = ResetTarget(ResetKind.TO_EARLIEST)
    with queries(servers, group_id, topic_name) as start, Cluster(servers) as cluster:
        query = start()
        wait_until(lambda: (query.run(), query.assigned)[1], what="an assignment")
        view = reset_offsets(cluster, group_id, target, {topic_name: None}, execute=True)
        assert f"but the current state is {view.group_state}. Stop its members: " in view.refusal
        assert query.member_id in view.refusal
    assert (view.is_executed, new_offsets(view)) == (False, {0: 0})


@pytest.mark.broker
def test_what_does_not_exist_spoils_the_plan(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    target = ResetTarget(ResetKind.TO_EARLIEST)
    with Cluster(servers) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        commit_outside(cluster, group_id, {key: 0})
        topics = {topic_name: frozenset({0, 5}), "~": None}
        view = reset_offsets(cluster, group_id, target, topics, execute=True)
    assert [(each.topic, each.partition, each.remark) for each in view.rows] == [
        (topic_name, 0, ""),
        (topic_name, 5, "there is no such partition"),
        ("~", None, "there is no such topic"),
    ]
    assert view.refusal.startswith("2 of 3 partitions have no new offset")
