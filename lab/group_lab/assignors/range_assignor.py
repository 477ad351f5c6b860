"""The range assignor.

Kafka 4 assigns contiguous ranges regardless of previous targets. KIP-848 wants topics
co-partitioned and assignments sticky, but does not specify how. In this reading each topic has the
shares of Kafka 4, but a member keeps its partitions up to its share, lowest first; a surplus
partition stays with a member that has it; free partitions go to the members in order, ascending.
Ranges are contiguous where no partition was kept, and topics with equal counts assigned together
stay co-partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from group_lab.assignors.assignor import AssignorError, GroupSpec
from spark_groups.types import Assignment, TopicId, TopicIdPartition

Had = Mapping[str, Sequence[int]]
"""The partitions of a topic in the targets of the members that have any, ascending."""


def sticky(count: int, member_ids: Sequence[str], had: Had) -> dict[str, Sequence[int]]:
    """Return the kept partitions of members up to their share, plus free ones."""
    quota, extras = divmod(count, len(member_ids))
    kept: dict[str, Sequence[int]] = {}
    for member_id in member_ids:
        if member_id in had:
            own = had[member_id]
            room = quota + (extras > 0 and len(own) > quota)
            extras -= room - quota
            kept[member_id] = own[:room]
    taken = {partition for partitions in kept.values() for partition in partitions}
    free = [each for each in range(count) if each not in taken]
    given = 0
    for member_id in member_ids:
        if given == len(free):
            break
        own = kept.get(member_id, ())
        room = quota - len(own)
        if room >= 0 and extras > 0:
            room += 1
            extras -= 1
        if room > 0:
            kept[member_id] = [*own, *free[given : given + room]]
            given += room
    return kept


def contiguous(count: int, member_ids: Sequence[str], _had: Had) -> dict[str, Sequence[int]]:
    """Return the ranges of Kafka 4."""
    return ranges(count, member_ids)


Cut = Callable[[int, Sequence[str], Had], Mapping[str, Sequence[int]]]
"""Splits the partitions of a topic among its subscribers, which are in the order of the ranges."""


def ranges(count: int, member_ids: Sequence[str]) -> dict[str, Sequence[int]]:
    """Return a range of partitions for each member that gets any; the first have one more."""
    quota, extras = divmod(count, len(member_ids))
    cut: dict[str, Sequence[int]] = {}
    start = 0
    for position, member_id in enumerate(member_ids[:count]):
        end = start + quota + (position < extras)
        cut[member_id] = range(start, end)
        start = end
    return cut


def static_first(instance_ids: Mapping[str, str | None]) -> list[str]:
    """Return member ids: static members first by instance id, then the others by member id.

    Args:
        instance_ids: By member id; None for members that are not static.
    """

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = instance_ids[member_id]
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(instance_ids, key=rank)


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Splits every topic among its subscribers; members have one order for all topics."""

    cut: Cut = contiguous

    @property
    def name(self) -> str:
        return "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member; raise AssignorError for unknown topics."""
        targets: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in group.members}
        had = _had(group) if self.cut is sticky else {}
        for topic_id, member_ids in _subscribers(group).items():
            count = group.partition_counts[topic_id]
            cut = self.cut(count, member_ids, had.get(topic_id, {}))
            for member_id, partitions in cut.items():
                targets[member_id] += [
                    TopicIdPartition(topic_id, partition) for partition in partitions
                ]
        return {each: Assignment(frozenset(target)) for each, target in targets.items()}


def _had(group: GroupSpec) -> dict[TopicId, dict[str, list[int]]]:
    """Return the targets of members by topic."""
    found: dict[TopicId, dict[str, list[int]]] = {}
    for member_id, member in group.members.items():
        for topic_id, partition in sorted(member.target.partitions):
            found.setdefault(topic_id, {}).setdefault(member_id, []).append(partition)
    return found


def _subscribers(group: GroupSpec) -> dict[TopicId, list[str]]:
    """Return the subscribers of each topic, static members first.

    For a homogeneous group the topics of the first member count for all.
    """
    found: dict[TopicId, list[str]] = {}
    ordered = static_first(
        {member_id: known.instance_id for member_id, known in group.members.items()}
    )
    for member_id in ordered:
        for topic_id in group.members[ordered[0] if group.is_homogeneous else member_id].subscribed:
            if topic_id not in group.partition_counts:
                raise AssignorError("a member is subscribed to a topic that does not exist")
            found.setdefault(topic_id, []).append(member_id)
    return found
