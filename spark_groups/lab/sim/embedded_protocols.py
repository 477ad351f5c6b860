"""The embedded protocols of classic groups: what a group shares, and how its leader divides it.

The coordinator carries the bytes of an embedded protocol between members and leader, and does not
read them.

Source: Incremental Cooperative Rebalancing, "Definitions" (embedded protocol); ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from spark_groups.lab.assignors.classic import (
    ClassicAssignor,
    ClassicMember,
    RebalanceProtocol,
    rebalance_protocol,
)
from spark_groups.lab.coordinator.classic.messages import ClassicProtocol, JoinGroupResponse
from spark_groups.protocol.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from spark_groups.types import TopicPartition
from spark_groups.values import dataclass

Partitions = frozenset[TopicPartition]


class Background(Enum):
    """What a consumer does beside a batch that its application processes; the rest waits for poll.

    Before KIP-62, nothing; the incremental proposal asks for joins in the background.
    """

    NOTHING = "nothing"
    HEARTBEATS = "heartbeats"
    JOINS = "heartbeats and joins"


@dataclass(frozen=True, slots=True)
class Received:
    """What a member reads in its assignment.

    Args:
        owned: All partitions that it owns from now on.
        joins_again_at: When it joins again, in seconds, though nothing happened; None for never.
    """

    owned: Partitions
    joins_again_at: float | None = None


class EmbeddedProtocol(Protocol):
    """What one run of a member sends and reads; a leader may remember earlier generations."""

    @property
    def protocol_type(self) -> str:
        """The protocol type in JoinGroup."""

    @property
    def is_cooperative(self) -> bool:
        """Whether a member keeps its partitions when it joins; an eager one releases all."""

    @property
    def background(self) -> Background:
        """What its members do beside a batch."""

    def subscriptions(
        self, topics: tuple[str, ...], owned: Partitions, generation_id: int
    ) -> tuple[ClassicProtocol, ...]:
        """Return the protocols of JoinGroup, best first.

        Args:
            generation_id: The classic generation in which the member owned its partitions.
        """

    def assign(
        self, response: JoinGroupResponse, partition_counts: Mapping[str, int], now: float
    ) -> dict[str, bytes]:
        """Return the assignment of every member, as the leader of a generation.

        Args:
            response: The answer to the leader's JoinGroup.
            partition_counts: By topic, as the leader knows them.
        """

    def read(self, assignment: bytes, owned: Partitions, now: float) -> Received:
        """Return what an assignment means for a member.

        Args:
            owned: What the member owns until then.
        """


class ConsumerProtocol:
    """The protocol of Kafka's consumers, with any classic assignor.

    Args:
        assignors: Best first (`partition.assignment.strategy`).
    """

    protocol_type = CONSUMER_PROTOCOL_TYPE
    background = Background.HEARTBEATS

    def __init__(self, assignors: Sequence[ClassicAssignor]) -> None:
        self._assignors = assignors
        self.is_cooperative = rebalance_protocol(assignors) is RebalanceProtocol.COOPERATIVE

    def subscriptions(
        self, topics: tuple[str, ...], owned: Partitions, generation_id: int
    ) -> tuple[ClassicProtocol, ...]:
        """Return a subscription for each assignor."""
        return tuple(
            ClassicProtocol(
                each.name,
                encode_subscription(
                    Subscription(
                        topics=topics,
                        user_data=each.user_data(owned, generation_id),
                        owned_partitions=owned,
                        generation_id=generation_id,
                    )
                ),
            )
            for each in self._assignors
        )

    def assign(
        self, response: JoinGroupResponse, partition_counts: Mapping[str, int], _now: float
    ) -> dict[str, bytes]:
        """Compute the assignment with the selected assignor."""
        assignor = next(each for each in self._assignors if each.name == response.protocol_name)
        members = {
            each.member_id: ClassicMember(
                decode_subscription(each.metadata), each.group_instance_id
            )
            for each in response.members
        }
        found = assignor.assign(members, partition_counts)
        return {member_id: encode_assignment(each) for member_id, each in found.items()}

    def read(self, assignment: bytes, _owned: Partitions, _now: float) -> Received:
        """Return the assigned partitions."""
        return Received(decode_assignment(assignment).partitions)
