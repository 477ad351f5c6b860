"""The log of a partition: truncation, compaction, record sizes, groups in memory."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_lab.coordinator import records as r
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import Log, Memory, batch_bytes, key_bytes, value_bytes
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
)
from spark_groups.types import Assignment, TopicIdPartition
from spark_groups.wire.schemas.codec import encode
from spark_groups.wire.schemas.wire_messages import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Struct,
)


def commit(partition: int, offset: int | None) -> Record:
    value = None if offset is None else OffsetCommitValue(offset)
    return Record(OffsetCommitKey("g", "t", partition), value)


def epoch(value: int) -> Record:
    return Record(GroupMetadataKey("g"), GroupMetadataValue(value))


def replayed(log: Log) -> ConsumerGroup:
    group = ConsumerGroup("g")
    for record in log.replay():
        group.apply(record)
    return group


records = st.builds(commit, st.integers(0, 2), st.none() | st.integers(0, 5)) | st.builds(
    epoch, st.integers(1, 5)
)
batches = st.lists(st.lists(records, min_size=1, max_size=3).map(tuple), max_size=8)


@given(batches, st.integers(0, 8), st.lists(st.tuples(st.integers(0, 25), st.booleans())))
def test_compaction_at_any_point_changes_nothing_for_a_replay(
    appended: list[tuple[Record, ...]], replicated: int, cuts: list[tuple[int, bool]]
) -> None:
    log = Log()
    for number, batch in enumerate(appended):
        log.append(batch)
        if number < replicated:
            log.replicate()
    before = replayed(log)
    end = log.end_offset
    for until_offset, drops in cuts:
        log.compact(until_offset, drops_tombstones=drops)
        assert replayed(log) == before
    assert log.end_offset == end


def test_truncation_loses_exactly_the_records_above_the_high_watermark() -> None:
    log = Log()
    log.append((commit(0, 1), commit(1, 1)))
    log.replicate()
    log.append((commit(0, 2), epoch(4)))
    log.truncate()
    assert list(log.replay()) == [commit(0, 1), commit(1, 1)]
    assert log.end_offset == log.high_watermark == 2
    log.append((commit(1, None),))
    assert [each.base_offset for each in log.batches] == [0, 2]


def test_compaction_keeps_the_last_values_and_optionally_tombstones() -> None:
    log = Log()
    log.append((commit(0, 1), commit(1, 1)))
    log.append((commit(0, 2), commit(1, None)))
    log.replicate()
    log.compact(log.end_offset, drops_tombstones=False)
    assert list(log.replay()) == [commit(0, 2), commit(1, None)]
    log.compact(log.end_offset)
    assert list(log.replay()) == [commit(0, 2)]


def test_nothing_above_the_high_watermark_is_compacted() -> None:
    log = Log()
    log.append((commit(0, 1),))
    log.replicate()
    log.append((commit(0, 2),))
    log.append((commit(0, 3),))
    log.compact(99)
    assert list(log.replay()) == [commit(0, 1), commit(0, 2), commit(0, 3)]


def test_a_tombstone_stays_while_older_values_above_the_cut_do() -> None:
    log = Log()
    log.append((commit(0, 1),))
    log.append((commit(0, None),))
    log.replicate()
    log.compact(1)
    assert list(log.replay()) == [commit(0, 1), commit(0, None)]


FOO, BAR = uuid.UUID(int=1), uuid.UUID(int=2)
TOPIC_PARTITIONS = Struct(
    "TopicPartitions", (Field("topic_id", UUID), Field("partitions", INT32, array=True))
)
TOPIC_METADATA = Struct(
    "TopicMetadata",
    (
        Field("topic_id", UUID),
        Field("topic_name", STRING),
        Field("num_partitions", INT32),
        Field("partition_metadata", INT32, array=True),
    ),
)


def size(values: Mapping[str, Any], *fields: Field, flexible: bool = True) -> int:
    return len(encode(Struct("sample", fields, flexible=flexible), values))


def topics(by_topic: Mapping[uuid.UUID, list[int]]) -> tuple[dict[str, Any], ...]:
    return tuple({"topic_id": key, "partitions": tuple(each)} for key, each in by_topic.items())


@pytest.mark.parametrize(
    ("key", "count"),
    [
        (r.GroupMetadataKey("group"), 1),
        (r.MemberMetadataKey("group", "m" * 40), 2),
        (r.RegularExpressionKey("group", "größe.*"), 2),
    ],
)
def test_keys_of_strings(key: r.Key, count: int) -> None:
    texts = [getattr(key, name) for name in key.__slots__]
    assert len(texts) == count
    fields = [Field(f"text{index}", STRING) for index in range(count)]
    values = {f"text{index}": each for index, each in enumerate(texts)}
    expected = 2 + size(values, *fields, flexible=False)
    assert key_bytes(key) == expected


def test_the_key_of_an_offset() -> None:
    values = {"group": "g", "topic": "topic", "partition": 7}
    fields = (Field("group", STRING), Field("topic", STRING), Field("partition", INT32))
    expected = 2 + size(values, *fields, flexible=False)
    assert key_bytes(r.OffsetCommitKey("g", "topic", 7)) == expected


@pytest.mark.parametrize("text", ["", "x" * 126, "x" * 127, "x" * 20_000, "größe"])
def test_an_offset(text: str) -> None:
    values = {"offset": 1, "leader_epoch": 2, "metadata": text, "commit_timestamp": 3}
    expected = 2 + size(
        values,
        Field("offset", INT64),
        Field("leader_epoch", INT32),
        Field("metadata", STRING),
        Field("commit_timestamp", INT64),
    )
    assert value_bytes(r.OffsetCommitValue(1, 2, text)) == expected
    # A tag, the length of what it has, and the topic id.
    assert value_bytes(r.OffsetCommitValue(1, 2, text, topic_id=FOO)) == expected + 1 + 1 + 16


def test_a_group_and_its_target() -> None:
    expected = 2 + size({"epoch": 1}, Field("epoch", INT32))
    assert value_bytes(r.GroupMetadataValue(1)) == expected
    assert value_bytes(r.GroupMetadataValue(1, 99)) == expected + 1 + 1 + 8
    assert value_bytes(r.TargetMetadataValue(1)) == expected
    assert value_bytes(r.TargetMetadataValue(1, 12.0)) == expected + 1 + 1 + 8


def test_a_member() -> None:
    values = {
        "instance_id": None,
        "rack_id": "rack",
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": ("foo", "bar" * 50),
        "subscribed_topic_regex": "f.*",
        "rebalance_timeout_ms": 5,
        "server_assignor": None,
    }
    expected = 2 + size(
        values,
        Field("instance_id", STRING, nullable=True),
        Field("rack_id", STRING, nullable=True),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("subscribed_topic_names", STRING, array=True),
        Field("subscribed_topic_regex", STRING, nullable=True),
        Field("rebalance_timeout_ms", INT32),
        Field("server_assignor", STRING, nullable=True),
    )
    assert value_bytes(r.MemberMetadataValue(**values)) == expected


@pytest.mark.parametrize("count", [0, 1, 126, 127, 3000])
def test_sizes_of_targets(count: int) -> None:
    by_topic = {FOO: list(range(count)), BAR: [0]} if count else {BAR: [0]}
    value = r.TargetMemberValue(Assignment.of(by_topic))
    field = Field("topic_partitions", TOPIC_PARTITIONS, array=True)
    assert value_bytes(value) == 2 + size({"topic_partitions": topics(by_topic)}, field)


@pytest.mark.parametrize("version", [0, 5, -1])
def test_metadata_of_a_target_counts_in_each_version(version: int) -> None:
    """Version -1 is that of classic members."""
    target = Assignment.of({FOO: [0]})
    octets = b"m" * 1000
    field = Field("metadata", BYTES)
    added = value_bytes(r.TargetMemberValue(target, version, octets)) - value_bytes(
        r.TargetMemberValue(target)
    )
    # The tags of the record count once.
    assert added == 2 + size({"metadata": octets}, field) - size({})


def test_sizes_of_assignments() -> None:
    by_topic = {FOO: [0, 1, 2], BAR: [5]}
    held = {TopicIdPartition(key, each): 4 for key, listed in by_topic.items() for each in listed}
    value = r.CurrentAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=ReconciliationState.STABLE,
        assigned=held,
        pending_revocation={},
    )
    values = {"epoch": 4, "previous": 3, "state": 0, "assigned": topics(by_topic), "pending": ()}
    without_epochs = 2 + size(
        values,
        Field("epoch", INT32),
        Field("previous", INT32),
        Field("state", INT8),
        Field("assigned", TOPIC_PARTITIONS, array=True),
        Field("pending", TOPIC_PARTITIONS, array=True),
    )
    # For each topic a tag, the length of what it has, and the epochs with their count.
    epochs = (1 + 1 + 1 + 4 * 3) + (1 + 1 + 1 + 4 * 1)
    assert value_bytes(value) == without_epochs + epochs


def test_partition_metadata_and_patterns() -> None:
    named = {"topic_id": FOO, "topic_name": "foo", "num_partitions": 3, "partition_metadata": ()}
    field = Field("topics", TOPIC_METADATA, array=True)
    expected = 2 + size({"topics": (named,)}, field)
    assert value_bytes(r.PartitionMetadataValue({"foo": (FOO, 3)})) == expected
    values = {"topics": ("foo", "bar"), "version": 1, "timestamp": 2}
    fields = (Field("topics", STRING, array=True), Field("version", INT64), Field("at", INT64))
    expected = 2 + size({**values, "at": 2}, *fields)
    assert value_bytes(r.RegularExpressionValue(("foo", "bar"), 1, 2.0)) == expected


def test_a_batch_has_its_head_and_each_record_its_lengths() -> None:
    record = Record(r.GroupMetadataKey("group"), r.GroupMetadataValue(1))
    tombstone = Record(r.GroupMetadataKey("group"), None)
    key, value = 2 + 2 + 5, 2 + 4 + 1
    # Length, attributes, timestamp, offset, key and its length, value and its length, headers.
    assert batch_bytes((record,)) == 61 + 1 + 1 + 1 + 1 + (1 + key) + (1 + value) + 1
    assert batch_bytes((tombstone,)) == 61 + 1 + 1 + 1 + 1 + (1 + key) + 1 + 1
    one = batch_bytes((tombstone,)) - 61
    # From the 65th on the difference of offsets takes two bytes.
    assert batch_bytes((tombstone,) * 65) == 61 + one * 65 + 1
    assert batch_bytes(()) == 0


def epoch_record(group_epoch: int | None, group_id: str = "g") -> Record:
    value = None if group_epoch is None else r.GroupMetadataValue(group_epoch)
    return Record(r.GroupMetadataKey(group_id), value)


def epochs(memory: Memory) -> dict[str, int]:
    return {each.group_id: each.group_epoch for each in memory.all_replicated()}


def test_a_reader_sees_the_replicated_records_and_a_writer_all() -> None:
    memory = Memory()
    memory.load(epoch_record(1))
    memory.write((epoch_record(2), epoch_record(3)))
    memory.write((epoch_record(1, "new"),))
    assert memory.group("g").group_epoch == 3
    assert memory.replicated("g").group_epoch == 1
    assert epochs(memory) == {"g": 1}
    memory.keep()
    assert epochs(memory) == {"g": 3, "new": 1}


def test_a_group_with_only_offsets_exists_until_it_is_deleted() -> None:
    offset = r.OffsetCommitKey("g", "t", 0)
    memory = Memory()
    memory.load(Record(offset, r.OffsetCommitValue(1)))
    memory.write((Record(offset, None),))
    assert memory.groups == {}
    assert memory.group("g").exists
    assert memory.replicated("g").offsets
    memory.take_back()
    assert memory.group("g").offsets
    memory.write((Record(offset, None),))
    memory.keep()
    assert [(each.group_id, each.exists) for each in memory.all_replicated()] == [("g", True)]
    memory.write((epoch_record(None),))
    assert not memory.group("g").exists
    assert memory.replicated("g").exists
    memory.take_back()
    assert memory.group("g").exists
    memory.write((epoch_record(None),))
    memory.keep()
    assert not list(memory.all_replicated())


def test_a_group_that_was_made_without_a_record_is_read_after_the_next_write() -> None:
    memory = Memory()
    memory.make("g")
    assert memory.group("g").exists
    assert not memory.replicated("g").exists
    memory.write((epoch_record(1, "other"),))
    memory.keep()
    assert memory.replicated("g").exists
    memory.make("lost")
    memory.take_back()
    assert not memory.group("lost").exists


def test_a_group_without_a_record_of_them_has_its_coordinators_first_epochs() -> None:
    memory = Memory(1)
    regex = Record(r.RegularExpressionKey("g", "f.*"), r.RegularExpressionValue((), 1, 0.0))
    memory.write((regex,))
    for group in (memory.group("g"), memory.group("other")):
        assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    memory.write((epoch_record(2),))
    assert (memory.group("g").group_epoch, memory.group("g").assignment_epoch) == (2, 1)
    assert memory.replicated("g").group_epoch == 1


def test_a_group_that_is_deleted_is_read_until_that_is_replicated() -> None:
    memory = Memory()
    memory.load(epoch_record(1))
    memory.write((epoch_record(None),))
    assert memory.groups == {}
    assert epochs(memory) == {"g": 1}
    memory.keep()
    assert epochs(memory) == {}


def test_undone_writes_leave_nothing() -> None:
    memory, twin = Memory(), Memory()
    for each in (memory, twin):
        each.load(epoch_record(1))
    memory.write((epoch_record(2), epoch_record(5, "new")))
    memory.write((epoch_record(None), epoch_record(None, "new"), epoch_record(7, "new")))
    memory.take_back()
    assert memory == twin


def test_a_group_is_compared_with_the_topics_again_after_an_undo() -> None:
    memory = Memory()
    memory.load(epoch_record(1))
    memory.groups["g"].topics_version = 4
    memory.write((epoch_record(2),))
    memory.take_back()
    assert memory.groups["g"].topics_version == -1


def test_a_group_without_records_is_an_empty_one() -> None:
    assert Memory().group("g") == ConsumerGroup("g")
    assert Memory().replicated("g") == ConsumerGroup("g")
