"""Topics as brokers tell of them."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.sim.storage import OLD_LEADER_ANSWERS_S, Storage
from spark_groups.protocol import messages as m
from spark_groups.types import TopicIdPartition


@pytest.fixture
def storage() -> Storage:
    return Storage({"orders": 2, "flights": 1})


def keys_of(storage: Storage, name: str) -> list[TopicIdPartition]:
    topic = storage.image.by_name[name]
    return [TopicIdPartition(topic.topic_id, each) for each in range(topic.partition_count)]


def test_a_topic_that_returns_is_another_one(storage: Storage) -> None:
    (key,) = keys_of(storage, "flights")
    storage.delete("flights")
    assert (storage.name_of(key.topic_id), key in storage.logs) == (None, False)
    version = storage.image.version
    storage.create("flights", 1)
    assert keys_of(storage, "flights") != [key]
    assert storage.image.version > version


def test_a_topic_that_grows_is_the_same_one(storage: Storage) -> None:
    before = keys_of(storage, "orders")
    added = storage.grow("orders")
    assert keys_of(storage, "orders") == [*before, added]
    assert storage.logs[added].end_offset == 0


def test_metadata_is_told_by_name_and_by_id(storage: Storage) -> None:
    (key,) = keys_of(storage, "flights")
    by_id = storage.metadata(m.MetadataRequest(topic_ids=frozenset({key.topic_id})))
    by_name = storage.metadata(m.MetadataRequest(topic_names=frozenset({"flights", "none"})))
    assert by_id.topics == by_name.topics == (m.TopicMetadata(key.topic_id, "flights", 1),)


def test_where_logs_begin_and_end(storage: Storage) -> None:
    first, second = keys_of(storage, "orders")
    storage.logs[first].append(9)
    storage.logs[first].elect(0, 0.0)
    storage.logs[first].retain(4)
    gone = TopicIdPartition(first.topic_id, 7)
    asked = frozenset({first, second, gone})
    ends = storage.list_offsets(
        m.ListOffsetsRequest(partitions=asked, timestamp_ms=m.LATEST_TIMESTAMP)
    )
    starts = storage.list_offsets(
        m.ListOffsetsRequest(partitions=asked, timestamp_ms=m.EARLIEST_TIMESTAMP)
    )
    assert ends.offsets == {first: 9, second: 0}
    assert ends.leader_epochs == {first: 1, second: 0}
    assert starts.offsets == {first: 4, second: 0}
    assert starts.leader_epochs == {first: 0, second: 0}
    assert ends.errors == starts.errors == {gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    electing = {first: int(ErrorCode.LEADER_NOT_AVAILABLE)}
    partial = storage.list_offsets(
        m.ListOffsetsRequest(partitions=asked, timestamp_ms=-1), electing
    )
    assert (partial.offsets, partial.errors) == ({second: 0}, {**ends.errors, **electing})


def test_a_deposed_leader_answers_for_a_moment(storage: Storage) -> None:
    key = keys_of(storage, "orders")[0]
    storage.logs[key].append(9)
    storage.logs[key].elect(5, 10.0)
    assert storage.list_end(key, 11.0, old=True) == (9, 0)
    assert storage.list_end(key, 11.0, old=False) == (4, 1)
    assert storage.list_end(key, 10.0 + OLD_LEADER_ANSWERS_S, old=True) == (4, 1)
    assert storage.list_end(TopicIdPartition(key.topic_id, 7), 0.0, old=True) is None


def test_ends_of_leader_epochs(storage: Storage) -> None:
    key = keys_of(storage, "orders")[0]
    storage.logs[key].append(9)
    storage.logs[key].elect(5, 10.0)
    gone = TopicIdPartition(key.topic_id, 7)
    request = m.OffsetForLeaderEpochRequest(
        lookups={each: m.EpochLookup(0, 1) for each in (key, gone)}
    )
    found = storage.epoch_ends(request)
    assert found.ends == {key: m.EpochEnd(4, 0)}
    assert found.errors == {gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    fenced = storage.epoch_ends(request, {key: int(ErrorCode.FENCED_LEADER_EPOCH)})
    assert fenced.errors[key] == ErrorCode.FENCED_LEADER_EPOCH
    assert key not in fenced.ends
