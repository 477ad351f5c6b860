"""Bugs in what a table may get: drawn schedules find each; test_drawn_mutations.py plays them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final
from weakref import WeakSet

import pytest

from group_lab.sim import tables
from spark_groups.fence import batch_write
from spark_groups.fence import compare as comparison
from spark_groups.fence.batch_write import BatchWrite
from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState
from spark_groups.types import OffsetRange

Patch = pytest.MonkeyPatch


def takes_a_gap_of_one_for_none(patch: Patch) -> None:
    gap = comparison._gap

    def lenient(each: OffsetRange, entry: Entry) -> str | None:
        return None if each.from_offset == entry.next_offset + 1 else gap(each, entry)

    patch.setattr(comparison, "_gap", lenient)


def skips_what_is_before_the_first_offset(patch: Patch) -> None:
    gap = comparison._gap

    def lenient(each: OffsetRange, entry: Entry) -> str | None:
        return None if each.from_offset < entry.start_offset else gap(each, entry)

    patch.setattr(comparison, "_gap", lenient)


def cuts(by: int) -> Callable[[Patch], None]:
    def planted(patch: Patch) -> None:
        cut = comparison._cut

        def wrong(each: OffsetRange, from_offset: int) -> OffsetRange:
            is_cut = from_offset != each.from_offset
            there = min(max(from_offset + by, each.from_offset), each.until_offset)
            return cut(each, there if is_cut else from_offset)

        patch.setattr(comparison, "_cut", wrong)

    return planted


def cuts_one_record_too_few(patch: Patch) -> None:
    cuts(-1)(patch)


def cuts_one_record_too_many(patch: Patch) -> None:
    cuts(1)(patch)


def commits_over_an_entry_that_has_begun_meanwhile(patch: Patch) -> None:
    holds = tables.holds

    def lenient(changes: Iterable[EntryChange], entry_of: Any) -> bool:
        return holds([each for each in changes if each.expected is not None], entry_of)

    patch.setattr(tables, "holds", lenient)


def commits_over_an_entry_that_has_grown_meanwhile(patch: Patch) -> None:
    holds = tables.holds

    def lenient(changes: Iterable[EntryChange], entry_of: Any) -> bool:
        return holds([each for each in changes if each.expected is None], entry_of)

    patch.setattr(tables, "holds", lenient)


def checks_only_the_first_entry(patch: Patch) -> None:
    holds = tables.holds
    patch.setattr(tables, "holds", lambda changes, entry_of: holds([*changes][:1], entry_of))


def expects_what_the_table_has_at_the_commit(patch: Patch) -> None:
    commit = tables.Table.commit

    def rebased(self: Any, rows: Any, changes: Iterable[EntryChange], state: TableState) -> None:
        now = [replace(each, expected=self.entries.get(each.key)) for each in changes]
        commit(self, rows, now, replace(state, version=self._version))

    patch.setattr(tables.Table, "commit", rebased)


def reads_the_fence_only_once(patch: Patch) -> None:
    fence_read = BatchWrite.fence_read

    def once(self: BatchWrite, state: TableState) -> None:
        if not self._state.is_there:
            fence_read(self, state)

    patch.setattr(BatchWrite, "fence_read", once)


def commits_the_rows_of_an_earlier_comparison(patch: Patch) -> None:
    """Once rows are staged, no other comparison stages again."""
    step = BatchWrite.step
    staged: WeakSet[BatchWrite] = WeakSet()

    def once(self: BatchWrite, now_s: float) -> Any:
        found = step(self, now_s)
        if isinstance(found, batch_write.StageRows):
            if self in staged:
                found = step(self, now_s)
            staged.add(self)
        return found

    patch.setattr(BatchWrite, "step", once)


def asks_only_once_what_was_deleted(patch: Patch) -> None:
    kept = BatchWrite.kept

    def once(self: BatchWrite, ranges: tuple[OffsetRange, ...]) -> None:
        kept(self, self._kept or ranges)

    patch.setattr(BatchWrite, "kept", once)


def begins(by: int) -> Callable[[Patch], None]:
    def planted(patch: Patch) -> None:
        beginnings = batch_write.beginnings

        def off(*args: Any) -> Any:
            found = beginnings(*args)
            return {
                key: Entry(max(0, each.start_offset + by), max(0, each.next_offset + by))
                for key, each in found.items()
            }

        patch.setattr(batch_write, "beginnings", off)

    return planted


def begins_one_record_late(patch: Patch) -> None:
    begins(1)(patch)


def takes_a_refused_commit_for_an_accepted_one(patch: Patch) -> None:
    patch.setattr(BatchWrite, "refused", lambda *_: None)


def keeps_the_start_of_no_entry(patch: Patch) -> None:
    """Each commit begins its entries again."""
    compare = batch_write.compare

    def begun_again(group_id: str, ranges: Any, state: TableState, *, table: str) -> Any:
        found = compare(group_id, ranges, state, table=table)
        starts = {
            FenceKey(group_id, each.topic_id, each.partition): each.from_offset
            for each in found.write
        }
        changes = tuple(
            replace(each, entry=replace(each.entry, start_offset=starts[each.key]))
            if each.key in starts
            else each
            for each in found.changes
        )
        return replace(found, changes=changes)

    patch.setattr(batch_write, "compare", begun_again)


def entry_ends(by: int) -> Callable[[Patch], None]:
    def planted(patch: Patch) -> None:
        compare = batch_write.compare

        def off(group_id: str, ranges: Any, state: TableState, *, table: str) -> Any:
            found = compare(group_id, ranges, state, table=table)
            changes = tuple(
                replace(each, entry=replace(each.entry, next_offset=each.entry.next_offset + by))
                if each.entry.next_offset > each.entry.start_offset
                else each
                for each in found.changes
            )
            return replace(found, changes=changes)

        patch.setattr(batch_write, "compare", off)

    return planted


def ends_an_entry_one_record_late(patch: Patch) -> None:
    entry_ends(1)(patch)


def ends_an_entry_one_record_early(patch: Patch) -> None:
    entry_ends(-1)(patch)


FOUND: Final = (
    (takes_a_gap_of_one_for_none, 400_050, "kafka-4.2"),
    (skips_what_is_before_the_first_offset, 400_042, "kafka-4.0"),
    (cuts_one_record_too_few, 400_001, "kip-848"),
    (cuts_one_record_too_many, 400_001, "kip-848"),
    (commits_over_an_entry_that_has_begun_meanwhile, 400_050, "kafka-4.0"),
    (commits_over_an_entry_that_has_grown_meanwhile, 400_014, "kafka-4.3"),
    (checks_only_the_first_entry, 400_065, "kip-848"),
    (expects_what_the_table_has_at_the_commit, 400_014, "kafka-4.3"),
    (commits_the_rows_of_an_earlier_comparison, 400_054, "kafka-4.1"),
    (begins_one_record_late, 400_002, "kip-848"),
    (keeps_the_start_of_no_entry, 400_001, "kafka-4.0"),
    (ends_an_entry_one_record_late, 400_001, "kafka-4.0"),
    (ends_an_entry_one_record_early, 400_001, "kip-848"),
    (reads_the_fence_only_once, 400_043, "kip-848"),
    (asks_only_once_what_was_deleted, 400_050, "kafka-4.2"),
    (takes_a_refused_commit_for_an_accepted_one, 400_042, "kip-848"),
)
"""Each bug, with the seed and the profile of a drawn schedule that finds it."""
