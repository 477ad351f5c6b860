"""Topics in metadata, and the logs of their partitions."""

from __future__ import annotations

import pytest

from group_lab.sim.storage import OLD_LEADER_ANSWERS_S, PartitionLog, Storage
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.group.member.messages import EpochEnd
from spark_groups.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicIdPartition
from tests.answers import epoch_answer, list_answer


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


def test_metadata_is_found_by_name_and_by_id(storage: Storage) -> None:
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
        m.ListOffsetsRequest(partitions=asked, timestamp_ms=LATEST_TIMESTAMP)
    )
    starts = storage.list_offsets(
        m.ListOffsetsRequest(partitions=asked, timestamp_ms=EARLIEST_TIMESTAMP)
    )
    unknown = {gone: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert ends == list_answer({first: 9, second: 0}, unknown, {first: 1, second: 0})
    assert starts == list_answer({first: 4, second: 0}, unknown, {first: 0, second: 0})
    electing = {first: int(ErrorCode.LEADER_NOT_AVAILABLE)}
    partial = storage.list_offsets(
        m.ListOffsetsRequest(partitions=asked, timestamp_ms=-1), electing
    )
    assert partial == list_answer({second: 0}, {**unknown, **electing}, {second: 0})


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
    unknown = {gone: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert found == epoch_answer({key: m.EpochEnd(4, 0)}, unknown)
    fenced = {key: int(ErrorCode.FENCED_LEADER_EPOCH)}
    assert storage.epoch_ends(request, fenced) == epoch_answer(errors={**unknown, **fenced})


def test_records_are_distinct_and_carry_their_write_time() -> None:
    log = PartitionLog(2)
    log.append(3, 5.0)
    assert log.end_offset == 5
    assert list(log.read(1, 4)) == [1, 2, 3]
    assert [log.written_at(each) for each in (1, 2, 4)] == [0.0, 5.0, 5.0]


def test_a_leader_that_lacks_the_end_writes_other_records_there() -> None:
    log = PartitionLog(10)
    log.elect(4, 3.0)
    assert (log.end_offset, log.leader_epoch, log.deposed) == (6, 1, (10, 0))
    log.append(2)
    assert list(log.read(5, 8)) == [5, 10, 11]


def test_ends_of_leader_epochs_are_answered_as_kafka_does() -> None:
    log = PartitionLog(10)
    log.elect(4, 0.0)
    log.append(5)
    log.elect(0, 0.0)
    assert log.end_of(0) == EpochEnd(6, 0)
    assert log.end_of(1) == EpochEnd(11, 1)
    assert log.end_of(2) == EpochEnd(11, 2)
    assert [log.epoch_at(each) for each in (0, 5, 6, 10, 11)] == [0, 0, 1, 1, 2]


def test_an_epoch_that_wrote_nothing_ends_where_the_next_began() -> None:
    log = PartitionLog(0)
    log.elect(0, 0.0)
    log.append(3)
    assert log.end_of(0) == EpochEnd(0, 0)
    assert log.epoch_at(0) == 1


def test_retention_takes_the_beginning_and_never_gives_it_back() -> None:
    log = PartitionLog(10)
    log.retain(4)
    log.retain(2)
    assert log.start_offset == 4
    assert list(log.read(0, 6)) == [4, 5]
    log.retain(50)
    assert log.start_offset == log.end_offset == 10
    log.elect(5, 0.0)
    assert log.end_offset == 10, "the log does not end below its start"


def test_what_a_transaction_writes_counts_once_it_is_committed() -> None:
    log = PartitionLog(2)
    opened = log.open_transaction(3, 1.0)
    log.append(1, 2.0)
    assert (log.stable_offset, log.end_offset) == (2, 6)
    assert list(log.shown(0, 6, read_committed=True)) == [0, 1]
    assert list(log.shown(0, 6, read_committed=False)) == [0, 1, 2, 3, 4, 5]
    log.end_transaction(opened, 3.0, aborts=False)
    assert (log.stable_offset, log.end_offset) == (7, 7), "its end is a record, too"
    assert list(log.shown(0, 7, read_committed=True)) == [0, 1, 2, 3, 4, 5]


def test_aborted_records_are_shown_under_read_uncommitted() -> None:
    log = PartitionLog(1)
    log.end_transaction(log.open_transaction(2, 1.0), 2.0, aborts=True)
    assert list(log.shown(0, 4, read_committed=True)) == [0]
    assert list(log.shown(0, 4, read_committed=False)) == [0, 1, 2]
    assert [log.hides(each, read_committed=False) for each in range(4)] == [False] * 3 + [True]


def test_a_leader_without_the_end_of_a_transaction_receives_it_again() -> None:
    log = PartitionLog(1)
    log.end_transaction(log.open_transaction(2, 1.0), 2.0, aborts=False)
    log.elect(1, 3.0)
    assert (log.stable_offset, log.deposed_stable_offset) == (1, 4)
    log.append(0, 4.0)
    assert log.stable_offset == log.end_offset == 4


def test_a_transaction_begins_behind_the_markers_that_are_due() -> None:
    log = PartitionLog(1)
    log.end_transaction(log.open_transaction(2, 1.0), 2.0, aborts=False)
    log.elect(1, 3.0)
    opened = log.open_transaction(2, 4.0)
    assert (opened.from_offset, opened.until_offset) == (4, 6)
    assert log.stable_offset == 4
    log.end_transaction(opened, 5.0, aborts=True)
    assert log.shown(0, 7, read_committed=True) == log.read(0, 3)


def test_a_transaction_that_an_election_took_ends_in_silence() -> None:
    log = PartitionLog(1)
    opened = log.open_transaction(2, 1.0)
    log.elect(2, 2.0)
    log.end_transaction(opened, 3.0, aborts=True)
    assert log.stable_offset == log.end_offset == 1


def test_offsets_are_available_once_written_and_stable() -> None:
    log = PartitionLog(2)
    log.append(3, 5.0)
    opened = log.open_transaction(2, 6.0)
    log.end_transaction(opened, 8.0, aborts=False)
    assert log.available(4.0, read_committed=False) == 2
    assert log.available(7.0, read_committed=False) == 7
    assert log.available(7.0, read_committed=True) == 5, "it was open then"
    assert log.available(8.0, read_committed=True) == 8
