"""The steps of a write, one by one, without a table."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import ColumnsChangedError, TableChangedError, TableGapError
from spark_groups.fence.batch_write import (
    COMMIT_WAIT_S,
    AskCommitted,
    AskKept,
    BatchWrite,
    CommitEntries,
    CommitRows,
    Pause,
    ReadFence,
    StageRows,
    Warn,
    Written,
)
from spark_groups.fence.beginnings import Batch, UnsavedEntries
from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import OffsetRange, PlanTopic

TOPIC = uuid.UUID(int=7)
KEY = FenceKey("flights", TOPIC, 0)


def reads(from_offset: int, until_offset: int) -> OffsetRange:
    return OffsetRange(TOPIC, "departures", 0, from_offset, until_offset)


BATCH = Batch("flights", 3, (reads(10, 20),), topics=(PlanTopic(TOPIC, "departures", 1),))
HAS = TableState(is_there=True, entries={KEY: Entry(0, 10)})


class Carried:
    """A write whose steps are answered from a table's fence and a log."""

    def __init__(self, state: TableState, batch: Batch = BATCH) -> None:
        self.state = state
        self.kept = batch.ranges
        self.committed = {KEY: OffsetAndMetadata(10, commit_metadata(1))}
        self.unsaved = UnsavedEntries()
        self.now_s = 1.0
        self.write = BatchWrite(batch, "rows", self.unsaved, lambda _least, most: most)

    def until(self, kind: type, *, taken: list[str] | None = None) -> object:
        """Return the first step of a kind; the names of those before it are added to `taken`."""
        while not isinstance(step := self.write.step(self.now_s), kind):
            assert not isinstance(step, Written)
            if taken is not None:
                taken.append(type(step).__name__)
            match step:
                case ReadFence():
                    self.write.fence_read(self.state)
                case AskCommitted():
                    self.write.committed(self.committed)
                case AskKept():
                    self.write.kept(self.kept)
        return step


def test_rows_are_staged_between_two_looks_at_the_log_and_then_committed() -> None:
    carried, taken = Carried(HAS), list[str]()
    step = carried.until(CommitRows, taken=taken)
    assert taken == [
        *("ReadFence", "AskCommitted", "AskKept"),
        *("AskKept", "Warn", "StageRows", "AskKept"),
    ]
    assert isinstance(step, CommitRows)
    assert step.decision.changes == (EntryChange(KEY, Entry(0, 10), Entry(0, 20)),)
    assert step.state.entries == HAS.entries
    assert isinstance(carried.write.step(1.0), Written)


def test_refused_commit_is_compared_again_and_its_rows_are_staged_only_once() -> None:
    carried, taken = Carried(HAS), list[str]()
    carried.until(CommitRows)
    carried.write.refused(TableChangedError("another writer"))
    assert isinstance(carried.write.step(1.0), Pause)
    carried.until(CommitRows, taken=taken)
    assert taken == ["ReadFence", "AskKept", "Warn"]
    carried.write.refused(TableChangedError("another writer"))
    carried.until(Pause)
    carried.state = TableState(is_there=True, entries={KEY: Entry(0, 15)})
    step = carried.until(StageRows)
    assert step == StageRows((reads(15, 20),))


def test_rows_that_fit_no_more_are_staged_again_after_the_comparison() -> None:
    carried, taken = Carried(HAS), list[str]()
    carried.until(CommitRows)
    carried.write.refused(ColumnsChangedError("another writer"))
    assert isinstance(carried.write.step(1.0), Pause)
    assert carried.until(StageRows, taken=taken) == StageRows((reads(10, 20),))
    assert taken == ["ReadFence", "AskKept", "Warn"]


def test_batch_that_the_table_has_ends_without_a_commit() -> None:
    carried = Carried(TableState(is_there=True, entries={KEY: Entry(0, 20)}))
    warned = carried.until(Warn)
    assert isinstance(warned, Warn)
    assert [each.until_offset for each in warned.skips] == [20]
    assert isinstance(carried.write.step(1.0), Written)


def test_records_that_are_deleted_while_rows_are_staged_are_found_before_the_commit() -> None:
    carried = Carried(HAS)
    carried.until(StageRows)
    carried.kept = (reads(12, 20),)
    with pytest.raises(TableGapError, match="2 offsets would be missing"):
        carried.until(CommitRows)


def test_entry_begins_in_a_commit_of_its_own_where_the_group_stands() -> None:
    carried = Carried(TableState(is_there=True))
    carried.committed = {KEY: OffsetAndMetadata(4, commit_metadata(1))}
    step = carried.until(CommitEntries)
    assert isinstance(step, CommitEntries)
    assert step.decision.changes == (EntryChange(KEY, None, Entry(4, 4)),)
    with pytest.raises(TableGapError, match="6 offsets would be missing"):
        carried.until(CommitRows)


def test_table_that_does_not_exist_gets_its_first_entries_with_the_rows() -> None:
    carried = Carried(TableState())
    step = carried.until(CommitRows)
    assert isinstance(step, CommitRows)
    assert step.decision.changes == (EntryChange(KEY, None, Entry(10, 20)),)


def test_time_in_which_rows_are_staged_is_not_that_of_refusals() -> None:
    carried = Carried(HAS)
    carried.until(StageRows)
    carried.now_s += 2 * COMMIT_WAIT_S
    carried.until(CommitRows)
    carried.now_s += COMMIT_WAIT_S - 1
    carried.write.refused(TableChangedError("another writer"))
    carried.until(CommitRows)
    carried.now_s += 1
    carried.write.refused(TableChangedError("another writer"))
    with pytest.raises(TableChangedError, match=r"batch 3 .* for 300 s"):
        carried.write.step(carried.now_s)


def test_batch_that_is_always_refused_ends_with_the_last_reason() -> None:
    carried = Carried(HAS)
    carried.until(CommitRows)
    carried.now_s += COMMIT_WAIT_S
    carried.write.refused(TableChangedError("another writer"))
    with pytest.raises(TableChangedError, match=r"batch 3 .* for 300 s.*: another writer"):
        carried.write.step(carried.now_s)
