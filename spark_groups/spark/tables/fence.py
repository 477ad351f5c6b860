"""The fence of a table: which offsets it has of each partition, and which of a batch it lacks.

For each (group, topic id, partition) a table stores an entry of two offsets: the one at which the
group began, and the next offset. Each record between the two is in the table once. An entry begins
with the first comparison, before any row (`beginnings`), and changes in the transaction that adds
the rows. `compare` compares a batch with the entries before it is written, and the table refuses
the commit if an entry has changed since.

This module is pure: adapters read and write the tables.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_groups.errors import TableGapError, TableRestoredError
from spark_groups.group.ledger.starting import is_truncated, parse_commit_metadata
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import OffsetRange, TopicId

NEW_CHECKPOINT: Final = (
    "start the queries with a new checkpointLocation, because Spark first repeats the last batch of"
    " an old one, at its old offsets"
)
"""The end of each recipe that sets offsets back."""
_SHOWN_MAX: Final = 5
_SET_AT_ONCE_MAX: Final = 50


class FenceKey(NamedTuple):
    """The key of an entry; a topic that is created again has entries of its own."""

    group_id: str
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """The offsets of a partition that a table has, [start_offset, next_offset), each record once.

    Args:
        start_offset: Where the group began, or behind an accepted gap: records before it cannot be
            added.
        next_offset: The first offset that the table does not have.

    Raises:
        ValueError: The entry ends before it begins, or an offset is negative.
    """

    start_offset: int
    next_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.next_offset:
            raise ValueError(f"[{self.start_offset}, {self.next_offset}) is no range of offsets")


@dataclass(frozen=True, slots=True)
class EntryChange:
    """The change of one entry by the commit of a batch.

    Args:
        key: The key of the entry.
        expected: The entry that the commit has to find; None: it must find none.
        entry: The new entry.
    """

    key: FenceKey
    expected: Entry | None
    entry: Entry


@dataclass(frozen=True, slots=True)
class Skip:
    """Offsets at the beginning of a range that the table has already.

    Args:
        key: The key of their entry.
        topic: The topic's name.
        from_offset: The first skipped offset.
        until_offset: The first offset of the range that is not skipped.
        next_offset: The entry's next offset; later batches are skipped up to it.
    """

    key: FenceKey
    topic: str
    from_offset: int
    until_offset: int
    next_offset: int

    def __str__(self) -> str:
        """Return which offsets this batch and later ones skip, and how to write them again."""
        # The group's committed offset has passed the skip by the time its queries are stopped.
        place = Place(self.topic, self.key.partition, self.from_offset)
        (reset,) = _reset_commands(self.key.group_id, [place])
        return (
            f"{self.topic}-{self.key.partition}: the table has it up to offset"
            f" {self.next_offset} (exclusive), so {self.next_offset - self.from_offset} offsets"
            f" from {self.from_offset} on are skipped; to write them again, stop the group's"
            f" queries, delete their rows, and run: {reset}; then:"
            f" {_set_back_command([self])}; then {NEW_CHECKPOINT}"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of the comparison of a batch with the entries.

    Args:
        write: The ranges to write: those of the batch, without the offsets that the table has.
        changes: The entries that the commit changes: one for each range of `write`, and those that
            were not saved yet.
        skips: The offsets of the batch that the table has.
    """

    write: tuple[OffsetRange, ...] = ()
    changes: tuple[EntryChange, ...] = ()
    skips: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table's fence at one of its versions.

    Args:
        version: The version; None for tables without versions.
        is_there: Whether the table exists.
        entries: The entries of the requested topics, of every group.
        recorded_version: The version of the group's last commit, as that commit recorded it; None
            if the group has not committed, or if a restore of the table restores its fence, too.
        restored_to: The lowest version that the table was restored to after `recorded_version`;
            None if it was not restored.
        replaced: The ids of the table that the group has written, and of the one in its place;
            None: it is the same table.
        unsaved: Entries that the table cannot have yet, because it does not exist. The commit that
            creates it has them.
    """

    version: int | None = None
    is_there: bool = False
    entries: Mapping[FenceKey, Entry] = field(default_factory=dict)
    recorded_version: int | None = None
    restored_to: int | None = None
    replaced: tuple[str, str] | None = None
    unsaved: Mapping[FenceKey, Entry] = field(default_factory=dict)

    def entry(self, key: FenceKey) -> Entry | None:
        """Return the entry of a key, saved or not."""
        return self.entries.get(key) or self.unsaved.get(key)


@dataclass(frozen=True, slots=True)
class Begun:
    """What shows where a group began each partition.

    Args:
        committed: The group's committed offsets.
        before: The ranges of the query's previous batch, which is in Spark's log as done.
        kept: The ranges of the batch, without records that were deleted before they were read.
    """

    committed: Mapping[FenceKey, OffsetAndMetadata] = field(default_factory=dict)
    before: Sequence[OffsetRange] = ()
    kept: Sequence[OffsetRange] = ()


def beginnings(
    group_id: str,
    ranges: Sequence[OffsetRange],
    topic_ids: Collection[TopicId],
    begun: Begun,
    state: TableState,
) -> dict[FenceKey, Entry]:
    """Return the entries with which a table begins the partitions that it does not have.

    A batch changes Kafka's committed offset only after it has changed the table, so a partition
    without an entry begins where the group stands. What moves the group on without a change of the
    table, such as a plain consumer or an exception that a function around `write_table` swallows,
    then leaves a gap, which is refused.

    Args:
        group_id: The group whose batch it is.
        ranges: The ranges of the batch.
        topic_ids: The topics that the query reads.
        begun: What shows where the group began.
        state: The table's fence.
    """
    places: dict[FenceKey, list[int]] = {}
    for each in (*ranges, *begun.before):
        if len(each) and each.topic_id in topic_ids:
            key = FenceKey(group_id, each.topic_id, each.partition)
            places.setdefault(key, []).append(each.from_offset)
    had = {key.topic_id for key in state.entries if key.group_id == group_id}
    for key, found in begun.committed.items():
        if key.group_id == group_id and key.topic_id in topic_ids:
            # A query begins a partition that was added later at its beginning: another client, or
            # another tool, was here first.
            is_taken = key.topic_id in had and parse_commit_metadata(found.metadata) is None
            places.setdefault(key, []).append(0 if is_taken else found.committed_offset)
    starts = {key: min(offsets) for key, offsets in places.items() if state.entry(key) is None}
    for planned, kept in zip(ranges, begun.kept, strict=False):
        key = FenceKey(group_id, planned.topic_id, planned.partition)
        if starts.get(key) == planned.from_offset:
            starts[key] = kept.from_offset
    return {key: Entry(start, start) for key, start in starts.items()}


def compare(
    group_id: str, ranges: Iterable[OffsetRange], state: TableState, *, table: str
) -> Decision:
    """Decide which part of a batch to write.

    Args:
        group_id: The group whose batch it is.
        ranges: The ranges of the batch; each partition at most once.
        state: The table's fence.
        table: The name of the table in an error.

    Returns:
        The ranges to write, the entries that the commit has to find, and the skipped offsets.

    Raises:
        TableGapError: Records would be missing in the table: the batch begins after the entry's
            next offset, or before its first offset.
        TableRestoredError: The table was restored to a version before the group's last commit.
        ValueError: A partition appears twice.
    """
    check_not_restored(group_id, state, table=table)
    write: list[OffsetRange] = []
    changes: list[EntryChange] = []
    skips: list[Skip] = []
    gaps: list[tuple[OffsetRange, Entry, str]] = []
    seen: set[FenceKey] = set()
    for each in sorted(ranges):
        key = FenceKey(group_id, each.topic_id, each.partition)
        if key in seen:
            raise ValueError(f"{each.topic_partition} appears twice in one batch")
        seen.add(key)
        if not len(each):
            continue
        entry = state.entry(key)
        gap = None if entry is None else _gap(each, entry)
        if entry is not None and gap is not None:
            gaps.append((each, entry, gap))
            continue
        from_offset = each.from_offset if entry is None else entry.next_offset
        if from_offset > each.from_offset:
            until_offset = min(from_offset, each.until_offset)
            skips.append(Skip(key, each.topic, each.from_offset, until_offset, from_offset))
        if from_offset < each.until_offset:
            start_offset = from_offset if entry is None else entry.start_offset
            write.append(_cut(each, from_offset))
            entry = Entry(start_offset, each.until_offset)
            changes.append(EntryChange(key, state.entries.get(key), entry))
    if gaps:
        raise TableGapError(_gap_text(group_id, gaps, state, table))
    changed = {each.key for each in changes}
    changes += [
        EntryChange(key, None, entry)
        for key, entry in sorted(state.unsaved.items())
        if key.group_id == group_id and key not in changed
    ]
    return Decision(tuple(write), tuple(changes), tuple(skips))


def check_not_truncated(
    skips: Sequence[Skip], committed: Mapping[FenceKey, OffsetAndMetadata], *, table: str
) -> None:
    """Refuse to skip offsets if the log may have other records there than the table.

    After an unclean leader election a log may end below a group's position, and then grow again.

    Args:
        skips: The skips of a batch.
        committed: The group's committed offsets, some of them the ends of truncated logs.
        table: The name of the table in an error.

    Raises:
        TableGapError: Records would be missing in the table.
    """
    ends = {
        key: each.committed_offset for key, each in committed.items() if is_truncated(each.metadata)
    }
    gone = [each for each in skips if ends.get(each.key) == each.from_offset]
    if gone:
        problems = [
            f"{each.topic}-{each.key.partition} ended at offset {each.from_offset}, but the table"
            f" has it up to {each.next_offset} (exclusive)"
            for each in gone
        ]
        raise TableGapError(
            f"the batch is not written to {table}, because logs were truncated (caused by an"
            f" unclean leader election): {_shown(problems)}. The rows from there on are of records"
            " that the log no longer has, and other records may have their offsets now. Delete"
            f" these rows, and run: {_set_back_command(gone)}"
        )


def _gap(each: OffsetRange, entry: Entry) -> str | None:
    """Return which offsets the table would lack if a range were written; None: it would not."""
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


def _gap_text(
    group_id: str,
    gaps: Sequence[tuple[OffsetRange, Entry, str]],
    state: TableState,
    table: str,
) -> str:
    problem = (
        f"the batch is not written to {table}, because records would be missing there:"
        f" {_shown([text for *_, text in gaps])}."
    )
    unsaved = [
        Place(each.topic, each.partition, entry.next_offset)
        for each, entry, _ in gaps
        if FenceKey(group_id, each.topic_id, each.partition) not in state.entries
    ]
    if unsaved:
        commands = "; then: ".join(_reset_commands(group_id, unsaved))
        return (
            f"{problem} Did a function around write_table swallow an exception, did another member"
            " of the group read them, or was the table dropped? If the table may lack them, only"
            " start the query with a new checkpointLocation. Otherwise stop the group's queries,"
            f" and run: {commands}; then {NEW_CHECKPOINT}"
        )
    # Not the group's committed offset: the log may begin after it, where records were deleted.
    places = [
        (Place(each.topic, each.partition, each.from_offset), entry) for each, entry, _ in gaps
    ]
    ahead = [each for each, entry in places if entry.next_offset < each.offset]
    behind = [each for each, entry in places if each.offset < entry.start_offset]
    ways = ""
    if ahead:
        ways += (
            " If the table may lack them (offsets were reset forward, or retention deleted"
            f" records), accept the gap with: {_set_offsets_command(group_id, ahead)}."
        )
    if behind:
        ways += (
            " To have the earlier records in the table, stop the group's queries, delete all rows"
            f" of these partitions from there on, and run: {_set_offsets_command(group_id, behind)}"
            " --backwards."
        )
    return (
        f"{problem}{ways} Otherwise continue where the table ends: stop the group's queries, and"
        f" run: spark-groups reset-offsets {shlex.quote(group_id)} --from-table TABLE --all-topics"
        f" --execute; then {NEW_CHECKPOINT}"
    )


class Place(NamedTuple):
    """An offset of a partition, by the topic's name."""

    topic: str
    partition: int
    offset: int


def _set_back_command(skips: Sequence[Skip]) -> str:
    """Return the command after which skipped offsets are written again; their rows go first."""
    places = [Place(each.topic, each.key.partition, each.from_offset) for each in skips]
    return f"{_set_offsets_command(skips[0].key.group_id, places)} --backwards"


def _set_offsets_command(group_id: str, places: Sequence[Place]) -> str:
    """Return the command that sets a table's entries."""
    given = " ".join(
        f"--topic {topic}:{partition}={offset}"
        for topic, partition, offset in places[:_SET_AT_ONCE_MAX]
    )
    return f"spark-groups table set-offsets {shlex.quote(group_id)} --table TABLE {given} --execute"


def _reset_commands(group_id: str, places: Iterable[Place]) -> Iterator[str]:
    """Yield the commands that set a group's offsets, one for each topic and offset."""
    partitions: dict[tuple[str, int], list[str]] = {}
    for each in places:
        partitions.setdefault((each.topic, each.offset), []).append(str(each.partition))
    for (topic, offset), found in sorted(partitions.items()):
        yield (
            f"spark-groups reset-offsets {shlex.quote(group_id)} --topic {topic}:{','.join(found)}"
            f" --to-offset {offset} --execute"
        )


def check_not_restored(group_id: str, state: TableState, *, table: str) -> None:
    """Refuse a table that was restored to a version before the group's last commit, or replaced.

    This removed rows, but may have kept the entries that count them.

    Args:
        group_id: The group.
        state: The table's fence.
        table: The name of the table in an error.

    Raises:
        TableRestoredError: The table was restored or replaced.
    """
    if state.replaced is not None:
        before, now = state.replaced
        group = shlex.quote(group_id)
        raise TableRestoredError(
            f"another table is in the place of {table}: its id is {now}, and the group {group_id!r}"
            f" has written the one with the id {before}, whose fence the log still has. Stop the"
            " group's queries. If the table has the rows of the old one, run: spark-groups table"
            f" set-offsets {group} --table TABLE --to-current --execute. To begin again, run:"
            f" spark-groups table repair TABLE --group {group} --execute; then: spark-groups"
            f" reset-offsets {group} --from-table TABLE --all-topics --execute; then"
            f" {NEW_CHECKPOINT}"
        )
    recorded, restored_to = state.recorded_version, state.restored_to
    if recorded is None or restored_to is None or restored_to >= recorded:
        return
    raise TableRestoredError(
        f"{table} was restored to its version {restored_to}, but the group {group_id!r} last wrote"
        f" version {recorded}: the table lacks rows that its fence counts. Stop the group's"
        " queries, and set the fence to the remaining rows with: spark-groups table"
        f" repair TABLE --group {shlex.quote(group_id)} --execute"
    )


def other_groups(group_id: str, topics: Mapping[TopicId, str], state: TableState) -> list[str]:
    """Return warnings of other groups that write topics of a batch to the same table.

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


def of_topics(
    entries: Mapping[FenceKey, Entry], topic_ids: Collection[TopicId] | None
) -> dict[FenceKey, Entry]:
    """Return the entries of some topics.

    Args:
        entries: Those of a table.
        topic_ids: The topics; None: all.
    """
    return {
        key: entry
        for key, entry in entries.items()
        if topic_ids is None or key.topic_id in topic_ids
    }


def holds(changes: Iterable[EntryChange], entry_of: Callable[[FenceKey], Entry | None]) -> bool:
    """Return whether a commit finds the entries that it expects; called in its transaction.

    Args:
        changes: The changes of the commit.
        entry_of: Returns the current entry of a key; None: there is none.
    """
    return all(entry_of(each.key) == each.expected for each in changes)
