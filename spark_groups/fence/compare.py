"""The comparison of a batch with the fence of a table: what to write, to skip and to refuse."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_groups.errors import TableGapError, TableRestoredError
from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState
from spark_groups.group.ledger.commit_metadata import is_truncated
from spark_groups.group.member.events import listed
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import OffsetRange, TopicId

NEW_CHECKPOINT: Final = (
    "start the queries with a new checkpointLocation, because Spark first repeats the last batch of"
    " an old one, at its old offsets"
)
"""The end of each recipe that sets offsets back."""
_OWN_QUERY: Final = (
    "Are the checkpointLocation and the group those of another query, with another sink? Then, but"
    " only if the table has no rows of this group, give this query its own checkpointLocation and"
    " kafka.group.id: a new group begins at startingOffsets."
)
"""What to do if a table has nothing of a query that has finished batches."""
_SHOWN_MAX: Final = 5
_SET_AT_ONCE_MAX: Final = 50


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
    for offset_range in sorted(ranges):
        key = FenceKey(group_id, offset_range.topic_id, offset_range.partition)
        if key in seen:
            raise ValueError(f"{offset_range.topic_partition} appears twice in one batch")
        seen.add(key)
        if not len(offset_range):
            continue
        entry = state.entry(key)
        gap = None if entry is None else _gap(offset_range, entry)
        if entry is not None and gap is not None:
            gaps.append((offset_range, entry, gap))
            continue
        from_offset = offset_range.from_offset if entry is None else entry.next_offset
        if from_offset > offset_range.from_offset:
            until_offset = min(from_offset, offset_range.until_offset)
            skips.append(
                Skip(key, offset_range.topic, offset_range.from_offset, until_offset, from_offset)
            )
        if from_offset < offset_range.until_offset:
            start_offset = from_offset if entry is None else entry.start_offset
            write.append(_cut(offset_range, from_offset))
            entry = Entry(start_offset, offset_range.until_offset)
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


def kept_of(planned: OffsetRange, log_start: int | None) -> OffsetRange:
    """Return a range without records that were deleted.

    Args:
        planned: A range of a batch.
        log_start: The first offset of the log; None: the topic was deleted.
    """
    if log_start is None:
        # A deleted topic has no record, so its range becomes empty.
        return _cut(planned, planned.until_offset)
    return _cut(planned, max(planned.from_offset, min(log_start, planned.until_offset)))


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
    gone = [skip for skip in skips if ends.get(skip.key) == skip.from_offset]
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
        has = (
            f"its entry is empty at offset {entry.next_offset} (the group began there, or a gap"
            " was accepted)"
            if entry.is_empty
            else f"the table has it up to offset {entry.next_offset} (exclusive)"
        )
        return (
            f"{each.topic_partition}: {has}, but the batch begins at {each.from_offset}:"
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
    return listed(partitions, most=_SHOWN_MAX, joint="; ")


def _gap_text(
    group_id: str, gaps: Sequence[tuple[OffsetRange, Entry, str]], state: TableState, table: str
) -> str:
    unsaved = [
        (gap, entry, text)
        for gap, entry, text in gaps
        if FenceKey(group_id, gap.topic_id, gap.partition) not in state.entries
        and entry.next_offset < gap.from_offset
    ]
    if unsaved and not state.is_there:
        return _absent_text(group_id, unsaved, table)
    problem = (
        f"the batch is not written to {table}, because records would be missing there:"
        f" {_shown([text for *_, text in gaps])}."
    )
    if all(entry.is_empty for key, entry in state.entries.items() if key.group_id == group_id):
        problem += _strange_text(group_id, gaps, state)
    # Not the group's committed offset: the log may begin after it, where records were deleted.
    places = [(Place(gap.topic, gap.partition, gap.from_offset), entry) for gap, entry, _ in gaps]
    ahead = [place for place, entry in places if entry.next_offset < place.offset]
    behind = [place for place, entry in places if place.offset < entry.start_offset]
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
        f"{problem}{ways} Otherwise, as after a backup of the table was restored, continue"
        " where the table ends: stop the group's queries, and run: spark-groups reset-offsets"
        f" {shlex.quote(group_id)} --from-table TABLE --all-topics --execute; then {NEW_CHECKPOINT}"
    )


def _absent_text(group_id: str, gaps: Sequence[tuple[OffsetRange, Entry, str]], table: str) -> str:
    """Return the error of a table that does not exist, although batches were finished before."""
    group = shlex.quote(group_id)
    lacking = [
        f"{gap.topic_partition} [{entry.next_offset}, {gap.from_offset}):"
        f" {gap.from_offset - entry.next_offset} offsets would be missing"
        for gap, entry, _ in gaps
    ]
    places = [Place(gap.topic, gap.partition, entry.next_offset) for gap, entry, _ in gaps]
    commands = "; then: ".join(_reset_commands(group_id, places))
    return (
        f"the batch is not written to {table}: this table does not exist, so it has nothing of this"
        f" query, but the query's checkpoint or the group {group_id!r} has finished earlier"
        f" records: {_shown(lacking)}. {_OWN_QUERY} If the table may lack them, only start the"
        " query with a new checkpointLocation. Otherwise stop the group's queries. If the table was"
        f" dropped, run: spark-groups reset-offsets {group} --all-topics --to-earliest --execute."
        " If a function around write_table swallowed an exception, or another member of the group"
        f" read them, run: {commands}. Then {NEW_CHECKPOINT}"
    )


def _strange_text(
    group_id: str, gaps: Sequence[tuple[OffsetRange, Entry, str]], state: TableState
) -> str:
    """Return what may be wrong if all entries of the group are empty."""
    topics = {gap.topic_id for gap, *_ in gaps}
    others = sorted(
        {
            key.group_id
            for key, entry in state.entries.items()
            if key.topic_id in topics and key.group_id != group_id and not entry.is_empty
        }
    )
    if not others:
        return f" {_OWN_QUERY}"
    return (
        f" {_OWN_QUERY} The table has these topics of {', '.join(map(repr, others[:_SHOWN_MAX]))}:"
        " if the query was in that group before, set kafka.group.id back, and start it with a new"
        " checkpointLocation."
    )


class Place(NamedTuple):
    """An offset of a partition, by the topic's name."""

    topic: str
    partition: int
    offset: int


def _set_back_command(skips: Sequence[Skip]) -> str:
    """Return the command after which skipped offsets are written again; their rows go first."""
    places = [Place(skip.topic, skip.key.partition, skip.from_offset) for skip in skips]
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
    for place in places:
        partitions.setdefault((place.topic, place.offset), []).append(str(place.partition))
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

    A group whose entries of a topic are all empty has only begun it, so it is left out, although
    an accepted gap in each of its partitions would hide its rows.

    Args:
        group_id: The group whose batch it is.
        topics: The names of the batch's topics.
        state: The table's fence.

    Returns:
        One sentence for each pair of a topic and another group.
    """
    pairs = {
        (topics[key.topic_id], key.group_id)
        for key, entry in state.entries.items()
        if key.topic_id in topics and key.group_id != group_id and not entry.is_empty
    }
    return [
        f"the group {other!r} has written the topic {topic} to this table, too: each record that"
        f" both groups read is in the table twice"
        for topic, other in sorted(pairs)
    ]
