"""A table that the queries of a group write to: its rows and its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from group_lab.sim.facts import Fact, GapAccepted, SetBack, Stored
from spark_groups.errors import TableChangedError
from spark_groups.fence.entries import Entry, EntryChange, FenceKey, TableState, holds
from spark_groups.types import TopicId, TopicIdPartition

Rows = Mapping[TopicIdPartition, Mapping[int, int]]
"""The id of a record by its offset, by partition."""


class Table:
    """A table with versions, or a database; it may not exist at first."""

    def __init__(
        self, publish: Callable[[Fact], None], *, has_versions: bool, is_there: bool
    ) -> None:
        self.is_there = is_there
        self.entries: dict[FenceKey, Entry] = {}
        self.rows: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        """Offset and record of each row."""
        self._publish = publish
        self._has_versions = has_versions
        self._version = 0

    def read(self, topic_ids: frozenset[TopicId]) -> TableState:
        """Return the fence."""
        entries = {key: entry for key, entry in self.entries.items() if key.topic_id in topic_ids}
        version = self._version if self._has_versions else None
        return TableState(version=version, is_there=self.is_there, entries=entries)

    def commit(self, rows: Rows, changes: Iterable[EntryChange], state: TableState) -> None:
        """Add rows and change entries at once.

        Raises:
            TableChangedError: An entry has changed, or the version.
        """
        changes = tuple(changes)
        if self.is_there and not state.is_there:
            raise TableChangedError("another writer has created the table")
        if self._has_versions and state.version != self._version:
            raise TableChangedError("another writer has committed")
        if not holds(changes, self.entries.get):
            raise TableChangedError("an entry has changed")
        self.is_there = True
        self._version += 1
        self.entries |= {each.key: each.entry for each in changes}
        for key, found in rows.items():
            self.rows.setdefault(key, []).extend(found.items())
        self._publish(Stored(changes, rows))

    def accept(self, key: FenceKey, offset: int) -> None:
        """Begin a partition again at an offset, as an operator does; rows from there on go."""
        before = self.entries[key]
        of = TopicIdPartition(key.topic_id, key.partition)
        self._version += 1
        self.entries[key] = Entry(offset, offset)
        if before.next_offset < offset:
            self._publish(GapAccepted(of, before.next_offset, offset))
            return
        self.rows[of] = [row for row in self.rows.get(of, ()) if row[0] < offset]
        self._publish(SetBack(of, offset))
