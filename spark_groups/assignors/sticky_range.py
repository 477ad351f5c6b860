"""The range assignor as KIP-848 has it: it co-partitions topics, and it is sticky.

The KIP does not say how. The reading here: each topic is cut as Kafka 4 cuts it, but a member keeps
what it has of it up to its share, lowest first, and a partition too many stays with a member that
has it; what is free goes upwards to the members in their order. Ranges are contiguous where nothing
was kept, and topics with equal counts that are given out together stay cut alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from spark_groups.assignors.assignor import GroupSpec
from spark_groups.assignors.range_assignor import subscribers
from spark_groups.types import Assignment, TopicId, TopicIdPartition


@dataclass(frozen=True, slots=True)
class StickyRangeAssignor:
    """Cuts every topic into ranges and leaves partitions where they are as far as it can."""

    @property
    def name(self) -> str:
        return "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member.

        Raises:
            AssignorError: A subscribed topic is not known.
        """
        targets: dict[str, list[TopicIdPartition]] = {each: [] for each in group.members}
        for topic_id, member_ids in subscribers(group).items():
            for member_id, partitions in _cut(group, topic_id, member_ids).items():
                targets[member_id] += [TopicIdPartition(topic_id, each) for each in partitions]
        return {each: Assignment(frozenset(target)) for each, target in targets.items()}


def _cut(group: GroupSpec, topic_id: TopicId, member_ids: list[str]) -> dict[str, list[int]]:
    count = group.partition_counts[topic_id]
    quota, extras = divmod(count, len(member_ids))
    kept: dict[str, list[int]] = {}
    for member_id in member_ids:
        target = group.members[member_id].target
        had = sorted(each.partition for each in target.partitions if each.topic_id == topic_id)
        room = quota + (extras > 0 and len(had) > quota)
        extras -= room - quota
        kept[member_id] = had[:room]
    taken = {each for partitions in kept.values() for each in partitions}
    free = (each for each in range(count) if each not in taken)
    for member_id, had in kept.items():
        room = quota - len(had)
        if room >= 0 and extras > 0:
            room += 1
            extras -= 1
        kept[member_id] = [*had, *islice(free, max(room, 0))]
    return kept
