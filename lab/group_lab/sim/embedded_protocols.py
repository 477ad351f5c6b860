"""The embedded protocols of classic groups: what a group shares, and how its leader divides it.

The coordinator carries the bytes of an embedded protocol between members and leader, and does not
read them.

Source: Incremental Cooperative Rebalancing, "Definitions" (embedded protocol); ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from group_lab.assignors.classic import (
    ClassicAssignor,
    ClassicMember,
    RebalanceProtocol,
    rebalance_protocol,
)
from group_lab.assignors.embedded import (
    decode_proposed_assignment,
    encode_assignment,
    encode_proposed_assignment,
    encode_subscription,
)
from group_lab.assignors.incremental import LeaderConfig, LeaderMemory, Policy, decide
from group_lab.coordinator.classic.group import ClassicGroup
from group_lab.coordinator.classic.group import ClassicMember as GroupMember
from group_lab.coordinator.classic.messages import ClassicProtocol, JoinGroupResponse
from group_lab.coordinator.design_0_9.group import DesignGroup
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    NO_GENERATION,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from spark_groups.types import TopicPartition
from spark_groups.values import dataclass

Partitions = frozenset[TopicPartition]


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
    def joins_in_background(self) -> bool:
        """Whether a member joins while its application processes a batch; else when it polls."""

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

    def read(
        self, assignment: bytes, owned: Partitions, generation_id: int, now: float
    ) -> Received:
        """Return what an assignment means for a member.

        Args:
            owned: What the member owns until then.
            generation_id: The classic generation of the assignment.
        """


class ConsumerProtocol:
    """The protocol of Kafka's consumers, with any classic assignor.

    Args:
        assignors: Best first (`partition.assignment.strategy`).
    """

    protocol_type = CONSUMER_PROTOCOL_TYPE
    joins_in_background = False

    def __init__(self, assignors: Sequence[ClassicAssignor]) -> None:
        self._assignors = assignors
        self.is_cooperative = rebalance_protocol(assignors) is RebalanceProtocol.COOPERATIVE

    def subscriptions(
        self, topics: tuple[str, ...], owned: Partitions, generation_id: int
    ) -> tuple[ClassicProtocol, ...]:
        """Return a subscription for each assignor."""
        return tuple(
            ClassicProtocol(
                assignor.name,
                encode_subscription(
                    Subscription(
                        topics=topics,
                        user_data=assignor.user_data(owned, generation_id),
                        owned_partitions=owned,
                        generation_id=generation_id,
                    )
                ),
            )
            for assignor in self._assignors
        )

    def assign(
        self, response: JoinGroupResponse, partition_counts: Mapping[str, int], _now: float
    ) -> dict[str, bytes]:
        """Compute the assignment with the selected assignor."""
        assignor = next(each for each in self._assignors if each.name == response.protocol_name)
        members = {
            member.member_id: ClassicMember(
                decode_subscription(member.metadata), member.group_instance_id
            )
            for member in response.members
        }
        found = assignor.assign(members, partition_counts)
        return {member_id: encode_assignment(each) for member_id, each in found.items()}

    def read(
        self, assignment: bytes, _owned: Partitions, _generation_id: int, _now: float
    ) -> Received:
        """Return the assigned partitions."""
        return Received(decode_assignment(assignment).partitions)


CONNECT_PROTOCOL_TYPE: Final = "connect"
SUBSCRIPTION_VERSION: Final = 1
"""The version of Kafka's subscription that has the fields of the proposal's."""


class IncrementalProtocol:
    """The protocol of the incremental proposal; a leader remembers the generations of its own run.

    Args:
        protocol_type: "consumer"; with "connect" topics are connectors, whose number -1 is the
            connector itself and whose other numbers are its tasks.
    """

    is_cooperative = True
    joins_in_background = True

    def __init__(self, config: LeaderConfig, protocol_type: str = CONSUMER_PROTOCOL_TYPE) -> None:
        self.protocol_type = protocol_type
        self._config = config
        self._memory = LeaderMemory()
        """What it knew before it decided on the last generation that it led."""
        self._decided = LeaderMemory()
        """What it knows since."""
        self._led_generation_id = NO_GENERATION
        """The last generation that it led."""
        self._read_generation_id = NO_GENERATION
        """The generation of its last assignment."""
        self._joins_again_at: float | None = None
        """When the timeout of its last assignment ends, which a new leader must not extend."""

    def subscriptions(
        self, topics: tuple[str, ...], owned: Partitions, _generation_id: int
    ) -> tuple[ClassicProtocol, ...]:
        """Return the subscription, with what the member owns."""
        subscription = Subscription(
            version=SUBSCRIPTION_VERSION, topics=topics, owned_partitions=owned
        )
        return (ClassicProtocol(self._config.policy.value, encode_subscription(subscription)),)

    def assign(
        self, response: JoinGroupResponse, partition_counts: Mapping[str, int], now: float
    ) -> dict[str, bytes]:
        """Decide as the leader of a generation."""
        if self._led_generation_id == response.generation_id - 1:
            self._memory = self._decided
        elif self._led_generation_id != response.generation_id:
            self._memory = LeaderMemory.of_follower(self._joins_again_at)
        # Else its SyncGroup was lost, and it joined the same generation again.
        self._led_generation_id = response.generation_id
        members = {
            member.member_id: decode_subscription(member.metadata) for member in response.members
        }
        first = -1 if self.protocol_type == CONNECT_PROTOCOL_TYPE else 0
        resources = {topic: range(first, count) for topic, count in partition_counts.items()}
        decision = decide(self._config, members, resources, self._memory, now)
        self._decided = decision.memory
        return {
            member_id: encode_proposed_assignment(assignment)
            for member_id, assignment in decision.assignments.items()
        }

    def read(
        self, assignment: bytes, owned: Partitions, generation_id: int, now: float
    ) -> Received:
        """Return what the member owns with its assignment, and when it joins again.

        Only the leader's join begins a rebalance if nothing has changed: a follower that joins
        before it reads the same assignment again, whose timeout does not begin again.
        """
        found = decode_proposed_assignment(assignment)
        if generation_id != self._read_generation_id:
            timeout_ms = found.scheduled_rebalance_timeout_ms
            self._read_generation_id = generation_id
            self._joins_again_at = now + timeout_ms / 1000 if timeout_ms else None
        at = self._joins_again_at
        has_joined_again = at is not None and at <= now
        return Received(found.applied_to(owned), None if has_joined_again else at)


POLICIES: Final = frozenset(each.value for each in Policy)


def assignments_of(group: ClassicGroup | DesignGroup) -> dict[str, Partitions]:
    """Return what each member owns by the assignment of its generation, by member id."""
    if isinstance(group, DesignGroup):
        return {each: consumer.partitions for each, consumer in group.consumers.items()}
    return {each: _read_assignment(group, member) for each, member in group.members.items()}


def _read_assignment(group: ClassicGroup, member: GroupMember) -> Partitions:
    """Return what a member owns, by the embedded protocol of its group."""
    if group.protocol_name not in POLICIES:
        return decode_assignment(member.assignment).partitions
    found = decode_proposed_assignment(member.assignment)
    joined = decode_subscription(member.metadata(group.protocol_name))
    return found.applied_to(joined.owned_partitions)
