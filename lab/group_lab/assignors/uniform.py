"""The uniform assignor, Kafka's default: all members get the same number of partitions.

If all members subscribe to the same topics, each keeps its partitions up to its quota, one member
after the other; free partitions then fill the others in the same order
(UniformHomogeneousAssignmentBuilder).

Otherwise members keep the partitions they still subscribe to, free ones go to the least loaded
subscriber, and then partitions move from the most to the least loaded subscriber of a topic until
they differ by at most one (UniformHeterogeneousAssignmentBuilder).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Final

from group_lab.assignors.assignor import AssignorError, GroupSpec
from group_lab.assignors.java_order import (
    copied_table,
    grown_table,
    hash_order,
    integer_hash,
    uuid_hash,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition


class Balancer:
    """Selects the subscriber of a topic that gets or loses the next partition.

    Subscribers are sorted by load. The least loaded are a range at one end that grows as its level
    rises, the most loaded a range at the other end that grows as its level sinks
    (MemberAssignmentBalancer). The caller is expected to move the partition.

    Args:
        loads: The partition count of each member, by its number; it may change meanwhile.
        members: The numbers of the subscribers, at least one.
    """

    def __init__(self, loads: Sequence[int], members: Sequence[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda member: (loads[member], member))
        self._least_end = 0
        self._least_level = loads[self._members[0]] - 1
        self._least_next = 0
        self._most_start = len(self._members)
        self._most_end = len(self._members)
        self._most_level = loads[self._members[-1]] + 1
        self._most_next = len(self._members) - 1
        self.imbalance = loads[self._members[-1]] - loads[self._members[0]]

    def is_balanced(self) -> bool:
        """True if the levels of the two ranges differ by one at most."""
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        """Return the member that gets the next partition."""
        if self._least_next >= self._least_end:
            self._least_level += 1
            while (
                self._least_end < len(self._members)
                and self._loads[self._members[self._least_end]] == self._least_level
            ):
                self._least_end += 1
            self._least_next = 0
        self._least_next += 1
        return self._members[self._least_next - 1]

    def next_most_loaded(self) -> int | None:
        """Return the member that loses the next partition; None if all have none."""
        if self._most_next < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All members of the range were excluded: continue with the next one.
                self._most_level = self._loads[self._members[self._most_start - 1]]
            else:
                self._most_level -= 1
            while (
                self._most_start > 0
                and self._loads[self._members[self._most_start - 1]] == self._most_level
            ):
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return None
        self._most_next -= 1
        return self._members[self._most_next + 1]

    def exclude_most_loaded(self) -> None:
        """Remove the last result of `next_most_loaded` from the range: it has no partition."""
        last = self._most_end - 1
        members = self._members
        members[self._most_next + 1], members[last] = members[last], members[self._most_next + 1]
        self._most_end = last


MAX_ITERATION_COUNT: Final = 16
"""Maximum number of rounds over all topics."""

_NO_OWNER: Final = -1


def heterogeneous_targets(group: GroupSpec) -> dict[str, Assignment]:
    """Return the target of every member; raise AssignorError for unknown topics."""
    return _Builder(group).build()


class _Builder:
    """One run; members are numbered in the order of the group."""

    def __init__(self, group: GroupSpec) -> None:
        self.group = group
        self.subscribers: dict[TopicId, list[int]] = {}
        self.owners: dict[TopicId, list[int]] = {}
        self.loads = [0] * len(group.members)
        for index, member in enumerate(group.members.values()):
            for topic_id in member.subscribed:
                if topic_id not in group.partition_counts:
                    raise AssignorError("members are subscribed to a topic which does not exist")
                self.subscribers.setdefault(topic_id, []).append(index)
        for topic_id in self.subscribers:
            self.owners[topic_id] = [_NO_OWNER] * group.partition_counts[topic_id]

    def build(self) -> dict[str, Assignment]:
        if not self.subscribers:
            return dict.fromkeys(self.group.members, NO_PARTITIONS)
        self.keep()
        topics = sorted(self.subscribers, key=self.rank)
        for topic_id in topics:
            self.fill(topic_id)
        self.balance([topic for topic in topics if len(self.subscribers[topic]) > 1])
        targets: list[list[TopicIdPartition]] = [[] for _ in self.loads]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                targets[owner].append(TopicIdPartition(topic_id, partition))
        return {
            member_id: Assignment(frozenset(target))
            for member_id, target in zip(self.group.members, targets, strict=True)
        }

    def rank(self, topic_id: TopicId) -> tuple[float, int, int, int]:
        """Order topics by partitions per subscriber, then few subscribers, then id.

        Java compares the two halves of an id as signed numbers.
        """
        subscribers = len(self.subscribers[topic_id])
        high, low = divmod(topic_id.int, 1 << 64)
        sign = 1 << 63
        return (-len(self.owners[topic_id]) / subscribers, subscribers, high ^ sign, low ^ sign)

    def keep(self) -> None:
        for index, member in enumerate(self.group.members.values()):
            for each in member.target.partitions:
                if each.topic_id in member.subscribed:
                    self.owners[each.topic_id][each.partition] = index
                    self.loads[index] += 1

    def fill(self, topic_id: TopicId) -> None:
        owners = self.owners[topic_id]
        if _NO_OWNER not in owners:
            return
        balancer = Balancer(self.loads, self.subscribers[topic_id])
        for partition, owner in enumerate(owners):
            if owner == _NO_OWNER:
                self.give(topic_id, partition, balancer.next_least_loaded())

    def balance(self, topics: list[TopicId]) -> None:
        last_moved = None
        for _ in range(MAX_ITERATION_COUNT):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self.balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def balance_topic(self, topic_id: TopicId) -> int:
        """Move a topic's partitions, the last of each owner first; return how many moved."""
        balancer = Balancer(self.loads, self.subscribers[topic_id])
        if balancer.imbalance <= 1:
            return 0
        has: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            has.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced():
            giver = balancer.next_most_loaded()
            while giver is not None and not has.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.next_most_loaded()
            if giver is None:
                break
            partition = has[giver].pop()
            taker = balancer.next_least_loaded()
            if balancer.is_balanced():
                break
            self.loads[giver] -= 1
            self.give(topic_id, partition, taker)
            moved += 1
        return moved

    def give(self, topic_id: TopicId, partition: int, index: int) -> None:
        self.owners[topic_id][partition] = index
        self.loads[index] += 1


def homogeneous_targets(group: GroupSpec, *, stable_extras: bool) -> dict[str, Assignment]:
    """Return the target of every member; raise AssignorError for unknown topics.

    Args:
        group: A group with at least one member.
        stable_extras: Surplus partitions stay with a member that has one (KAFKA-18688).
    """
    subscribed = next(iter(group.members.values())).subscribed
    if not subscribed <= group.partition_counts.keys():
        raise AssignorError("members are subscribed to a topic which does not exist")
    topics = {each: count for each, count in group.partition_counts.items() if each in subscribed}
    targeted = group.targeted
    if targeted is None:
        targeted = frozenset(
            key for each in group.members.values() for key in each.target.partitions
        )
    free = [
        key
        for topic_id, count in topics.items()
        for partition in range(count)
        if (key := TopicIdPartition(topic_id, partition)) not in targeted
    ]
    quota, extras = divmod(sum(topics.values()), len(group.members))
    kept: dict[str, list[TopicIdPartition]] = {}
    missing: dict[str, int] = {}
    for position, (member_id, member) in enumerate(group.members.items()):
        has_extra = extras > 0
        room = quota + has_extra
        had = [each for each in member.target.partitions if each.topic_id in topics]
        if len(had) > room:
            topic_count = len({each.topic_id for each in member.target.partitions})
            had = _in_order(had, topics, grown_table(topic_count))
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


def _in_order(
    had: list[TopicIdPartition], topics: Mapping[TopicId, int], table: int
) -> list[TopicIdPartition]:
    """Return partitions in Java's order: a HashMap from topic to HashSet.

    Within a bucket the order is that of the assignment, by topic and partition.
    """
    by_topic: dict[TopicId, list[int]] = {}
    for each in sorted(had):
        by_topic.setdefault(each.topic_id, []).append(each.partition)
    given = [topic for topic in topics if topic in by_topic][::-1]
    return [
        TopicIdPartition(topic_id, partition)
        for topic_id in hash_order(given, uuid_hash, table)
        for partition in hash_order(
            by_topic[topic_id], integer_hash, copied_table(len(by_topic[topic_id]))
        )
    ]


@dataclass(frozen=True, slots=True)
class UniformAssignor:
    """Balances partitions over all topics and moves as few as possible.

    Args:
        stable_extras: Surplus partitions stay in place (from 4.0.1 on).
    """

    stable_extras: bool

    @property
    def name(self) -> str:
        return "uniform"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member.

        Raises:
            AssignorError: A topic is unknown, or a member has a partition that its topic lacks. The
                leader of a classic group can assign one, or the topic is another one of that name.
        """
        if not group.members:
            return {}
        counts = group.partition_counts
        for member in group.members.values():
            if any(each.partition >= counts.get(each.topic_id, inf) for each in member.target):
                raise AssignorError("a member has a partition that does not exist")
        if group.is_homogeneous:
            return homogeneous_targets(group, stable_extras=self.stable_extras)
        return heterogeneous_targets(group)
