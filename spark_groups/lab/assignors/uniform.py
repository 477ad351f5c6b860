"""The uniform assignor, Kafka's default: every member has the same number of partitions.

Where all members subscribe to the same topics, they go one after the other and keep what they have
up to their quota; what is free then fills the members that have less, in the same order
(UniformHomogeneousAssignmentBuilder).

Where they subscribe to different topics, members keep what they still subscribe to, what is free
goes to the least loaded subscriber, and then partitions move from the most loaded subscriber of a
topic to the least loaded one until they differ by one at most
(UniformHeterogeneousAssignmentBuilder).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from spark_groups.lab.assignors.assignor import AssignorError, GroupSpec
from spark_groups.lab.assignors.java_order import (
    copied_table,
    grown_table,
    hash_order,
    integer_hash,
    uuid_hash,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition


class Balancer:
    """Says which of a topic's subscribers gets a partition next, and which gives one up.

    Subscribers are sorted by load. Those with the least are a range at one end that grows as its
    level rises, those with the most a range at the other end that grows as its level sinks
    (MemberAssignmentBalancer). It assumes that what it names is given, or taken away.

    Args:
        loads: How many partitions each member has, by its number; it may change meanwhile.
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
        """Return who gets the next partition."""
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
        """Return who gives up a partition next; None if nobody has one to give."""
        if self._most_next < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # Everybody in the range was excluded: go on with whoever is beside it.
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
        """Take whom `next_most_loaded` returned last out of the range: it has nothing to give."""
        last = self._most_end - 1
        members = self._members
        members[self._most_next + 1], members[last] = members[last], members[self._most_next + 1]
        self._most_end = last


MAX_ITERATION_COUNT: Final = 16
"""Rounds over all topics after which what is left of the imbalance is taken."""

_NOBODY: Final = -1


def heterogeneous_targets(group: GroupSpec) -> dict[str, Assignment]:
    """Return the target of every member.

    Raises:
        AssignorError: A subscribed topic is not known.
    """
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
            self.owners[topic_id] = [_NOBODY] * group.partition_counts[topic_id]

    def build(self) -> dict[str, Assignment]:
        """Return the target of every member."""
        if not self.subscribers:
            return dict.fromkeys(self.group.members, NO_PARTITIONS)
        self.keep()
        topics = sorted(self.subscribers, key=self.rank)
        for topic_id in topics:
            self.fill(topic_id)
        self.balance([each for each in topics if len(self.subscribers[each]) > 1])
        targets: list[list[TopicIdPartition]] = [[] for _ in self.loads]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                targets[owner].append(TopicIdPartition(topic_id, partition))
        return {
            member_id: Assignment(frozenset(target))
            for member_id, target in zip(self.group.members, targets, strict=True)
        }

    def rank(self, topic_id: TopicId) -> tuple[float, int, int, int]:
        """Order topics: many partitions for a subscriber first, then few subscribers, then by id.

        Java compares the two halves of an id as signed numbers.
        """
        subscribers = len(self.subscribers[topic_id])
        high, low = divmod(topic_id.int, 1 << 64)
        sign = 1 << 63
        return (-len(self.owners[topic_id]) / subscribers, subscribers, high ^ sign, low ^ sign)

    def keep(self) -> None:
        """Leave every member what it has and still subscribes to."""
        for index, member in enumerate(self.group.members.values()):
            for each in member.target.partitions:
                if each.topic_id in member.subscribed:
                    self.owners[each.topic_id][each.partition] = index
                    self.loads[index] += 1

    def fill(self, topic_id: TopicId) -> None:
        """Give the free partitions of a topic to its least loaded subscribers."""
        owners = self.owners[topic_id]
        if _NOBODY not in owners:
            return
        balancer = Balancer(self.loads, self.subscribers[topic_id])
        for partition, owner in enumerate(owners):
            if owner == _NOBODY:
                self.give(topic_id, partition, balancer.next_least_loaded())

    def balance(self, topics: list[TopicId]) -> None:
        """Go round the topics until a whole round moved nothing, or long enough."""
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
        """Make a member the owner of a partition."""
        self.owners[topic_id][partition] = index
        self.loads[index] += 1


def homogeneous_targets(group: GroupSpec, *, stable_extras: bool) -> dict[str, Assignment]:
    """Return the target of every member.

    Args:
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


@dataclass(frozen=True, slots=True)
class UniformAssignor:
    """Balances partitions over all topics, and leaves them where they are as far as it can.

    Args:
        stable_extras: The partition too many stays where it is (from 4.0.1 on).
    """

    stable_extras: bool

    @property
    def name(self) -> str:
        return "uniform"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member.

        Raises:
            AssignorError: A subscribed topic is not known.
        """
        if not group.members:
            return {}
        if group.is_homogeneous:
            return homogeneous_targets(group, stable_extras=self.stable_extras)
        return heterogeneous_targets(group)
