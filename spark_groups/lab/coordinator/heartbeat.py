"""ConsumerGroupHeartbeat: one request through the whole protocol, in Kafka's order of steps.

Source: KIP-848, "Request Handling"; GroupMetadataManager.consumerGroupHeartbeat;
kafka_protocol.md 2.2. Records are written in the order 5, 16, 4, 3, 7, 6, 8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_groups.lab.coordinator import (
    client_assignors,
    kip_heartbeat,
    leaving,
    member_records,
    membership,
    target_assignment,
    validation,
)
from spark_groups.lab.coordinator.effects import Outcome, Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.reconciliation import Reconciliation
from spark_groups.lab.coordinator.refusal import RefusedError
from spark_groups.lab.coordinator.sessions import rebalance_timer, session_timer
from spark_groups.lab.coordinator.subscribing import Change, subscription
from spark_groups.protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)


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


def _regular(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, around: Surroundings
) -> Outcome[HeartbeatResponse]:
    group_id = group.group_id
    if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
        membership.check_exists(group, f"Consumer group {group_id} not found.")
    membership.check_size(group, request, profile, around.settings.broker)
    member_id = request.member_id or around.new_member_id()
    sender = membership.sender(group, request, member_id, profile)
    told = _told(sender.member, request, around)
    if profile.kip_heartbeats:
        told = client_assignors.told(told, request, group.members)
    records = list(sender.records)
    if told is not sender.member:
        records.append(member_records.told(group_id, told))
    change = Change(group, sender, told)
    subscribed = subscription(change, profile, around)
    aim = target_assignment.aim(change, subscribed, profile, around)
    records += (*subscribed.records, *aim.records)
    member = told
    timers = list(subscribed.timers)
    if subscribed.has_changed or not told.is_reconciled_to(aim.assignment_epoch):
        member = Reconciliation(
            assignment_epoch=aim.assignment_epoch,
            target=aim.target,
            subscribed=change.subscribed_ids(around),
            has_subscription_changed=subscribed.has_changed,
            owned=request.topic_partitions,
            held=group.held_partitions,
            profile=profile,
        ).of(told)
        if member != told:
            records.append(member_records.current(group_id, member))
            timers.append(rebalance_timer(group_id, member, around))
    timers.append(session_timer(group_id, member.member_id, around))
    response = _answer(request, sender.member, member, around)
    if profile.kip_heartbeats:
        after = kip_heartbeat.Standing(member, aim)
        response, computing = kip_heartbeat.extended(
            response, request, change, after, around, group_epoch=subscribed.group_epoch
        )
        timers += computing
    return Outcome(
        response,
        tuple(records),
        tuple(timers),
        subscribed.topics_version,
    )


def _told(member: GroupMember, request: HeartbeatRequest, around: Surroundings) -> GroupMember:
    """Return the member with what the request says of it, itself if that is nothing new."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    if (
        # Most heartbeats say nothing but who sends them.
        timeout_ms == -1
        and names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and (around.client_id, around.client_host) == (member.client_id, member.client_host)
    ):
        return member
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


def _answer(
    request: HeartbeatRequest, before: GroupMember, member: GroupMember, around: Surroundings
) -> HeartbeatResponse:
    """Tell the member its epoch, and what it may use where it asked for it or that changed."""
    is_told = (
        request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        or request.is_full
        or member.assigned != before.assigned
    )
    interval_s = around.settings.heartbeat_interval_s(request.group_id)
    return HeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=round(interval_s * 1000),
        assignment=member.assignment if is_told else None,
    )
