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
from itertools import islice

from spark_groups.lab.assignors.assignor import AssignorError, GroupSpec
from spark_groups.types import Assignment, TopicId, TopicIdPartition


def sticky(
    group: GroupSpec, topic_id: TopicId, member_ids: Sequence[str]
) -> dict[str, Sequence[int]]:
    """Return the kept partitions of members up to their share, plus free ones."""
    count = group.partition_counts[topic_id]
    quota, extras = divmod(count, len(member_ids))
    kept: dict[str, Sequence[int]] = {}
    for member_id in member_ids:
        target = group.members[member_id].target
        had = sorted(each.partition for each in target.partitions if each.topic_id == topic_id)
        room = quota + (extras > 0 and len(had) > quota)
        extras -= room - quota
        kept[member_id] = had[:room]
    taken = {each for partitions in kept.values() for each in partitions}
    free = (each for each in range(count) if each not in taken)
    for member_id, own in kept.items():
        room = quota - len(own)
        if room >= 0 and extras > 0:
            room += 1
            extras -= 1
        kept[member_id] = [*own, *islice(free, max(room, 0))]
    return kept


Cut = Callable[[GroupSpec, TopicId, Sequence[str]], Mapping[str, Sequence[int]]]
"""Splits a topic among its subscribers, which are in the order of the ranges."""


def contiguous(
    group: GroupSpec, topic_id: TopicId, member_ids: Sequence[str]
) -> dict[str, Sequence[int]]:
    """Return the ranges of Kafka 4."""
    return ranges(group.partition_counts[topic_id], member_ids)


def ranges(count: int, member_ids: Sequence[str]) -> dict[str, Sequence[int]]:
    """Return a range of partitions for each member; the first members have one more."""
    quota, extras = divmod(count, len(member_ids))
    cut: dict[str, Sequence[int]] = {}
    start = 0
    for position, member_id in enumerate(member_ids):
        end = start + quota + (position < extras)
        cut[member_id] = range(start, end)
        start = end
    return cut


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Splits every topic among its subscribers; members have one order for all topics."""

    cut: Cut = contiguous

    @property
    def name(self) -> str:
        return "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member; raise AssignorError for unknown topics."""
        targets: dict[str, list[TopicIdPartition]] = {each: [] for each in group.members}
        for topic_id, member_ids in _subscribers(group).items():
            for member_id, partitions in self.cut(group, topic_id, member_ids).items():
                targets[member_id] += [TopicIdPartition(topic_id, each) for each in partitions]
        return {each: Assignment(frozenset(target)) for each, target in targets.items()}


def _subscribers(group: GroupSpec) -> dict[TopicId, list[str]]:
    """Return the subscribers of each topic: static members by instance id, then by member id.

    For a homogeneous group the topics of the first member count for all.
    """
    found: dict[TopicId, list[str]] = {}
    ordered = sorted(group.members, key=lambda each: _rank(group, each))
    for member_id in ordered:
        for topic_id in group.members[ordered[0] if group.is_homogeneous else member_id].subscribed:
            if topic_id not in group.partition_counts:
                raise AssignorError("a member is subscribed to a topic that does not exist")
            found.setdefault(topic_id, []).append(member_id)
    return found


def _rank(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
