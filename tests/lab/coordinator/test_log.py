"""The log of a partition: what is lost, what is kept, and what compaction may not change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.log import Log
from spark_groups.lab.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
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


def test_truncation_loses_exactly_what_is_not_replicated() -> None:
    log = Log()
    log.append((commit(0, 1), commit(1, 1)))
    log.replicate()
    log.append((commit(0, 2), epoch(4)))
    log.truncate()
    assert list(log.replay()) == [commit(0, 1), commit(1, 1)]
    assert log.end_offset == log.high_watermark == 2
    log.append((commit(1, None),))
    assert [each.base_offset for each in log.batches] == [0, 2]


def test_compaction_keeps_the_last_value_and_tombstones_as_told() -> None:
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
