"""What an operator asks the coordinator of a group to do, or to tell, without being a member.

Each function raises a RequestError if the coordinator did not answer in time, and a ProtocolError
if its answer cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.protocol.messages import (
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection
from spark_groups.wire.coordinator import exchange
from spark_groups.wire.groups import (
    ClassicGroup,
    LeaveGroupResponse,
    MemberIdentity,
    classic_from_wire,
    classic_to_wire,
    leave_from_wire,
    leave_to_wire,
)
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.messages import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LEAVE_GROUP,
    OFFSET_DELETE,
)
from spark_groups.wire.translation import single

NO_MEMBER_ID: Final = ""
NO_MEMBER_EPOCH: Final = -1
"""With these a commit comes from outside, which the coordinator takes while there are no members
(KIP-848, OffsetCommit)."""
NO_METADATA: Final[Mapping[TopicId, str]] = MappingProxyType({})
_COORDINATOR_CODES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeletion:
    """What DeleteGroups says of one group."""

    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOutside:
    """What became of offsets that were committed without a member.

    Args:
        error_code: Why the coordinator could not be asked; 0 if it answered.
        errors: Kafka's error code for each partition.
    """

    error_code: int = 0
    errors: Mapping[TopicIdPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeletion:
    """What OffsetDelete says.

    Args:
        error_code: Why nothing was deleted; 0 if partitions have answers of their own.
        errors: Kafka's error code for each partition.
    """

    error_code: int = 0
    errors: Mapping[TopicPartition, int] = field(default_factory=dict)


def describe_classic_group(cluster: Cluster, group_id: str) -> ClassicGroup:
    """Describe a group of the classic protocol.

    A group of the consumer protocol is answered with GROUP_ID_NOT_FOUND, as one that is not there.

    Args:
        cluster: The cluster.
        group_id: The group.
    """

    def ask(connection: Connection, timeout_s: float) -> ClassicGroup:
        values = connection.request(DESCRIBE_GROUPS, classic_to_wire(group_id), timeout_s)
        return classic_from_wire(values, group_id)

    return cluster.at_coordinator(group_id, ClassicGroup, ask)


def leave_group(
    cluster: Cluster, group_id: str, members: Sequence[MemberIdentity], reason: str
) -> LeaveGroupResponse:
    """Remove members from a group.

    Sent again after a failure, it may find that a member is not there any more.

    Args:
        cluster: The cluster.
        group_id: The group.
        members: The members, of either protocol.
        reason: What the coordinator's log says about it.
    """
    asked = leave_to_wire(group_id, members, reason)

    def ask(connection: Connection, timeout_s: float) -> LeaveGroupResponse:
        return leave_from_wire(connection.request(LEAVE_GROUP, asked, timeout_s))

    return cluster.at_coordinator(group_id, LeaveGroupResponse, ask)


def delete_group(cluster: Cluster, group_id: str) -> GroupDeletion:
    """Delete a group with all its committed offsets.

    Args:
        cluster: The cluster.
        group_id: The group, of either protocol.
    """

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
    """Commit offsets for a group that has no members.

    Args:
        cluster: The cluster.
        group_id: The group; one that does not exist is made.
        offsets: The next offset to read of each partition.
        metadata: What is kept beside the offsets, by topic.
    """
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id=NO_MEMBER_ID,
        member_epoch=NO_MEMBER_EPOCH,
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
    """Delete committed offsets of a group.

    Args:
        cluster: The cluster.
        group_id: The group.
        partitions: The partitions; those without a committed offset are answered alike.
    """
    asked = _deletion_to_wire(group_id, partitions)

    def ask(connection: Connection, timeout_s: float) -> OffsetDeletion:
        return _deletion_from_wire(connection.request(OFFSET_DELETE, asked, timeout_s))

    return cluster.at_coordinator(group_id, OffsetDeletion, ask)


def _deletion_to_wire(group_id: str, partitions: Iterable[TopicPartition]) -> Values:
    by_topic: dict[str, list[Values]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append({"partition_index": each.partition})
    topics = tuple({"name": name, "partitions": each} for name, each in by_topic.items())
    return {"group_id": group_id, "topics": topics}


def _deletion_from_wire(values: Values) -> OffsetDeletion:
    return OffsetDeletion(
        error_code=values["error_code"],
        errors={
            TopicPartition(topic["name"], each["partition_index"]): each["error_code"]
            for topic in values["topics"]
            for each in topic["partitions"]
        },
    )
