"""The range assignor of Kafka 4: contiguous partitions of each topic, whoever had them before."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.assignors.assignor import AssignorError, GroupSpec
from spark_groups.types import Assignment, TopicId, TopicIdPartition


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Cuts every topic into ranges, in one order of members: equal topics are cut alike."""

    @property
    def name(self) -> str:
        return "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member (RangeAssignor).

        Raises:
            AssignorError: A subscribed topic is not known.
        """
        targets: dict[str, list[TopicIdPartition]] = {each: [] for each in group.members}
        for topic_id, member_ids in subscribers(group).items():
            quota, extras = divmod(group.partition_counts[topic_id], len(member_ids))
            start = 0
            for position, member_id in enumerate(member_ids):
                end = start + quota + (position < extras)
                targets[member_id] += [TopicIdPartition(topic_id, n) for n in range(start, end)]
                start = end
        return {each: Assignment(frozenset(target)) for each, target in targets.items()}


def subscribers(group: GroupSpec) -> dict[TopicId, list[str]]:
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
