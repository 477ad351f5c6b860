"""Uniform assignment where all members subscribe to the same topics.

Members go one after the other and keep what they have up to their quota; what is free then fills
the members that have less, in the same order (UniformHomogeneousAssignmentBuilder).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from spark_groups.lab.assignors.assignor import AssignorError, GroupSpec
from spark_groups.lab.assignors.java_order import (
    copied_table,
    grown_table,
    hash_order,
    integer_hash,
    uuid_hash,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition


def assign(group: GroupSpec, *, stable_extras: bool) -> dict[str, Assignment]:
    """Return the target of every member.

    Args:
        group: The group; at least one member.
        stable_extras: A member that does not have the partition too many leaves it to one that does
            (KAFKA-18688).

    Raises:
        AssignorError: A subscribed topic is not known.
    """
    subscribed = next(iter(group.members.values())).subscribed
    if not subscribed <= group.partition_counts.keys():
        raise AssignorError("members are subscribed to a topic which does not exist")
    topics = {each: count for each, count in group.partition_counts.items() if each in subscribed}
    meant = group.meant
    if meant is None:
        meant = frozenset(key for each in group.members.values() for key in each.target.partitions)
    free = [
        key
        for topic_id, count in topics.items()
        for partition in range(count)
        if (key := TopicIdPartition(topic_id, partition)) not in meant
    ]
    quota, extras = divmod(sum(topics.values()), len(group.members))
    kept: dict[str, list[TopicIdPartition]] = {}
    missing: dict[str, int] = {}
    for position, (member_id, member) in enumerate(group.members.items()):
        has_extra = extras > 0
        room = quota + has_extra
        had = [each for each in member.target.partitions if each.topic_id in topics]
        if len(had) > room:
            had = _in_order(had, topics, grown_table(_topics_of(member.target)))
        kept[member_id] = had[:room]
        free += had[room:]
        room -= len(kept[member_id])
        if stable_extras and room and has_extra and len(group.members) - position > extras:
            room -= 1
            has_extra = False
        missing[member_id] = room
        extras -= has_extra
    return _filled(kept, missing, iter(free))


def _filled(
    kept: Mapping[str, list[TopicIdPartition]],
    missing: Mapping[str, int],
    free: Iterator[TopicIdPartition],
) -> dict[str, Assignment]:
    filled = {
        member_id: Assignment(frozenset((*has, *islice(free, missing[member_id]))))
        for member_id, has in kept.items()
    }
    if next(free, None) is not None:
        raise AssignorError("partitions were left unassigned")
    return filled


def _topics_of(target: Assignment) -> int:
    return len({each.topic_id for each in target.partitions})


def _in_order(
    had: list[TopicIdPartition], topics: Mapping[TopicId, int], table: int
) -> list[TopicIdPartition]:
    """Return what a member had in the order in which Java goes through it.

    It is a HashMap from topic to HashSet; in a bucket the order is that of the topics and of the
    partitions, which is how they are given out.
    """
    by_topic: dict[TopicId, list[int]] = {}
    for each in sorted(had):
        by_topic.setdefault(each.topic_id, []).append(each.partition)
    given = [each for each in topics if each in by_topic][::-1]
    return [
        TopicIdPartition(topic_id, partition)
        for topic_id in hash_order(given, uuid_hash, table)
        for partition in hash_order(
            by_topic[topic_id], integer_hash, copied_table(len(by_topic[topic_id]))
        )
    ]
