"""The plans of `spark-groups table`."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.cli.table_plan import (
    OrphanRow,
    VacuumView,
    offset_row,
    parse_age,
    parse_new_offsets,
    plan_change,
    plan_repair,
)
from spark_groups.errors import OptionsError
from spark_groups.fence.entries import Entry, EntryChange, FenceKey
from spark_groups.types import TopicPartition

KEY = FenceKey("g", uuid.UUID(int=7), 0)
SECOND = FenceKey("g", uuid.UUID(int=7), 1)


@pytest.mark.parametrize(
    ("committed_offset", "difference", "remark", "is_refused"),
    [
        (20, 0, "", False),
        (18, -2, "the table is ahead: 2 offsets will be skipped", False),
        (23, 3, "gap: 3 offsets would be missing, the next batch is refused", True),
        (4, -16, "before the table's start: the next batch is refused", True),
        (None, None, "the group has no committed offset", False),
    ],
)
def test_remark_is_about_the_next_batch(
    committed_offset: int | None, difference: int | None, remark: str, is_refused: bool
) -> None:
    row = offset_row(KEY, Entry(5, 20), "flights", committed_offset)
    assert (row.difference, row.remark, row.is_refused) == (difference, remark, is_refused)


@pytest.mark.parametrize(
    ("entry", "next_offset", "is_backwards", "wanted"),
    [
        (None, 30, False, Entry(30, 30)),
        (Entry(5, 20), 20, False, None),
        # The entry must not include the offsets of the gap.
        (Entry(5, 20), 30, False, Entry(30, 30)),
        (Entry(5, 20), 10, True, Entry(5, 10)),
        (Entry(5, 20), 2, True, Entry(2, 2)),
        (Entry(5, 20), 30, True, Entry(30, 30)),
    ],
)
def test_entry_is_set(
    entry: Entry | None, next_offset: int, is_backwards: bool, wanted: Entry | None
) -> None:
    row, change = plan_change(KEY, "flights", entry, next_offset, is_backwards=is_backwards)
    assert change == (None if wanted is None else EntryChange(KEY, entry, wanted))
    assert not row.is_refused
    assert row.new_next_offset == (None if wanted is None else wanted.next_offset)


def test_entry_is_set_back_only_with_backwards() -> None:
    row, change = plan_change(KEY, "flights", Entry(5, 20), 10, is_backwards=False)
    assert (change, row.is_refused) == (None, True)
    assert row.remark == (
        "the table has 10 offsets more, and skips them: to have them written again, delete their"
        " rows and add --backwards"
    )


def test_repair_sets_the_entries_of_the_restored_version() -> None:
    names = dict.fromkeys((KEY, SECOND), "flights")
    entries = {KEY: Entry(5, 20), SECOND: Entry(3, 9)}
    rows, changes = zip(*plan_repair(entries, {KEY: Entry(5, 10)}, names), strict=True)
    assert changes == (
        EntryChange(KEY, Entry(5, 20), Entry(5, 10)),
        # The partition had no rows then, and may have had some before a gap that was accepted.
        EntryChange(SECOND, Entry(3, 9), Entry(0, 0)),
    )
    assert rows[0].remark == "10 offsets went back"
    assert rows[1].remark.startswith("no rows are left: the next batch is refused unless")
    assert [change for _, change in plan_repair(entries, entries, names)] == [None, None]


def test_new_offsets_are_parsed() -> None:
    assert parse_new_offsets(["flights:0=12", "a.b:3=0"]) == {
        TopicPartition("flights", 0): 12,
        TopicPartition("a.b", 3): 0,
    }
    with pytest.raises(OptionsError, match="'flights:0' is not TOPIC:PARTITION=OFFSET; flights-1"):
        parse_new_offsets(["flights:0", "flights:1=2", "flights:1=3"])


def test_ages_are_parsed() -> None:
    assert [parse_age(each) for each in ("90s", "2m", "12h", "7d")] == [90, 120, 43_200, 604_800]
    for text in ("7", "d", "-1d", "1.5h"):
        with pytest.raises(OptionsError, match="such as 12h or 1d"):
            parse_age(text)


def test_vacuum_shows_the_sum_of_sizes() -> None:
    rows = tuple(OrphanRow(name=each, size_bytes=4, age_s=1) for each in "ab")
    assert VacuumView(table="t", rows=rows).to_json()["total_bytes"] == 8
