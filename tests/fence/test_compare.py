"""The fence: each rule once, and then random steps of several writers."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_groups.errors import TableGapError, TableRestoredError
from spark_groups.fence.compare import (
    NEW_CHECKPOINT,
    Decision,
    Skip,
    check_not_restored,
    check_not_truncated,
    compare,
    other_groups,
)
from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState, holds
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import OffsetRange
from tests.cli.printed import printed

GROUP = "flights"
TABLE = "delta table rows"
TOPIC = uuid.UUID(int=7)
AGAIN = uuid.UUID(int=8)
KEY = FenceKey(GROUP, TOPIC, 0)


def reads(from_offset: int, until_offset: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TOPIC, "departures", partition, from_offset, until_offset)


def state_of(start_offset: int, next_offset: int, key: FenceKey = KEY) -> TableState:
    return TableState(entries={key: Entry(start_offset, next_offset)})


def truncated(ends: dict[FenceKey, int]) -> dict[FenceKey, OffsetAndMetadata]:
    """Return committed offsets that are the ends of truncated logs."""
    metadata = commit_metadata(1, is_truncated=True)
    return {key: OffsetAndMetadata(end, metadata) for key, end in ends.items()}


def decide(state: TableState, *ranges: OffsetRange, group_id: str = GROUP) -> Decision:
    return compare(group_id, ranges, state, table=TABLE)


def test_range_that_begins_at_the_next_offset_is_written() -> None:
    expected, entry = Entry(5, 10), Entry(5, 20)
    assert decide(state_of(5, 10), reads(10, 20)) == Decision(
        write=(reads(10, 20),), changes=(EntryChange(KEY, expected, entry),)
    )


def test_range_that_the_table_has_is_skipped() -> None:
    decision = decide(state_of(0, 50), reads(10, 20))
    assert decision == Decision(skips=(Skip(KEY, "departures", 10, 20, 50),))
    assert "up to offset 50 (exclusive), so 40 offsets from 10 on" in str(decision.skips[0])
    assert str(decision.skips[0]).endswith(f"; then {NEW_CHECKPOINT}")
    assert printed(str(decision.skips[0])) == [
        "reset-offsets flights --topic departures:0 --to-offset 10 --execute",
        "table set-offsets flights --table TABLE --topic departures:0=10 --execute --backwards",
    ]
    # A batch whose driver died after the commit of the table.
    assert decide(state_of(0, 20), reads(10, 20)).write == ()


def test_range_that_the_table_has_in_part_is_cut() -> None:
    assert decide(state_of(0, 15), reads(10, 20)) == Decision(
        write=(reads(15, 20),),
        changes=(EntryChange(KEY, Entry(0, 15), Entry(0, 20)),),
        skips=(Skip(KEY, "departures", 10, 15, 15),),
    )


def test_gap_is_refused_with_the_command_that_accepts_it() -> None:
    with pytest.raises(TableGapError, match="5 offsets would be missing") as raised:
        decide(state_of(0, 5), reads(10, 20))
    assert TABLE in str(raised.value)
    assert str(raised.value).endswith(f"; then {NEW_CHECKPOINT}")
    assert printed(str(raised.value)) == [
        "table set-offsets flights --table TABLE --topic departures:0=10 --execute",
        "reset-offsets flights --from-table TABLE --all-topics --execute",
    ]


def test_table_that_does_not_exist_is_named_as_having_nothing_of_a_query_with_batches() -> None:
    state = TableState(unsaved={KEY: Entry(4, 4)})
    with pytest.raises(
        TableGapError, match="this table does not exist, so it has nothing"
    ) as raised:
        decide(state, reads(10, 20))
    assert "departures-0 [4, 10): 6 offsets would be missing" in str(raised.value)
    assert "its own checkpointLocation and kafka.group.id" in str(raised.value)
    assert str(raised.value).endswith(f"Then {NEW_CHECKPOINT}")
    assert printed(str(raised.value)) == [
        "reset-offsets flights --all-topics --to-earliest --execute",
        "reset-offsets flights --topic departures:0 --to-offset 4 --execute",
    ]


def test_table_without_a_row_of_the_query_is_named_as_having_nothing_of_its_partitions() -> None:
    with pytest.raises(TableGapError, match="its entry is empty at offset 4 ") as raised:
        decide(state_of(4, 4), reads(10, 20))
    assert "its own checkpointLocation and kafka.group.id" in str(raised.value)
    assert "in that group before" not in str(raised.value)
    others = {KEY._replace(group_id=name): Entry(0, 9) for name in ("former", "begun")}
    others[KEY._replace(group_id="begun")] = Entry(0, 0)
    with pytest.raises(TableGapError, match="has these topics of 'former': if the query was in"):
        decide(TableState(entries={KEY: Entry(4, 4), **others}), reads(10, 20))


def test_table_with_rows_of_the_query_is_not_taken_for_another_querys() -> None:
    elsewhere = {KEY: Entry(4, 4), KEY._replace(partition=1): Entry(0, 9)}
    for state in (state_of(0, 5), TableState(entries=elsewhere)):
        with pytest.raises(TableGapError) as raised:
            decide(state, reads(10, 20))
        assert "its own checkpointLocation" not in str(raised.value)


def test_table_that_exists_is_not_named_as_absent() -> None:
    with pytest.raises(TableGapError, match="its entry is empty at offset 4 ") as raised:
        decide(TableState(is_there=True, unsaved={KEY: Entry(4, 4)}), reads(10, 20))
    assert "does not exist" not in str(raised.value)


def test_offsets_before_the_beginning_are_not_counted_as_missing_in_an_absent_table() -> None:
    later = KEY._replace(partition=1)
    state = TableState(unsaved={KEY: Entry(4, 4), later: Entry(9, 9)})
    with pytest.raises(TableGapError, match="6 offsets would be missing") as raised:
        decide(state, reads(10, 20), reads(3, 20, 1))
    assert "departures-1" not in str(raised.value)
    with pytest.raises(TableGapError, match="has the partition from 4 on: 1 offsets before"):
        decide(TableState(unsaved={KEY: Entry(4, 4)}), reads(3, 20))


def test_range_before_the_first_offset_is_refused_and_not_skipped() -> None:
    with pytest.raises(TableGapError, match="has the partition from 100 on: 90 offsets") as raised:
        decide(state_of(100, 200), reads(10, 20))
    assert printed(str(raised.value)) == [
        "table set-offsets flights --table TABLE --topic departures:0=10 --execute --backwards",
        "reset-offsets flights --from-table TABLE --all-topics --execute",
    ]
    with pytest.raises(TableGapError, match="has the partition from 100 on"):
        decide(state_of(100, 200), reads(99, 300))


def test_skip_at_the_end_of_a_truncated_log_is_refused() -> None:
    (skip,) = decide(state_of(0, 50), reads(10, 20)).skips
    message = r"departures-0 ended at offset 10, but the table has it up to 50 \(exclusive\)"
    with pytest.raises(TableGapError, match=message) as raised:
        check_not_truncated([skip], truncated({KEY: 10}), table=TABLE)
    command = "flights --table TABLE --topic departures:0=10 --execute --backwards"
    assert command in str(raised.value)
    assert command in str(skip)


def test_skip_that_begins_elsewhere_than_at_a_truncation_is_allowed() -> None:
    skips = decide(state_of(0, 50), reads(10, 20)).skips
    for ends in ({}, {KEY: 9}, {KEY: 11}, {KEY._replace(partition=1): 10}):
        check_not_truncated(skips, truncated(ends), table=TABLE)
    unmarked = {KEY: OffsetAndMetadata(10, commit_metadata(1))}
    check_not_truncated(skips, unmarked, table=TABLE)


def test_many_gaps_are_counted() -> None:
    keys = [FenceKey(GROUP, TOPIC, index) for index in range(7)]
    state = TableState(entries=dict.fromkeys(keys, Entry(0, 5)))
    with pytest.raises(TableGapError, match="and 2 more"):
        decide(state, *(reads(10, 20, index) for index in range(7)))


def test_first_batch_stores_its_first_offset_and_expects_no_entry() -> None:
    assert decide(TableState(), reads(10, 20)) == Decision(
        write=(reads(10, 20),), changes=(EntryChange(KEY, None, Entry(10, 20)),)
    )


def test_of_two_first_writers_one_is_refused() -> None:
    first, second = decide(TableState(), reads(10, 20)), decide(TableState(), reads(10, 15))
    entries = {each.key: each.entry for each in first.changes}
    assert holds(first.changes, {}.get)
    assert not holds(second.changes, entries.get)


def test_topic_that_was_created_again_and_another_group_have_their_own_entries() -> None:
    state = state_of(0, 50)
    again = OffsetRange(AGAIN, "departures", 0, 0, 10)
    assert decide(state, again).write == (again,)
    assert decide(state, reads(0, 10), group_id="other").write == (reads(0, 10),)


def test_empty_range_changes_no_entry() -> None:
    assert decide(TableState(), reads(10, 10)) == Decision()
    assert decide(state_of(0, 5), reads(10, 10)) == Decision()


def test_partition_that_appears_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="departures-0 appears twice"):
        decide(TableState(), reads(0, 5), reads(5, 10))


def test_table_restored_to_before_the_groups_last_commit_is_refused() -> None:
    with pytest.raises(TableRestoredError, match="table repair TABLE --group flights") as raised:
        decide(TableState(recorded_version=7, restored_to=6), reads(0, 5))
    assert "restored to its version 6" in str(raised.value)


@pytest.mark.parametrize(
    ("recorded_version", "restored_to"), [(7, None), (7, 7), (7, 8), (None, 3), (None, None)]
)
def test_table_with_the_groups_last_commit_is_accepted(
    recorded_version: int | None, restored_to: int | None
) -> None:
    state = TableState(recorded_version=recorded_version, restored_to=restored_to)
    check_not_restored(GROUP, state, table=TABLE)


def test_other_groups_of_the_same_topic_are_named() -> None:
    keys = [
        FenceKey("other", TOPIC, 0),
        FenceKey("other", TOPIC, 1),
        FenceKey("third", AGAIN, 0),
        KEY,
    ]
    state = TableState(entries=dict.fromkeys(keys, Entry(0, 5)))
    # A group that was refused has only begun.
    state = TableState(entries={**state.entries, FenceKey("begun", TOPIC, 0): Entry(5, 5)})
    # An accepted gap in one of its partitions does not hide a group.
    state.entries[FenceKey("other", TOPIC, 1)] = Entry(5, 5)
    (warning,) = other_groups(GROUP, {TOPIC: "departures"}, state)
    assert "'other' has written the topic departures" in warning


@pytest.mark.parametrize("offsets", [(-1, 5), (6, 5)])
def test_entry_is_a_range(offsets: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is no range of offsets"):
        Entry(*offsets)


class Table:
    """A table in memory: rows and entries change together."""

    def __init__(self) -> None:
        self.entries: dict[FenceKey, Entry] = {}
        self.rows: Counter[tuple[FenceKey, int]] = Counter()

    def commit(self, group_id: str, decision: Decision) -> bool:
        """Commit a batch unless an entry has changed; return whether it was committed."""
        if not holds(decision.changes, self.entries.get):
            return False
        self.entries |= {each.key: each.entry for each in decision.changes}
        for each in decision.write:
            key = FenceKey(group_id, each.topic_id, each.partition)
            self.rows.update((key, offset) for offset in range(each.from_offset, each.until_offset))
        return True


OFFSETS = st.integers(0, 12)
RANGES = st.builds(
    lambda partition, one, other: reads(min(one, other), max(one, other), partition),
    st.integers(0, 1),
    OFFSETS,
    OFFSETS,
)
BATCHES = st.lists(RANGES, max_size=2, unique_by=lambda each: each.partition)
WRITERS = st.integers(0, 2)
STEPS = st.lists(st.tuples(WRITERS, st.one_of(st.none(), BATCHES)), max_size=30)


@settings(max_examples=300)
@given(steps=STEPS)
def test_each_record_is_in_the_table_once_for_any_order_of_steps(
    steps: Sequence[tuple[int, list[OffsetRange] | None]],
) -> None:
    """Each step of a writer reads the entries (None), or compares a batch with them and commits.

    The third writer has a group of its own.
    """
    table = Table()
    seen = dict.fromkeys(range(3), TableState())
    for writer, batch in steps:
        group_id = "other" if writer == 2 else GROUP
        if batch is None:
            seen[writer] = TableState(entries=dict(table.entries))
            continue
        try:
            decision = decide(seen[writer], *batch, group_id=group_id)
        except TableGapError:
            continue
        if table.commit(group_id, decision):
            for each in filter(len, batch):
                entry = table.entries[FenceKey(group_id, each.topic_id, each.partition)]
                assert entry.start_offset <= each.from_offset
                assert each.until_offset <= entry.next_offset
    assert set(table.rows.values()) <= {1}
    assert set(table.rows) == {
        (key, offset)
        for key, entry in table.entries.items()
        for offset in range(entry.start_offset, entry.next_offset)
    }


@settings(max_examples=100)
@given(ends=st.lists(OFFSETS, min_size=1), replays=st.lists(st.booleans(), min_size=1))
def test_writer_that_crashes_after_any_commit_loses_no_record(
    ends: list[int], replays: list[bool]
) -> None:
    """Some batches run twice, as after a crash between the table's commit and the offset commit."""
    table, position = Table(), 0
    for index, end in enumerate(sorted(ends)):
        for _ in range(2 if replays[index % len(replays)] else 1):
            state = TableState(entries=dict(table.entries))
            assert table.commit(GROUP, decide(state, reads(position, end)))
        position = end
    assert table.rows == Counter({(KEY, offset): 1 for offset in range(max(ends))})
