"""Sizes of records, against the project's own codec driven by the schemas of __consumer_offsets."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.member import ReconciliationState
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.sizes import batch_bytes, key_bytes, value_bytes
from spark_groups.types import Assignment, TopicIdPartition
from spark_groups.wire.schemas.codec import encode
from spark_groups.wire.schemas.messages import INT8, INT32, INT64, STRING, UUID, Field, Struct

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
def test_what_members_are_meant_to_have(count: int) -> None:
    by_topic = {FOO: list(range(count)), BAR: [0]} if count else {BAR: [0]}
    value = r.TargetMemberValue(Assignment.of(by_topic))
    field = Field("topic_partitions", TOPIC_PARTITIONS, array=True)
    assert value_bytes(value) == 2 + size({"topic_partitions": topics(by_topic)}, field)


def test_what_members_have() -> None:
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
