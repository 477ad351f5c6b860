"""The groups of one partition in memory: as they are, and as far as they are replicated.

There is one copy. What a write replaced is kept until it is replicated: it is what a failed append
puts back, and what a reader sees meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.records import GroupMetadataKey, Record


@dataclass(slots=True)
class Memory:
    """The groups of one partition.

    Args:
        first_epoch: The epochs of a group that has no records of them.
        groups: Those that have records, by id, with what is not replicated yet.
        bare: Those that are there without a record: they had offsets and no members, and were not
            deleted when the last offset was.
    """

    first_epoch: int = 0
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    bare: set[str] = field(default_factory=set)
    _bare_replicated: frozenset[str] = frozenset()
    _replaced: list[Record] = field(default_factory=list)

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group, an empty one if it has no records."""
        return self.groups.get(group_id) or self._new(group_id, is_bare=group_id in self.bare)

    def make(self, group_id: str) -> None:
        """Let a group be there although nothing is appended; readers see it with the next write."""
        if group_id not in self.groups:
            self.bare.add(group_id)

    def write(self, records: Iterable[Record]) -> None:
        """Apply records that are not replicated yet."""
        for record in records:
            before = self.group(record.key.group_id).value_of(record.key)
            self._replaced.append(Record(record.key, before))
            self.load(record)

    def load(self, record: Record) -> None:
        """Apply a record that is never taken back."""
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new(group_id)
        group.apply(record)
        if group.is_empty_of_records:
            del self.groups[group_id]
            self.bare.add(group_id)
        if isinstance(record.key, GroupMetadataKey) and record.value is None:
            self.bare.discard(group_id)

    def keep(self) -> None:
        """Take everything as replicated."""
        self._bare_replicated = frozenset(self.bare)
        self._replaced.clear()

    def take_back(self) -> None:
        """Put back what was there before everything that is not replicated."""
        for record in reversed(self._replaced):
            self.load(record)
            # What was compared with the topics is gone, too.
            self.group(record.key.group_id).topics_version = -1
        self.bare = set(self._bare_replicated)
        self._replaced.clear()

    def replicated(self, group_id: str) -> ConsumerGroup:
        """Return a group as far as it is replicated."""
        before = [each for each in reversed(self._replaced) if each.key.group_id == group_id]
        if not before and group_id not in self.bare:
            return self.group(group_id)
        view = self._new(group_id, is_bare=group_id in self._bare_replicated)
        for record in (*self.group(group_id).records(), *before):
            view.apply(record)
        return view

    def all_replicated(self) -> Iterator[ConsumerGroup]:
        """Yield every group that is there as far as it is replicated."""
        changing = (each.key.group_id for each in self._replaced)
        for group_id in dict.fromkeys((*self.groups, *changing, *sorted(self._bare_replicated))):
            group = self.replicated(group_id)
            if group.exists:
                yield group

    def _new(self, group_id: str, *, is_bare: bool = False) -> ConsumerGroup:
        return ConsumerGroup(group_id, self.first_epoch, is_bare)
