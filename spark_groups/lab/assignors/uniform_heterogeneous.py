"""Uniform assignment where members subscribe to different topics.

Members keep what they still subscribe to, what is free goes to the least loaded subscriber, and
then partitions move from the most loaded subscriber of a topic to the least loaded one until they
differ by one at most (UniformHeterogeneousAssignmentBuilder).
"""

from __future__ import annotations

from typing import Final

from spark_groups.lab.assignors.assignor import AssignorError, GroupSpec
from spark_groups.lab.assignors.balancer import Balancer
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition

MAX_ITERATION_COUNT: Final = 16
"""Rounds over all topics after which what is left of the imbalance is taken."""

_NOBODY: Final = -1


def assign(group: GroupSpec) -> dict[str, Assignment]:
    """Return the target of every member.

    Raises:
        AssignorError: A subscribed topic is not known.
    """
    return _Builder(group).build()


class _Builder:
    """One run; members are numbered in the order of the group.

    Args:
        group: The group.
    """

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
