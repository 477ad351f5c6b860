"""The fence of a table: its entries, and when a commit may change them.

For each (group, topic id, partition) a table stores an entry of two offsets: the one at which the
group began, and the next offset. Each record between the two is in the table once. An entry begins
with the first comparison, before any row (`beginnings`), and changes in the transaction that adds
the rows. `compare` compares a batch with the entries before it is written, and the table refuses
the commit if an entry has changed since. Adapters of `spark/tables/` read and write the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_groups.types import TopicId


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

    @property
    def is_empty(self) -> bool:
        """Whether it has no offset: the group has only begun the partition, or a gap was accepted.

        Before an accepted gap the table may have rows.
        """
        return self.start_offset == self.next_offset


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
