"""Groups to assign, small and readable, and what came of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from spark_groups.lab.assignors.assignor import GroupSpec, MemberSpec
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId


def topic_id(name: str) -> TopicId:
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def has(**partitions: Sequence[int]) -> Assignment:
    """Return partitions by the topics' names."""
    return Assignment.of({topic_id(name): each for name, each in partitions.items()})


def member(
    *topics: str, target: Assignment = NO_PARTITIONS, instance_id: str | None = None
) -> MemberSpec:
    """Return a member that subscribes to topics by name."""
    return MemberSpec(frozenset(map(topic_id, topics)), instance_id=instance_id, target=target)


def group(members: Mapping[str, MemberSpec], **partition_counts: int) -> GroupSpec:
    """Return a group; whether it is homogeneous is seen from its members."""
    counts = {topic_id(name): count for name, count in partition_counts.items()}
    is_homogeneous = len({each.subscribed for each in members.values()}) <= 1
    return GroupSpec(members, is_homogeneous, counts)
