"""What an operator asks of a group's coordinator without being a member.

Each function raises a RequestError if the coordinator did not answer in time, and a ProtocolError
if its answer cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from spark_groups.group.member.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    UNKNOWN_AUTHORIZED_OPERATIONS,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection
from spark_groups.wire.coordinator_connection import exchange
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    OFFSET_DELETE,
)
from spark_groups.wire.translation import single

NO_METADATA: Final[Mapping[TopicId, str]] = MappingProxyType({})
_NO_MEMBER_ID: Final = ""
_NO_MEMBER_EPOCH: Final = -1
"""With these two the coordinator accepts a commit while the group has no members (KIP-848)."""
Embedded = TypeVar("Embedded", Subscription, EmbeddedAssignment)
_COORDINATOR_CODES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """A member to remove, by member id, `group.instance.id`, or both."""

    member_id: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """The answer to LeaveGroup.

    Args:
        error_code: Kafka's error code for the whole request.
        member_error_codes: One for each member, in the order of the request.
    """

    error_code: int = 0
    member_error_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group.

    Args:
        subscription: None while the group rebalances, or if its client is not a consumer.
        embedded_assignment: None as `subscription`.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscription: Subscription | None = None
    embedded_assignment: EmbeddedAssignment | None = None

    @property
    def subscribed_topic_names(self) -> tuple[str, ...]:
        """The topics; empty if unknown."""
        return self.subscription.topics if self.subscription else ()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions, sorted; empty if unknown."""
        embedded = self.embedded_assignment
        return tuple(sorted(embedded.partitions)) if embedded is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A group of the classic protocol.

    Args:
        error_code: Kafka's error code; with one, the rest is empty.
        protocol_type: `consumer`, `connect` or another; empty if the group has only offsets.
        assignor_name: Empty without members.
        authorized_operations: A bit for each AclOperation that this principal may perform.
    """

    error_code: int = 0
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    assignor_name: str = ""
    members: tuple[ClassicMember, ...] = ()
    authorized_operations: int = UNKNOWN_AUTHORIZED_OPERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeletion:
    """The answer to DeleteGroups."""

    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOutside:
    """The answer to a commit without a member.

    Args:
        error_code: Why the coordinator could not be asked; 0 if it answered.
        errors: Kafka's error code for each partition.
    """

    error_code: int = 0
    errors: Mapping[TopicIdPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeletion:
    """The answer to OffsetDelete.

    Args:
        error_code: Why nothing was deleted; 0 if each partition has an error code of its own.
        errors: Kafka's error code for each partition.
    """

    error_code: int = 0
    errors: Mapping[TopicPartition, int] = field(default_factory=dict)


def describe_classic_group(cluster: Cluster, group_id: str) -> ClassicGroup:
    """Describe a group of the classic protocol.

    For a group of the consumer protocol the coordinator answers GROUP_ID_NOT_FOUND, as for a group
    that does not exist.
    """
    asked = {"groups": (group_id,), "include_authorized_operations": True}

    def ask(connection: Connection, timeout_s: float) -> ClassicGroup:
        return classic_from_wire(connection.request(DESCRIBE_GROUPS, asked, timeout_s), group_id)

    return cluster.at_coordinator(group_id, ClassicGroup, ask)


def classic_from_wire(values: Values, group_id: str) -> ClassicGroup:
    """Read a DescribeGroups response about one group.

    The coordinator stores subscriptions and assignments of classic members as opaque bytes that
    their clients wrote; those of consumers are read here. Only a stable group shows them.

    Raises:
        ProtocolError: It is about other groups.
    """
    group = single(values["groups"], "group_id", group_id)
    has_consumers = group["protocol_type"] == CONSUMER_PROTOCOL_TYPE and bool(
        group["protocol_data"]
    )
    return ClassicGroup(
        error_code=group["error_code"],
        error_message=group["error_message"],
        group_state=group["group_state"],
        protocol_type=group["protocol_type"],
        assignor_name=group["protocol_data"],
        authorized_operations=group["authorized_operations"],
        members=tuple(
            ClassicMember(
                member_id=each["member_id"],
                instance_id=each["group_instance_id"],
                client_id=each["client_id"],
                client_host=each["client_host"],
                subscription=_read(decode_subscription, each["member_metadata"])
                if has_consumers
                else None,
                embedded_assignment=_read(decode_assignment, each["member_assignment"])
                if has_consumers
                else None,
            )
            for each in group["members"]
        ),
    )


def _read(decode: Callable[[bytes], Embedded], data: bytes) -> Embedded | None:
    try:
        return decode(data)
    except ProtocolError:
        return None


def probe_consumer_protocol(cluster: Cluster, group_id: str, member_id: str) -> HeartbeatResponse:
    """Ask a coordinator for a ConsumerGroupHeartbeat that changes nothing.

    It lets a member leave that the group does not have. UNKNOWN_MEMBER_ID and GROUP_ID_NOT_FOUND
    mean that the coordinator speaks the consumer protocol, and that this principal may join.

    Args:
        member_id: An id that no member has.
    """
    request = HeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH
    )

    def ask(connection: Connection, timeout_s: float) -> HeartbeatResponse:
        answer = exchange(connection, request, timeout_s)
        if not isinstance(answer, HeartbeatResponse):
            raise ProtocolError(f"{type(answer).__name__} in place of HeartbeatResponse")
        return answer

    return cluster.at_coordinator(group_id, HeartbeatResponse, ask)


def leave_group(
    cluster: Cluster, group_id: str, members: Sequence[MemberIdentity], reason: str
) -> LeaveGroupResponse:
    """Remove members of either protocol from a group.

    After a failure the request is sent again, and may then find that a member is gone.

    Args:
        reason: Appears in the coordinator's log.
    """
    asked = {
        "group_id": group_id,
        "members": tuple(
            {
                "member_id": member.member_id or "",
                "group_instance_id": member.instance_id,
                "reason": reason,
            }
            for member in members
        ),
    }

    def ask(connection: Connection, timeout_s: float) -> LeaveGroupResponse:
        values = connection.request(LEAVE_GROUP, asked, timeout_s)
        return LeaveGroupResponse(
            error_code=values["error_code"],
            member_error_codes=tuple(each["error_code"] for each in values["members"]),
        )

    return cluster.at_coordinator(group_id, LeaveGroupResponse, ask)


def delete_group(cluster: Cluster, group_id: str) -> GroupDeletion:
    """Delete a group of either protocol with all its committed offsets."""

    def ask(connection: Connection, timeout_s: float) -> GroupDeletion:
        values = connection.request(DELETE_GROUPS, {"groups_names": (group_id,)}, timeout_s)
        answer = single(values["results"], "group_id", group_id)
        return GroupDeletion(error_code=answer["error_code"])

    return cluster.at_coordinator(group_id, GroupDeletion, ask)


def commit_outside(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicIdPartition, int],
    metadata: Mapping[TopicId, str] = NO_METADATA,
) -> CommittedOutside:
    """Commit offsets for a group that has no members; a missing group is created.

    Args:
        offsets: The next offset to read of each partition.
        metadata: The commit metadata for each topic.
    """
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id=_NO_MEMBER_ID,
        member_epoch=_NO_MEMBER_EPOCH,
        offsets={
            key: OffsetAndMetadata(offset, metadata.get(key.topic_id, ""))
            for key, offset in offsets.items()
        },
    )

    def ask(connection: Connection, timeout_s: float) -> CommittedOutside:
        answer = exchange(connection, request, timeout_s)
        if not isinstance(answer, OffsetCommitResponse):
            raise ProtocolError(f"{type(answer).__name__} in place of OffsetCommitResponse")
        moved = _COORDINATOR_CODES.intersection(answer.errors.values())
        return CommittedOutside(error_code=min(moved, default=0), errors=answer.errors)

    return cluster.at_coordinator(group_id, CommittedOutside, ask)


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> OffsetDeletion:
    """Delete committed offsets of a group; a partition without one is no error."""
    by_topic: dict[str, list[Values]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append({"partition_index": each.partition})
    topics = tuple({"name": name, "partitions": each} for name, each in by_topic.items())
    asked = {"group_id": group_id, "topics": topics}

    def ask(connection: Connection, timeout_s: float) -> OffsetDeletion:
        values = connection.request(OFFSET_DELETE, asked, timeout_s)
        return OffsetDeletion(
            error_code=values["error_code"],
            errors={
                TopicPartition(topic["name"], each["partition_index"]): each["error_code"]
                for topic in values["topics"]
                for each in topic["partitions"]
            },
        )

    return cluster.at_coordinator(group_id, OffsetDeletion, ask)
