"""The fence of a table: what it has of each partition, and what a batch may still add to it.

For each (group, topic id, partition) a table has an entry, changed in the very transaction that
adds the rows: the first offset that the fence vouches for, and the next offset. Every record
between the two is in the table once. A batch is compared with the entries before it is written, and
the commit has to find the entries as they were compared, or be refused.

All of it is pure: tables are read and written elsewhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_groups.errors import TableGapError, TableRestoredError
from spark_groups.types import OffsetRange, TopicId

_SHOWN_MAX: Final = 5
_SET_AT_ONCE_MAX: Final = 50


class FenceKey(NamedTuple):
    """What an entry is about; a topic that is created again, and another group, have their own."""

    group_id: str
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """What a table has of a partition: every record of [start_offset, next_offset), once.

    Args:
        start_offset: Where the first batch began; nothing before it is vouched for.
        next_offset: The first offset that the table does not have.

    Raises:
        ValueError: The entry ends before it begins, or an offset is negative.
    """

    start_offset: int
    next_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.next_offset:
            raise ValueError(f"[{self.start_offset}, {self.next_offset}) is not what a table has")


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What the commit of a batch does to one entry.

    Args:
        key: Which entry.
        expected: What it has to be when the commit happens; None: there must be none.
        entry: What it becomes.
    """

    key: FenceKey
    expected: Entry | None
    entry: Entry


@dataclass(frozen=True, slots=True)
class Skip:
    """Offsets at the beginning of a range which the table has already.

    Args:
        key: Their entry.
        topic: The topic's name.
        from_offset: The first of them.
        until_offset: The first offset of the range that is not skipped.
        next_offset: Up to where the table has the partition; later batches are skipped up to here.
    """

    key: FenceKey
    topic: str
    from_offset: int
    until_offset: int
    next_offset: int

    def __str__(self) -> str:
        """Name the skipped offsets, now and in later batches, and how to write them again."""
        return (
            f"{self.topic}-{self.key.partition}: the table has it up to offset"
            f" {self.next_offset} (exclusive), so {self.next_offset - self.from_offset} offsets"
            f" from {self.from_offset} on are skipped; to write them again, stop the group's"
            f" queries, delete their rows, and run: {_reset_command(self)}; then:"
            f" {_set_back_command([self])}"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a comparison.

    Args:
        write: Ranges of the batch to write, without what the table has.
        changes: The entries that the commit changes, one for each range of `write`.
        skips: The offsets that are left out.
    """

    write: tuple[OffsetRange, ...] = ()
    changes: tuple[EntryChange, ...] = ()
    skips: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True)
class TableState:
    """A table's fence at one of its versions.

    Args:
        version: The version; None for tables that have none.
        entries: The entries of the topics that were asked for, of every group.
        recorded_version: The version that the group's last commit had, as that commit recorded it;
            None where the group has not committed, or the table cannot go back without its fence.
        restored_to: The lowest version that the table was set back to after `recorded_version`;
            None where it was not.
    """

    version: int | None = None
    entries: Mapping[FenceKey, Entry] = field(default_factory=dict)
    recorded_version: int | None = None
    restored_to: int | None = None


def compare(
    group_id: str, ranges: Iterable[OffsetRange], state: TableState, *, table: str
) -> Decision:
    """Decide what of a batch is written.

    Args:
        group_id: The group whose batch it is.
        ranges: What the batch reads; each partition at most once.
        state: The table's fence.
        table: The table, for the error.

    Returns:
        The ranges to write, and the entries that the commit has to find.

    Raises:
        TableGapError: Records would be missing in the table: the batch begins behind what the table
            has, or before it.
        TableRestoredError: The table was set back behind the group's last commit.
        ValueError: A partition comes twice.
    """
    check_not_restored(group_id, state, table=table)
    write: list[OffsetRange] = []
    changes: list[EntryChange] = []
    skips: list[Skip] = []
    gaps: list[tuple[OffsetRange, str]] = []
    seen: set[FenceKey] = set()
    for each in sorted(ranges):
        key = FenceKey(group_id, each.topic_id, each.partition)
        if key in seen:
            raise ValueError(f"{each.topic_partition} comes twice in one batch")
        seen.add(key)
        if not len(each):
            continue
        entry = state.entries.get(key)
        gap = _gap(each, entry)
        if gap is not None:
            gaps.append((each, gap))
            continue
        from_offset = each.from_offset if entry is None else entry.next_offset
        if from_offset > each.from_offset:
            until_offset = min(from_offset, each.until_offset)
            skips.append(Skip(key, each.topic, each.from_offset, until_offset, from_offset))
        if from_offset < each.until_offset:
            start_offset = from_offset if entry is None else entry.start_offset
            write.append(_cut(each, from_offset))
            changes.append(EntryChange(key, entry, Entry(start_offset, each.until_offset)))
    if gaps:
        raise TableGapError(_gap_text(group_id, gaps, table))
    return Decision(tuple(write), tuple(changes), tuple(skips))


def check_not_truncated(
    skips: Sequence[Skip], truncated: Mapping[FenceKey, int], *, table: str
) -> None:
    """Refuse to skip offsets that may be those of other records than the table has.

    After an unclean leader election a log may end below what a group has read, and then grow again.

    Args:
        skips: The skips of a batch.
        truncated: The group's committed offsets that are the ends of truncated logs.
        table: The table, for the error.

    Raises:
        TableGapError: Records would be missing in the table.
    """
    gone = [each for each in skips if truncated.get(each.key) == each.from_offset]
    if gone:
        problems = [
            f"{each.topic}-{each.key.partition} ended at offset {each.from_offset}, but the table"
            f" has it up to {each.next_offset} (exclusive)"
            for each in gone
        ]
        raise TableGapError(
            f"the batch is not written to {table}, because logs were truncated (caused by an"
            f" unclean leader election): {_shown(problems)}. The rows from there on are of records"
            " that are gone, and other records may have their offsets now. Delete these rows and"
            f" run: {_set_back_command(gone)}"
        )


def _gap(each: OffsetRange, entry: Entry | None) -> str | None:
    """Say which offsets would be missing in the table if a range were written; None: none."""
    if entry is None:
        return None
    if entry.next_offset < each.from_offset:
        return (
            f"{each.topic_partition}: the table has it up to offset {entry.next_offset}"
            f" (exclusive), but the batch begins at {each.from_offset}:"
            f" {each.from_offset - entry.next_offset} offsets would be missing"
        )
    if each.from_offset < entry.start_offset:
        return (
            f"{each.topic_partition}: the batch begins at offset {each.from_offset}, but the table"
            f" has the partition from {entry.start_offset} on:"
            f" {entry.start_offset - each.from_offset} offsets before that cannot be added"
        )
    return None


def _cut(each: OffsetRange, from_offset: int) -> OffsetRange:
    if from_offset == each.from_offset:
        return each
    return OffsetRange(each.topic_id, each.topic, each.partition, from_offset, each.until_offset)


def _shown(partitions: Sequence[str]) -> str:
    shown = list(partitions[:_SHOWN_MAX])
    if len(partitions) > _SHOWN_MAX:
        shown.append(f"and {len(partitions) - _SHOWN_MAX} more partitions")
    return "; ".join(shown)


def _gap_text(group_id: str, gaps: Sequence[tuple[OffsetRange, str]], table: str) -> str:
    # The group's committed offset is another one where records were deleted before they were read.
    places = [(each.topic, each.partition, each.from_offset) for each, _ in gaps]
    return (
        f"the batch is not written to {table}, because records would be missing there:"
        f" {_shown([text for _, text in gaps])}. If they are to be missing (offsets were reset"
        " forward, or the log was cut), accept it with:"
        f" {_set_offsets_command(group_id, places)}; else reset the group's offsets to what the"
        " table has"
    )


def _set_back_command(skips: Sequence[Skip]) -> str:
    """Return the command that has skipped offsets written again, once their rows are deleted."""
    places = [(each.topic, each.key.partition, each.from_offset) for each in skips]
    return f"{_set_offsets_command(skips[0].key.group_id, places)} --backwards"


def _set_offsets_command(group_id: str, places: Sequence[tuple[str, int, int]]) -> str:
    """Return the command that sets a table's entries to offsets of partitions of topics."""
    given = " ".join(
        f"--topic {topic}:{partition}={offset}"
        for topic, partition, offset in places[:_SET_AT_ONCE_MAX]
    )
    return f"spark-groups table set-offsets {shlex.quote(group_id)} --table TABLE {given} --execute"


def _reset_command(skip: Skip) -> str:
    """Return the command that has a group read skipped offsets again."""
    # The group's committed offset has passed the skip by the time its queries are stopped.
    place = f"--topic {skip.topic}:{skip.key.partition} --to-offset {skip.from_offset}"
    return f"spark-groups reset-offsets {shlex.quote(skip.key.group_id)} {place} --execute"


def check_not_restored(group_id: str, state: TableState, *, table: str) -> None:
    """Refuse a table that went back behind what the group has written to it.

    Its rows are gone then, but its fence may still say that they are there.

    Args:
        group_id: The group.
        state: The table's fence.
        table: The table, for the error.

    Raises:
        TableRestoredError: It went back.
    """
    recorded, restored_to = state.recorded_version, state.restored_to
    if recorded is None or restored_to is None or restored_to >= recorded:
        return
    raise TableRestoredError(
        f"{table} was restored to its version {restored_to}, but the group {group_id!r} last wrote"
        f" version {recorded}: rows are gone that the table's fence says are there. Stop the"
        " group's queries and set the fence to the rows that are left with: spark-groups table"
        f" repair TABLE --group {shlex.quote(group_id)} --execute"
    )


def other_groups(group_id: str, topics: Mapping[TopicId, str], state: TableState) -> list[str]:
    """Say which other groups write topics of a batch to the same table: their rows come twice.

    Args:
        group_id: The group whose batch it is.
        topics: The names of the batch's topics.
        state: The table's fence.

    Returns:
        One sentence for each pair of a topic and another group.
    """
    pairs = {
        (topics[key.topic_id], key.group_id)
        for key in state.entries
        if key.topic_id in topics and key.group_id != group_id
    }
    return [
        f"the group {other!r} has written the topic {topic} to this table, too: each record that"
        f" both groups read is in the table twice"
        for topic, other in sorted(pairs)
    ]


class SkipNotices:
    """Remembers which skips the user knows of: one notice for a partition, not for a batch."""

    def __init__(self) -> None:
        self._told: dict[FenceKey, int] = {}

    def untold(self, skips: Iterable[Skip]) -> list[Skip]:
        """Return the skips that were not reported yet; they count as reported from now on.

        Args:
            skips: What a batch skips.
        """
        new = [each for each in skips if self._told.get(each.key) != each.next_offset]
        self._told |= {each.key: each.next_offset for each in new}
        return new


def holds(changes: Iterable[EntryChange], entry_of: Callable[[FenceKey], Entry | None]) -> bool:
    """Tell whether entries still are what a commit expects; asked inside its transaction.

    Args:
        changes: What the commit does to entries.
        entry_of: Returns what an entry is now.
    """
    return all(entry_of(each.key) == each.expected for each in changes)
