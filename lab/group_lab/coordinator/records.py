"""Records of `__consumer_offsets`: keys, values and tombstones.

Names and numbers are those of the schemas (ConsumerGroupMetadataKey and so on). A record without a
value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from group_lab.coordinator.member import (
    ClassicMetadata,
    ClientAssignor,
    GroupMember,
    ReconciliationState,
)
from spark_groups.group.member.messages import NO_LEADER_EPOCH
from spark_groups.types import (
    NO_PARTITIONS,
    Assignment,
    TopicId,
    TopicIdPartition,
    TopicPartition,
)
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """The committed offset of one partition, by topic name."""

    record_type: ClassVar[int] = 1
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ClassicGroupMetadataKey:
    """A classic group, or one that only has offsets (GroupMetadataKey)."""

    record_type: ClassVar[int] = 2
    group_id: str


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """A consumer group (ConsumerGroupMetadataKey)."""

    record_type: ClassVar[int] = 3
    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadataKey:
    """The partitions of a group's topics (the KIP, 4.0)."""

    record_type: ClassVar[int] = 4
    group_id: str


@dataclass(frozen=True, slots=True)
class MemberMetadataKey:
    """The metadata of a member."""

    record_type: ClassVar[int] = 5
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetMetadataKey:
    """The epoch of a group's target assignment."""

    record_type: ClassVar[int] = 6
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetMemberKey:
    """The target of a member."""

    record_type: ClassVar[int] = 7
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    """The assignment of a member."""

    record_type: ClassVar[int] = 8
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegularExpressionKey:
    """The topics of a pattern."""

    record_type: ClassVar[int] = 16
    group_id: str
    regular_expression: str


@dataclass(frozen=True, slots=True)
class DesignGroupKey:
    """A group of the 0.9 design, in ZooKeeper there; the number is the model's own."""

    record_type: ClassVar[int] = 9
    group_id: str


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset.

    Args:
        leader_epoch: A leader epoch whose log reached it; NO_LEADER_EPOCH if unknown.
        topic_id: Its topic; None where offsets are stored by name alone.
    """

    committed_offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_s: float = 0.0
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """A member in the record of a classic group.

    Args:
        subscription: Its metadata for the selected protocol.
    """

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    session_timeout_ms: int
    subscription: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupMetadataValue:
    """A generation of a classic group (GroupMetadataValue).

    Args:
        protocol: The selected protocol; None in an empty generation.
        current_state_timestamp_s: When the group entered its state; None if unknown.
    """

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp_s: float | None = None
    members: tuple[ClassicMemberMetadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignConsumer:
    """A consumer of the 0.9 design.

    Args:
        strategy: The friendly name of its partition assignment strategy, that of all others.
        partitions: Those that it owns; none yet while it joins.
    """

    consumer_id: str
    client_host: str = ""
    session_timeout_ms: int
    topics: tuple[str, ...]
    strategy: str
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignGenerationValue:
    """A generation of a group of the 0.9 design: one atomic write.

    Args:
        partition_counts: Those that the ownership was decided on, by topic; a topic that did not
            exist is left out.
    """

    generation_id: int = 0
    consumers: tuple[DesignConsumer, ...] = ()
    partition_counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A group's epoch, and from 4.1 on the hash of its partition metadata."""

    group_epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class PartitionMetadataValue:
    """The id and partition count of each subscribed topic, by name."""

    topics: Mapping[str, tuple[TopicId, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataValue:
    """The metadata of a member."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    client_assignors: tuple[ClientAssignor, ...] = ()
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class TargetMetadataValue:
    """A target's group epoch, its time (4.3), and the assignor's error (the KIP)."""

    assignment_epoch: int
    assignment_timestamp_s: float = 0.0
    error: int = 0


@dataclass(frozen=True, slots=True)
class TargetMemberValue:
    """The target of a member, with the metadata of a client-side assignor (the KIP)."""

    partitions: Assignment = NO_PARTITIONS
    metadata_version: int = -1
    metadata: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentValue:
    """The assignment of a member; each partition has its member epoch (4.3)."""

    member_epoch: int
    previous_member_epoch: int
    state: ReconciliationState
    assigned: Mapping[TopicIdPartition, int]
    pending_revocation: Mapping[TopicIdPartition, int]


@dataclass(frozen=True, slots=True)
class RegularExpressionValue:
    """The topics that match a pattern, with metadata version and time."""

    topics: tuple[str, ...]
    version: int
    timestamp_s: float


Key = (
    OffsetCommitKey
    | ClassicGroupMetadataKey
    | GroupMetadataKey
    | PartitionMetadataKey
    | MemberMetadataKey
    | TargetMetadataKey
    | TargetMemberKey
    | CurrentAssignmentKey
    | RegularExpressionKey
    | DesignGroupKey
)
Value = (
    OffsetCommitValue
    | ClassicGroupMetadataValue
    | GroupMetadataValue
    | PartitionMetadataValue
    | MemberMetadataValue
    | TargetMetadataValue
    | TargetMemberValue
    | CurrentAssignmentValue
    | RegularExpressionValue
    | DesignGenerationValue
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `value` None is a tombstone."""

    key: Key
    value: Value | None


def member_metadata(group_id: str, member: GroupMember) -> Record:
    """Return the metadata record of a member."""
    return Record(
        MemberMetadataKey(group_id, member.member_id),
        MemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            client_assignors=member.client_assignors,
            classic=member.classic,
        ),
    )


def current_assignment(group_id: str, member: GroupMember) -> Record:
    """Return the assignment record of a member."""
    return Record(
        CurrentAssignmentKey(group_id, member.member_id),
        CurrentAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned=member.assigned,
            pending_revocation=member.pending_revocation,
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> tuple[Record, ...]:
    """Return the tombstones of a member, in Kafka's order (GroupMetadataManager.removeMember)."""
    return (
        Record(CurrentAssignmentKey(group_id, member_id), None),
        Record(TargetMemberKey(group_id, member_id), None),
        Record(MemberMetadataKey(group_id, member_id), None),
    )
