"""The range assignor, and how it cuts a topic.

Kafka 4 cuts a topic in ranges, whoever had them before. KIP-848 wants topics co-partitioned, and
the assignment sticky, but does not say how. The reading here: each topic is cut as Kafka 4 cuts it,
but a member keeps what it has of it up to its share, lowest first, and a partition too many stays
with a member that has it; what is free goes upwards to the members in their order. Ranges are
contiguous where nothing was kept, and topics with equal counts that are given out together stay cut
alike.
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
    """Return what members have up to their share, and what was free of the rest."""
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
"""Gives the partitions of a topic to its subscribers, which are in the order of the ranges."""


def contiguous(
    group: GroupSpec, topic_id: TopicId, member_ids: Sequence[str]
) -> dict[str, Sequence[int]]:
    """Return the ranges of Kafka 4: the first members have one more."""
    quota, extras = divmod(group.partition_counts[topic_id], len(member_ids))
    ranges: dict[str, Sequence[int]] = {}
    start = 0
    for position, member_id in enumerate(member_ids):
        end = start + quota + (position < extras)
        ranges[member_id] = range(start, end)
        start = end
    return ranges


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Cuts every topic for its subscribers, in one order of members: equal topics are cut alike.

    Args:
        cut: Cuts one topic.
    """

    cut: Cut = contiguous

    @property
    def name(self) -> str:
        return "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member (RangeAssignor).

        Raises:
            AssignorError: A subscribed topic is not known.
        """
        targets: dict[str, list[TopicIdPartition]] = {each: [] for each in group.members}
        for topic_id, member_ids in _subscribers(group).items():
            for member_id, partitions in self.cut(group, topic_id, member_ids).items():
                targets[member_id] += [TopicIdPartition(topic_id, each) for each in partitions]
        return {each: Assignment(frozenset(target)) for each, target in targets.items()}


def _subscribers(group: GroupSpec) -> dict[TopicId, list[str]]:
    """Return who subscribes to each topic: static members by instance id, then by member id.

    Where all are taken to subscribe alike, the first one's topics are everybody's.

    Raises:
        AssignorError: A subscribed topic is not known.
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
