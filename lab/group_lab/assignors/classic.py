"""The assignors of the classic protocol: the leader of a group computes them.

Range and round-robin regard only subscriptions. The results are those of Kafka's Java client if
brokers have no racks (`broker.rack`): a leader then ignores the racks of members too.

Source: ConsumerPartitionAssignor, RangeAssignor, RoundRobinAssignor (org.apache.kafka.clients).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import cycle
from typing import Protocol

from group_lab.assignors.range_assignor import ranges, static_first
from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription
from spark_groups.types import TopicPartition


class RebalanceProtocol(IntEnum):
    """What a member does with its partitions before it joins a rebalance; the greater is better."""

    EAGER = 0
    """It revokes all of them."""
    COOPERATIVE = 1
    """It keeps them, and revokes afterwards what it was not assigned again."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member in the input of a leader: JoinGroup gives it to the leader only.

    Args:
        subscription: Its metadata for the selected assignor.
        group_instance_id: Static members have one.
    """

    subscription: Subscription
    group_instance_id: str | None = None


class ClassicAssignor(Protocol):
    """An assignor of the classic protocol; it has no state."""

    @property
    def name(self) -> str:
        """Its name in JoinGroup."""

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        """The rebalance protocols that it can be used with."""

    def user_data(
        self, assigned: Iterable[TopicPartition] | None, generation_id: int
    ) -> bytes | None:
        """Return the user data that a member sends in its subscription.

        Args:
            assigned: Its last assignment; None if it has had none.
            generation_id: The generation of this assignment, NO_GENERATION for none.
        """

    def assign(
        self, members: Mapping[str, ClassicMember], partition_counts: Mapping[str, int]
    ) -> dict[str, EmbeddedAssignment]:
        """Return the assignment of every member.

        Args:
            members: By member id.
            partition_counts: By topic, as the leader knows them; other topics are left out.
        """


def rebalance_protocol(assignors: Sequence[ClassicAssignor]) -> RebalanceProtocol:
    """Return the rebalance protocol of a consumer: the best that all its assignors support.

    Raises:
        ValueError: There is none.
    """
    common = set.intersection(*(set(assignor.supported_protocols) for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ValueError(f"the assignors {names} have no rebalance protocol in common")
    return max(common)


def assignments(
    partitions: Mapping[str, Iterable[TopicPartition]],
) -> dict[str, EmbeddedAssignment]:
    """Return embedded assignments without user data."""
    return {
        member_id: EmbeddedAssignment(partitions=frozenset(partition))
        for member_id, partition in partitions.items()
    }


@dataclass(frozen=True, slots=True)
class _Eager:
    """An eager assignor that regards only subscriptions."""

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.EAGER,)

    def user_data(
        self, _assigned: Iterable[TopicPartition] | None, _generation_id: int
    ) -> bytes | None:
        """Return None: this assignor needs only subscriptions."""
        return None


@dataclass(frozen=True, slots=True)
class ClassicRangeAssignor(_Eager):
    """Splits every topic among its subscribers, the first of which have one more."""

    @property
    def name(self) -> str:
        return "range"

    def assign(
        self, members: Mapping[str, ClassicMember], partition_counts: Mapping[str, int]
    ) -> dict[str, EmbeddedAssignment]:
        """Return the ranges of every member."""
        subscribers: dict[str, list[str]] = {}
        for member_id in _ordered(members):
            for topic in dict.fromkeys(members[member_id].subscription.topics):
                subscribers.setdefault(topic, []).append(member_id)
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for topic, member_ids in subscribers.items():
            for member_id, numbers in ranges(partition_counts.get(topic, 0), member_ids).items():
                found[member_id] += [TopicPartition(topic, number) for number in numbers]
        return assignments(found)


@dataclass(frozen=True, slots=True)
class RoundRobinAssignor(_Eager):
    """Deals the partitions of all topics, in order, to the members in turn.

    A member that does not subscribe to the topic is passed over.
    """

    @property
    def name(self) -> str:
        return "roundrobin"

    def assign(
        self, members: Mapping[str, ClassicMember], partition_counts: Mapping[str, int]
    ) -> dict[str, EmbeddedAssignment]:
        """Return what every member was dealt."""
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        topics = {
            member_id: frozenset(known.subscription.topics) for member_id, known in members.items()
        }
        turns = cycle(_ordered(members))
        for topic in sorted(frozenset[str]().union(*topics.values())):
            for partition in range(partition_counts.get(topic, 0)):
                taker = next(each for each in turns if topic in topics[each])
                found[taker].append(TopicPartition(topic, partition))
        return assignments(found)


def _ordered(members: Mapping[str, ClassicMember]) -> list[str]:
    return static_first(
        {member_id: known.group_instance_id for member_id, known in members.items()}
    )
