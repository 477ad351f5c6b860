"""Groups as operators see them: their list, classic groups, and members that are removed from one.

The coordinator does not know what members of a classic group subscribe to, or have: their clients
do, and hand it over as bytes, which are read here for groups of consumers (DescribeGroups v6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_groups.errors import ProtocolError
from spark_groups.protocol.messages import UNKNOWN_AUTHORIZED_OPERATIONS
from spark_groups.types import TopicPartition
from spark_groups.wire.schemas.codec import Values, decode_start
from spark_groups.wire.schemas.messages import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from spark_groups.wire.translation import single

ANY_MEMBER_ID: Final = ""
"""What LeaveGroup has in place of a member id where a member is named by its instance id alone."""
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group as ListGroups v5 names it."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """A member that is to be removed: by its member id, its instance id, or both.

    Args:
        member_id: Its member id; None: whichever member has the instance id.
        instance_id: Its `group.instance.id`.
    """

    member_id: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """What became of members that were to be removed.

    Args:
        error_code: Kafka's error code for the whole request.
        member_error_codes: One for each member, in the order in which they were named.
    """

    error_code: int = 0
    member_error_codes: tuple[int, ...] = ()


def leave_to_wire(group_id: str, members: Sequence[MemberIdentity], reason: str) -> Values:
    """Ask a coordinator to remove members.

    Args:
        group_id: Their group.
        members: The members.
        reason: What the coordinator's log says about it.
    """
    return {
        "group_id": group_id,
        "members": tuple(
            {
                "member_id": ANY_MEMBER_ID if each.member_id is None else each.member_id,
                "group_instance_id": each.instance_id,
                "reason": reason,
            }
            for each in members
        ),
    }


def leave_from_wire(values: Values) -> LeaveGroupResponse:
    """Read what a coordinator did; it answers for members in the order it was asked in."""
    return LeaveGroupResponse(
        error_code=values["error_code"],
        member_error_codes=tuple(each["error_code"] for each in values["members"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """A member of a classic group.

    Args:
        member_id: Its id.
        instance_id: `group.instance.id` of a static member.
        client_id: What its client calls itself.
        client_host: Where it connects from.
        subscribed_topic_names: What it subscribes to; empty if its client does not say so.
        assignment: What the last rebalance gave it.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A classic group as its coordinator has it.

    Args:
        error_code: Kafka's error code; with one, the rest is empty.
        error_message: The broker's own words, if it gave any.
        group_state: The coordinator's word.
        protocol_type: `consumer`, `connect` or what else its clients call themselves; empty if
            there are only committed offsets.
        assignor_name: Which assignor its members have agreed on; empty without members.
        members: Its members.
        authorized_operations: A bit for each AclOperation that whoever asked may do with it.
    """

    error_code: int = 0
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    assignor_name: str = ""
    members: tuple[ClassicMember, ...] = ()
    authorized_operations: int = UNKNOWN_AUTHORIZED_OPERATIONS


def classic_to_wire(group_id: str) -> Values:
    """Ask for the description of a group of the classic protocol."""
    return {"groups": (group_id,), "include_authorized_operations": True}


def classic_from_wire(values: Values, group_id: str) -> ClassicGroup:
    """Read the description of a group of the classic protocol.

    Args:
        values: The response.
        group_id: The group that was asked for.

    Raises:
        ProtocolError: It is about other groups.
    """
    group = single(values["groups"], "group_id", group_id)
    is_of_consumers = group["protocol_type"] == CONSUMER_PROTOCOL_TYPE
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
                subscribed_topic_names=_topics(each["member_metadata"]) if is_of_consumers else (),
                assignment=_partitions(each["member_assignment"]) if is_of_consumers else (),
            )
            for each in group["members"]
        ),
    )


def _topics(metadata: bytes) -> tuple[str, ...]:
    """Read a subscription; a client of its own making may write what nobody else can read."""
    try:
        return tuple(decode_start(CONSUMER_PROTOCOL_SUBSCRIPTION, metadata)[0]["topics"])
    except ProtocolError:
        return ()


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Read an assignment; it is empty while the group is rebalancing."""
    try:
        topics = decode_start(CONSUMER_PROTOCOL_ASSIGNMENT, assignment)[0]["assigned_partitions"]
    except ProtocolError:
        return ()
    return tuple(TopicPartition(each["topic"], i) for each in topics for i in each["partitions"])
