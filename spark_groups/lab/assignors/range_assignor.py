"""The range assignor, and how Kafka 4 cuts a topic: in ranges, whoever had them before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_groups.lab.assignors.assignor import AssignorError, GroupSpec
from spark_groups.types import Assignment, TopicId, TopicIdPartition

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
