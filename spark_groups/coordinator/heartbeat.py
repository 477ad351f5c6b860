"""ConsumerGroupHeartbeat: one request through the whole protocol, in Kafka's order of steps.

Source: KIP-848, "Request Handling"; GroupMetadataManager.consumerGroupHeartbeat;
kafka_protocol.md 2.2. Records are written in the order 5, 16, 4, 3, 7, 6, 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spark_groups.assignors.assignor import AssignorError
from spark_groups.coordinator import (
    client_assignment,
    client_assignors,
    group_epoch,
    kip_heartbeat,
    leaving,
    member_records,
    membership,
    target,
    validation,
)
from spark_groups.coordinator.effects import Outcome, Surroundings
from spark_groups.coordinator.group import ConsumerGroup
from spark_groups.coordinator.member import GroupMember
from spark_groups.coordinator.profile import Profile
from spark_groups.coordinator.reconciliation import Reconciliation
from spark_groups.coordinator.records import Record
from spark_groups.coordinator.refusal import RefusedError
from spark_groups.coordinator.sessions import rebalance_timer, session_timer
from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, around: Surroundings
) -> Outcome[HeartbeatResponse]:
    """Answer a heartbeat: a join, a regular one, or a leave.

    Args:
        group: The group; without records if it does not exist.
        request: The heartbeat.
        profile: Which coordinator it is.
        around: The time, the topics, the settings, and where the request comes from.
    """
    try:
        validation.check(request, profile, around)
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            return leaving.leave(group, request, profile, around)
        return _regular(group, request, profile, around)
    except RefusedError as refusal:
        return Outcome(HeartbeatResponse(error_code=refusal.code, error_message=refusal.message))


@dataclass(frozen=True, slots=True)
class _Change:
    """What a request makes of its group's members.

    Args:
        group: The group as it is.
        sender: The member as it was.
        told: The member with what the request says of it.
    """

    group: ConsumerGroup
    sender: membership.Sender
    told: GroupMember

    def members(self) -> dict[str, GroupMember]:
        """Return the members of the group once the request counts."""
        kept = self.group.members.items()
        members = {key: each for key, each in kept if key != self.sender.predecessor}
        members[self.told.member_id] = self.told
        return members


@dataclass(frozen=True, slots=True)
class _Subscription:
    """What the group subscribes to once the request counts.

    Args:
        group_epoch: The group's epoch for it.
        has_changed: Whether the member subscribes to something else than before.
        records: What it takes to get there.
        topics_version: The version of the topics it was compared with; None if it was not.
    """

    group_epoch: int
    has_changed: bool = False
    records: tuple[Record, ...] = ()
    topics_version: int | None = None


@dataclass(frozen=True, slots=True)
class _Aim:
    """What the member is to be reconciled with.

    Args:
        assignment_epoch: The epoch of the target.
        target: What the member is meant to have.
        records: What it takes to get there.
    """

    assignment_epoch: int
    target: Assignment
    records: tuple[Record, ...] = ()


def _regular(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, around: Surroundings
) -> Outcome[HeartbeatResponse]:
    group_id = group.group_id
    if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
        membership.check_exists(group, f"Consumer group {group_id} not found.")
    membership.check_size(group, request, profile, around.settings.broker)
    sender = membership.sender(group, request, request.member_id or around.new_member_id, profile)
    told = _told(sender.member, request, around)
    if profile.client_assignors:
        told = client_assignors.told(told, request, group.members)
    records = list(sender.records)
    if told is not sender.member:
        records.append(member_records.told(group_id, told))
    change = _Change(group, sender, told)
    subscription = _subscription(change, profile, around)
    aim = _aim(change, subscription.group_epoch, profile, around)
    records += (*subscription.records, *aim.records)
    member = told
    timers = []
    if subscription.has_changed or not told.is_reconciled_to(aim.assignment_epoch):
        member = Reconciliation(
            assignment_epoch=aim.assignment_epoch,
            target=aim.target,
            subscribed=_subscribed_ids(group, told, around),
            has_subscription_changed=subscription.has_changed,
            owned=request.topic_partitions,
            held=group.partition_epochs,
            profile=profile,
        ).of(told)
        if member != told:
            records.append(member_records.current(group_id, member))
            timers.append(rebalance_timer(group_id, member, around))
    timers.append(session_timer(group_id, member.member_id, around))
    response = _answer(request, sender.member, member, around)
    if profile.client_assignors:
        is_due = subscription.group_epoch > aim.assignment_epoch
        progress = client_assignment.progress(
            group_id, change.members(), member.member_id, around, is_due=is_due
        )
        timers += progress.timers
        response = kip_heartbeat.extended(
            response,
            request,
            group,
            kip_heartbeat.Aim(
                sender.member, group.assignment_epoch, _last_target(group, sender.member)
            ),
            kip_heartbeat.Aim(member, aim.assignment_epoch, aim.target),
            should_compute=progress.should_compute,
        )
    return Outcome(
        response,
        tuple(records),
        tuple(timers),
        subscription.topics_version,
    )


def _told(member: GroupMember, request: HeartbeatRequest, around: Surroundings) -> GroupMember:
    """Return the member with what the request says of it, itself if that is nothing new."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    said = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if timeout_ms == -1 else timeout_ms,
        "server_assignor": request.server_assignor,
        "subscribed_topic_names": None if names is None else frozenset(names),
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "client_id": around.client_id,
        "client_host": around.client_host,
    }
    changes: dict[str, Any] = {
        name: value
        for name, value in said.items()
        if value is not None and value != getattr(member, name)
    }
    return replace(member, **changes) if changes else member


def _subscription(change: _Change, profile: Profile, around: Surroundings) -> _Subscription:
    group, told = change.group, change.told
    has_changed = told.subscribed_topic_names != change.sender.member.subscribed_topic_names
    epoch = group_epoch.current(group, profile)
    # A new group has to leave epoch 0, whatever its first member subscribes to.
    bumps = (
        has_changed or epoch == 0 or told.client_assignors != change.sender.member.client_assignors
    )
    if not bumps and group.topics_version == around.topics.version:
        return _Subscription(epoch)
    compared = group_epoch.compared(group, change.members().values(), profile, around, bumps=bumps)
    return _Subscription(compared.group_epoch, has_changed, compared.records, around.topics.version)


def _aim(change: _Change, epoch: int, profile: Profile, around: Surroundings) -> _Aim:
    group, told = change.group, change.told
    if group.assignment_epoch >= epoch or not _may_assign(change, profile, around):
        return _Aim(group.assignment_epoch, _last_target(group, told))
    try:
        computed = target.compute(
            group, change.members(), epoch, profile, around, asking=told.member_id
        )
    except AssignorError as error:
        # Kafka logs the reason and tells the member nothing but the code.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None) from error
    return _Aim(epoch, computed.by_member.get(told.member_id, NO_PARTITIONS), computed.records)


def _may_assign(change: _Change, profile: Profile, around: Surroundings) -> bool:
    """Tell whether the assignor may run: not again within an interval, not where members do."""
    if profile.client_assignors and client_assignors.chosen(change.members()):
        return False
    group = change.group
    computed = group.target_metadata
    if not profile.batches_assignments or not computed or not computed.assignment_timestamp_s:
        return True
    interval_s = around.settings.assignment_interval_s(group.group_id)
    return not interval_s or around.now >= computed.assignment_timestamp_s + interval_s


def _last_target(group: ConsumerGroup, told: GroupMember) -> Assignment:
    """Return what a member was last meant to have; a static one has that of its instance id."""
    holder: GroupMember | None = told
    if told.instance_id is not None:
        holder = group.static_member(told.instance_id)
    value = group.targets.get(holder.member_id) if holder else None
    return value.partitions if value else NO_PARTITIONS


def _subscribed_ids(
    group: ConsumerGroup, told: GroupMember, around: Surroundings
) -> frozenset[TopicId]:
    names = group_epoch.subscribed_names((told,), group.regexes)
    found = (around.topics.by_name.get(each) for each in names)
    return frozenset(each.topic_id for each in found if each)


def _answer(
    request: HeartbeatRequest, before: GroupMember, member: GroupMember, around: Surroundings
) -> HeartbeatResponse:
    """Tell the member its epoch, and what it may use where it asked for it or that changed."""
    is_full = (
        request.rebalance_timeout_ms != -1
        and not (request.subscribed_topic_names is None and request.subscribed_topic_regex is None)
        and request.topic_partitions is not None
    )
    is_told = (
        request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        or is_full
        or member.assigned != before.assigned
    )
    interval_s = around.settings.heartbeat_interval_s(request.group_id)
    return HeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=round(interval_s * 1000),
        assignment=member.assignment if is_told else None,
    )
