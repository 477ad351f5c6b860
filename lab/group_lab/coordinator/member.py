"""A member's state at the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from group_lab.coordinator.classic.messages import ClassicProtocol
from spark_groups.group.member.messages import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from spark_groups.types import Assignment, TopicIdPartition
from spark_groups.values import dataclass


class ReconciliationState(Enum):
    """A member's progress towards its target (org.apache.kafka...modern.MemberState)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClientAssignor:
    """A client-side assignor of a member (the KIP's Assignor).

    Args:
        minimum_version: The least metadata version it can read; `maximum_version` is the greatest.
        reason: Why the metadata was updated.
        metadata: Input for the member that computes the target.
    """

    name: str
    minimum_version: int = 0
    maximum_version: int = 0
    reason: int = 0
    metadata_version: int = 0
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member of the classic protocol has besides, in a consumer group.

    Args:
        session_timeout_ms: Its own session timeout.
        supported_protocols: Its assignors with embedded metadata, best first; never empty.
    """

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]

    @property
    def protocol(self) -> ClassicProtocol:
        """The protocol that JoinGroup and SyncGroup name; the coordinator assigns itself."""
        return self.supported_protocols[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a consumer group; a change makes another value.

    Args:
        member_epoch: The epoch of its assignment.
        previous_member_epoch: The epoch before; a heartbeat whose answer was lost still has it.
        instance_id: Its static identity, if any.
        subscribed_topic_regex: The pattern it subscribes to; "" for none.
        client_assignors: Its client-side assignors (the KIP only), best first.
        assigned: Its partitions, each with the member epoch of its assignment.
        pending_revocation: Partitions it must revoke and has not acknowledged, likewise.
        classic: None for a member that sends ConsumerGroupHeartbeat.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: ReconciliationState = ReconciliationState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    client_assignors: tuple[ClientAssignor, ...] = ()
    assigned: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    pending_revocation: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    @property
    def is_away(self) -> bool:
        """True for a static member that left temporarily."""
        return self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH

    @property
    def assignment(self) -> Assignment:
        return Assignment(frozenset(self.assigned))

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether its assignment is exactly its target."""
        return self.state is ReconciliationState.STABLE and self.member_epoch == assignment_epoch
