"""Groups to assign, small and readable, and what came of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cache

from group_lab.assignors.assignor import GroupSpec, MemberSpec
from group_lab.assignors.classic import ClassicAssignor, ClassicMember
from spark_groups.group.member.embedded import NO_GENERATION, Subscription
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicPartition


@cache
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


Partitions = frozenset[TopicPartition]


def partitions(**numbers: Sequence[int]) -> Partitions:
    """Return partitions by topic."""
    return frozenset(TopicPartition(topic, each) for topic, own in numbers.items() for each in own)


def classic_member(*topics: str, instance_id: str | None = None) -> ClassicMember:
    """Return a member of the classic protocol that has had no assignment."""
    return ClassicMember(Subscription(topics=topics), instance_id)


def claiming(
    assignor: ClassicAssignor,
    *topics: str,
    had: Partitions | None,
    generation_id: int = NO_GENERATION,
    instance_id: str | None = None,
) -> ClassicMember:
    """Return a member that reports its last assignment in the assignor's way."""
    subscription = Subscription(
        topics=topics,
        user_data=assignor.user_data(had, generation_id),
        owned_partitions=had or frozenset(),
        generation_id=generation_id,
    )
    return ClassicMember(subscription, instance_id)


def assigned(
    assignor: ClassicAssignor, members: Mapping[str, ClassicMember], **partition_counts: int
) -> dict[str, Partitions]:
    """Return what the leader assigns to every member."""
    found = assignor.assign(members, partition_counts)
    return {member_id: each.partitions for member_id, each in found.items()}
