"""The sender of a heartbeat: a known member, a new one, or the successor of a static member.

Source: GroupMetadataManager.getOrMaybeSubscribe{Dynamic,Static}ConsumerGroupMember and the errors
they throw; kafka_protocol.md 2.3, 2.8.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from group_lab.coordinator import records as r
from group_lab.coordinator.classic.messages import JoinGroupRequest
from group_lab.coordinator.effects import RefusedError
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.settings import BrokerSettings
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import JOIN_GROUP_MEMBER_EPOCH, HeartbeatRequest
from spark_groups.types import Assignment, TopicIdPartition
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a heartbeat, before the changes of the request.

    Args:
        member: The member; its epoch is 0 if it is new.
        predecessor: The id of the member it replaces, which may be its own.
        records: Records that replace the predecessor.
    """

    member: GroupMember
    predecessor: str | None = None
    records: tuple[r.Record, ...] = ()


def sender(
    group: ConsumerGroup, request: HeartbeatRequest, member_id: str, profile: Profile
) -> Sender:
    """Return the sender of a heartbeat.

    Args:
        request: The heartbeat; not a leave.
        member_id: Its member id, or the id assigned to it.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID or
            UNRELEASED_INSTANCE_ID.
    """
    joins = request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if not joins:
                raise _unknown(group, member_id)
            return Sender(GroupMember(member_id=member_id))
    elif not joins:
        member = holder(group, member_id, request.instance_id, profile)
    else:
        return _static_joiner(group, member_id, request.instance_id, profile)
    _check_epoch(member, request, profile)
    return Sender(member)


def check_exists(group: ConsumerGroup, message: str) -> None:
    """Raise GROUP_ID_NOT_FOUND unless it is a consumer group; `message` is for no group at all."""
    if group.is_consumer_group:
        return
    if group.exists:
        message = f"Group {group.group_id} is not a consumer group."
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def leaver(
    group: ConsumerGroup, member_id: str, instance_id: str | None, profile: Profile
) -> GroupMember:
    """Return the member that leaves; raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if instance_id is not None:
        return holder(group, member_id, instance_id, profile)
    member = group.members.get(member_id)
    if member is None:
        raise _unknown(group, member_id)
    return member


def holder(group: ConsumerGroup, member_id: str, instance_id: str, profile: Profile) -> GroupMember:
    """Return the named member if it holds the instance id.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    member = static_member(group, instance_id, profile)
    if member.member_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member"
            f" {member.member_id}.",
        )
    return member


def static_member(group: ConsumerGroup, instance_id: str, profile: Profile) -> GroupMember:
    """Return the member that holds an instance id; raise UNKNOWN_MEMBER_ID."""
    member = _last_holder(group, instance_id, profile)
    if member is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    return member


def holder_id(group: ConsumerGroup, instance_id: str, profile: Profile) -> str | None:
    """Return the member id of an instance id; None if it is free.

    With `keeps_old_instance_ids` it may be the id of a former member.
    """
    if profile.keeps_old_instance_ids:
        return group.instances.get(instance_id)
    member = group.static_member(instance_id)
    return member.member_id if member else None


def _last_holder(group: ConsumerGroup, instance_id: str, profile: Profile) -> GroupMember | None:
    """Return the member of an instance id; raise UNKNOWN_MEMBER_ID for a former member."""
    member_id = holder_id(group, instance_id, profile)
    if member_id is None:
        return None
    if member_id not in group.members:
        raise _unknown(group, member_id)
    return group.members[member_id]


def check_size(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    profile: Profile,
    broker: BrokerSettings,
) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if one more member would exceed the limit."""
    if len(group.members) < broker.max_size or member_id in group.members:
        return
    if (
        profile.full_group_takes_static_return
        and instance_id is not None
        and group.static_member(instance_id) is not None
    ):
        return
    raise RefusedError(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {broker.max_size} members.",
    )


def _static_joiner(
    group: ConsumerGroup, member_id: str, instance_id: str, profile: Profile
) -> Sender:
    predecessor = _last_holder(group, instance_id, profile)
    if predecessor is None:
        return Sender(group.members.get(member_id) or GroupMember(member_id=member_id))
    # Between the protocols an instance id moves at once, as in a classic group.
    if not predecessor.is_away and not predecessor.classic:
        if profile.known_static_member_rejoins and predecessor.member_id == member_id:
            return Sender(predecessor)
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group"
            f" because the instance id is owned by {predecessor.member_id} member.",
        )
    return _successor(group, predecessor, member_id)


def classic_sender(
    group: ConsumerGroup, request: JoinGroupRequest, member_id: str, profile: Profile
) -> Sender:
    """Return the sender of a JoinGroup to a consumer group.

    Without a member id, a static member takes over from the one that holds its instance id, of
    either protocol.

    Args:
        member_id: Its member id, or the id assigned to it.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        return Sender(holder(group, member_id, instance_id, profile))
    predecessor = _last_holder(group, instance_id, profile) if instance_id is not None else None
    if predecessor is None:
        return Sender(group.members.get(member_id) or GroupMember(member_id=member_id))
    return _successor(group, predecessor, member_id)


def _successor(group: ConsumerGroup, predecessor: GroupMember, member_id: str) -> Sender:
    # It inherits the assignment at epoch 0, so it must reconcile first.
    member = replace(predecessor, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    group_id = group.group_id
    target = group.targets.get(predecessor.member_id, r.TargetMemberValue())
    return Sender(
        member,
        predecessor.member_id,
        (
            *r.member_tombstones(group_id, predecessor.member_id),
            r.member_metadata(group_id, member),
            r.Record(r.TargetMemberKey(group_id, member_id), target),
            r.current_assignment(group_id, member),
        ),
    )


def _check_epoch(member: GroupMember, request: HeartbeatRequest, profile: Profile) -> None:
    received = request.member_epoch
    if received == member.member_epoch:
        return
    if received == JOIN_GROUP_MEMBER_EPOCH and profile.known_member_rejoins:
        return
    if received > member.member_epoch:
        comparison = "greater"
    elif received == member.previous_member_epoch and _owns_only(
        request.topic_partitions, member.assigned
    ):
        # The answer with the new epoch was lost.
        return
    else:
        comparison = "smaller"
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({received}) than the one"
        f" known by the group coordinator ({member.member_epoch})."
        " The member must abandon all its partitions and rejoin.",
    )


def _owns_only(owned: Assignment | None, assigned: Container[TopicIdPartition]) -> bool:
    return owned is not None and all(partition in assigned for partition in owned.partitions)


def _unknown(group: ConsumerGroup, member_id: str) -> RefusedError:
    return RefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )
