"""A partition's log: its end, its beginning, its leaders."""

from __future__ import annotations

from spark_groups.lab.sim.partition_log import PartitionLog
from spark_groups.protocol.messages import EpochEnd


def test_records_can_be_told_apart_and_know_when_they_were_written() -> None:
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
    assert log.end_offset == 10, "what is left of the log is not below its beginning"


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


def test_what_is_aborted_is_shown_to_those_who_want_everything() -> None:
    log = PartitionLog(1)
    log.end_transaction(log.open_transaction(2, 1.0), 2.0, aborts=True)
    assert list(log.shown(0, 4, read_committed=True)) == [0]
    assert list(log.shown(0, 4, read_committed=False)) == [0, 1, 2]
    assert [log.hides(each, read_committed=False) for each in range(4)] == [False] * 3 + [True]


def test_a_leader_that_lacks_the_end_of_a_transaction_is_told_again() -> None:
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


def test_what_is_available_is_what_was_written_and_stable() -> None:
    log = PartitionLog(2)
    log.append(3, 5.0)
    opened = log.open_transaction(2, 6.0)
    log.end_transaction(opened, 8.0, aborts=False)
    assert log.available(4.0, read_committed=False) == 2
    assert log.available(7.0, read_committed=False) == 7
    assert log.available(7.0, read_committed=True) == 5, "it was open then"
    assert log.available(8.0, read_committed=True) == 8
