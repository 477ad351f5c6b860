"""A partition's log: its end, its beginning, its leaders."""

from __future__ import annotations

from spark_groups.protocol.messages import EpochEnd
from spark_groups.sim.partition_log import PartitionLog


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
