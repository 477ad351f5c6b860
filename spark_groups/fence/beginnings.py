"""Where a table begins the partitions of a group that it does not have yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState
from spark_groups.group.ledger.commit_metadata import partition_count_in
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import OffsetRange, PlanTopic, TopicId

LOOK_AGAIN_S: Final = 10.0
"""The least time between looks at committed offsets for partitions that no member has begun,
in seconds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query.

    Args:
        group_id: The query's group.
        batch_id: Spark's number for the batch.
        ranges: The planned ranges.
        topics: The topics that the query reads, with their partition counts when the group began.
        before: The ranges of the query's previous batch, which is in Spark's log as done.
        run_id: Spark's id of the run of the query.
    """

    group_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    topics: tuple[PlanTopic, ...] = ()
    before: tuple[OffsetRange, ...] = ()
    run_id: str = ""

    def topic_names(self) -> dict[TopicId, str]:
        """Return the names of the topics by id."""
        read = {topic.topic_id: topic.name for topic in self.topics}
        return read | {offset_range.topic_id: offset_range.topic for offset_range in self.ranges}


def beginnings(
    batch: Batch,
    committed: Mapping[FenceKey, OffsetAndMetadata],
    kept: Sequence[OffsetRange],
    state: TableState,
) -> dict[FenceKey, Entry]:
    """Return the entries with which a table begins the partitions that it does not have.

    A batch changes Kafka's committed offset only after it has changed the table, so a partition
    without an entry begins where the group stands. What moves the group on without a change of the
    table, such as a plain consumer or an exception that a function around `write_table` swallows,
    then leaves a gap, which is refused.

    Args:
        batch: The batch.
        committed: The group's committed offsets.
        kept: The ranges of the batch, without records that were deleted before they were read.
        state: The table's fence.
    """
    group_id, topic_ids = batch.group_id, batch.topic_names()
    places: dict[FenceKey, list[int]] = {}
    for each in (*batch.ranges, *batch.before):
        if len(each) and each.topic_id in topic_ids:
            key = FenceKey(group_id, each.topic_id, each.partition)
            places.setdefault(key, []).append(each.from_offset)
    had = {key.topic_id for key in state.entries if key.group_id == group_id}
    for key, found in committed.items():
        if key.group_id == group_id and key.topic_id in topic_ids:
            # A query begins a partition that was added later at its beginning: another client, or
            # another tool, was here first.
            is_taken = key.topic_id in had and partition_count_in(found.metadata) is None
            places.setdefault(key, []).append(0 if is_taken else found.committed_offset)
    starts = {key: min(offsets) for key, offsets in places.items() if state.entry(key) is None}
    for planned, left in zip(batch.ranges, kept, strict=False):
        key = FenceKey(group_id, planned.topic_id, planned.partition)
        if starts.get(key) == planned.from_offset:
            starts[key] = left.from_offset
    return {key: Entry(start, start) for key, start in starts.items()}


@dataclass(slots=True)
class UnsavedEntries:
    """The entries of partitions that a table does not have yet, during one run of a query.

    A table that does not exist cannot keep them, so this object does, until a batch creates it.
    """

    _run_id: str | None = None
    _unsaved: dict[FenceKey, Entry] = field(default_factory=dict)
    _look_at_s: float = 0.0

    def read(self, batch: Batch, state: TableState) -> TableState:
        """Return a table's fence with the entries that it cannot have yet.

        Args:
            batch: The batch to compare.
            state: The table's fence.
        """
        if self._run_id != batch.run_id:
            self._run_id, self._unsaved, self._look_at_s = batch.run_id, {}, 0.0
        self._unsaved = {
            key: entry for key, entry in self._unsaved.items() if key not in state.entries
        }
        topics = batch.topic_names()
        unsaved = {key: each for key, each in self._unsaved.items() if key.topic_id in topics}
        return replace(state, unsaved=unsaved)

    def look(self, batch: Batch, state: TableState, now_s: float) -> frozenset[FenceKey] | None:
        """Return the partitions whose committed offset must be known now; None: no look is due.

        Args:
            batch: The batch to compare.
            state: What `read` returned.
            now_s: The time, in seconds.
        """
        lacking = frozenset(
            key
            for offset_range in batch.ranges
            if len(offset_range)
            and state.entry(
                key := FenceKey(batch.group_id, offset_range.topic_id, offset_range.partition)
            )
            is None
        )
        idle = (
            FenceKey(batch.group_id, topic.topic_id, index)
            for topic in batch.topics
            for index in range(topic.known_count or 0)
        )
        is_first = bool(batch.topic_names()) and not self._look_at_s
        if not (lacking or is_first) and (now_s < self._look_at_s or all(map(state.entry, idle))):
            return None
        self._look_at_s = now_s + LOOK_AGAIN_S
        return lacking

    def note(self, changes: Iterable[EntryChange]) -> None:
        """Note entries that the table may not have kept.

        Args:
            changes: The changes of the commit.
        """
        self._unsaved |= {each.key: each.entry for each in changes if each.expected is None}
