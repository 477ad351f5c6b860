"""A member as the coordinator has it: what it told of itself, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from spark_groups.protocol.messages import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from spark_groups.types import Assignment, TopicIdPartition
from spark_groups.values import dataclass


class ReconciliationState(Enum):
    """How far a member is on its way to its target (org.apache.kafka...modern.MemberState)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClientAssignor:
    """An assignor that a member brings (the KIP's Assignor).

    Args:
        minimum_version: The least version of the metadata that it can read.
        reason: Why the metadata was updated.
        metadata_version: The version of `metadata`.
        metadata: What the member tells the one that computes.
    """

    name: str
    minimum_version: int = 0
    maximum_version: int = 0
    reason: int = 0
    metadata_version: int = 0
    metadata: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a consumer group; changed by making another one.

    Args:
        member_epoch: The epoch of the assignment it uses.
        previous_member_epoch: The one before: a heartbeat whose answer was lost still has it.
        state: How far it is on the way to its target.
        instance_id: Its static identity, if it has one.
        client_host: Where they come from.
        rebalance_timeout_ms: How long it may take to revoke.
        subscribed_topic_names: Names it subscribes to.
        subscribed_topic_regex: A pattern it subscribes by; "" for none.
        client_assignors: The assignors it brings (the KIP only), best first.
        assigned: What it may use, each with the member epoch at which it was given.
        pending_revocation: What it has to give up and has not acknowledged yet, likewise.
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

    @property
    def is_away(self) -> bool:
        """True for a static member that left for a while and keeps its place."""
        return self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH

    @property
    def assignment(self) -> Assignment:
        return Assignment(frozenset(self.assigned))

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Tell whether it has all of a target, and nothing else."""
        return self.state is ReconciliationState.STABLE and self.member_epoch == assignment_epoch
