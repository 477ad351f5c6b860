"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat.

The coordinator assigns and reconciles them like all others; each rebalances on its own, without a
leader. JoinGroup subscribes and reports the owned partitions, SyncGroup fetches the assignment,
and Heartbeat answers REBALANCE_IN_PROGRESS when the member should join again. Its generation is its
member epoch.

Source: KIP-848, "Supporting Online Consumer Group Upgrade"; GroupMetadataManager.
classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup and
classicGroupHeartbeatToConsumerGroup; kafka_protocol.md 2.9.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from group_lab.coordinator import heartbeat, member_checks, migration
from group_lab.coordinator import records as r
from group_lab.coordinator.classic.messages import (
    MEMBER_ID_REQUIRED_VERSION,
    ClassicHeartbeatRequest,
    ClassicHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from group_lab.coordinator.effects import (
    CoordinatorErrorCode,
    Outcome,
    RefusedError,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
    refused,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import (
    ClassicMetadata,
    ClientAssignor,
    GroupMember,
    ReconciliationState,
)
from group_lab.coordinator.migration import classic_session_timer
from group_lab.coordinator.profile import DowngradeRebalance, Profile
from group_lab.coordinator.settings import MigrationPolicy
from group_lab.coordinator.subscriptions import Change, subscription
from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    NO_GENERATION,
    Subscription,
    decode_subscription,
)
from spark_groups.types import Assignment, TopicIdPartition


def join(
    group: ConsumerGroup, request: JoinGroupRequest, profile: Profile, context: RequestContext
) -> Outcome[JoinGroupResponse]:
    """Answer JoinGroup at once: no other member must join first."""
    try:
        return _join(group, request, profile, context)
    except RefusedError as refusal:
        return refused(request, refusal.code)


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, profile: Profile, context: RequestContext
) -> Outcome[SyncGroupResponse]:
    """Answer SyncGroup with the current assignment of the member."""
    try:
        member, metadata = _validated(group, request, profile)
        _check_protocol(request, metadata)
    except RefusedError as refusal:
        return refused(request, refusal.code)
    revokes = member.state is ReconciliationState.UNREVOKED_PARTITIONS
    is_below = member.member_epoch < _epoch_to_reach(group, profile)
    if is_below and not revokes and not profile.syncs_below_target:
        return replace(
            refused(request, CoordinatorErrorCode.REBALANCE_IN_PROGRESS),
            timers=(_join_timer(group, member, context),),
        )
    sync_key = TimerKey(TimerKind.SYNC, group.group_id, member.member_id)
    return Outcome(
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=_embedded_assignment(
                group, member, metadata, context, is_cut=is_below and profile.syncs_below_target
            ),
        ),
        timers=(Timer(sync_key, None), classic_session_timer(group.group_id, member, context)),
    )


def classic_heartbeat(
    group: ConsumerGroup,
    request: ClassicHeartbeatRequest,
    profile: Profile,
    context: RequestContext,
) -> Outcome[ClassicHeartbeatResponse]:
    """Answer Heartbeat with REBALANCE_IN_PROGRESS if the member should join again."""
    try:
        member, _ = _validated(group, request, profile)
    except RefusedError as refusal:
        return refused(request, refusal.code)
    timers = (classic_session_timer(group.group_id, member, context),)
    if not must_join(group, member, profile):
        return Outcome(ClassicHeartbeatResponse(), timers=timers)
    return Outcome(
        ClassicHeartbeatResponse(error_code=CoordinatorErrorCode.REBALANCE_IN_PROGRESS),
        timers=(*timers, _join_timer(group, member, context)),
    )


def must_join(group: ConsumerGroup, member: GroupMember, profile: Profile) -> bool:
    """Return whether a heartbeat tells a classic member to join again."""
    if member.member_epoch < _epoch_to_reach(group, profile):
        return True
    if member.state is ReconciliationState.UNRELEASED_PARTITIONS:
        target = group.targets.get(member.member_id, r.TargetMemberValue()).partitions
        missing = target.partitions - member.assigned.keys()
        # It waits as long as another member has one of them.
        return missing.isdisjoint(group.held_partitions())
    return member.state is ReconciliationState.UNREVOKED_PARTITIONS


def _join(
    group: ConsumerGroup, request: JoinGroupRequest, profile: Profile, context: RequestContext
) -> Outcome[JoinGroupResponse]:
    member_id = request.member_id or context.new_classic_id(context.client_id)
    _check_join(group, request, member_id, profile, context)
    if (
        not request.member_id
        and request.group_instance_id is None
        and context.api_version >= MEMBER_ID_REQUIRED_VERSION
    ):
        code = CoordinatorErrorCode.MEMBER_ID_REQUIRED
        response = JoinGroupResponse(error_code=code, member_id=member_id)
        return Outcome(response, answers_at_once=True)
    sender = member_checks.classic_sender(group, request, member_id, profile)
    embedded = _subscription(request)
    _check_embedded(embedded, sender.member, profile)
    updated_member = _updated_member(sender.member, request, embedded, profile, context)
    change = Change(group, sender, updated_member)
    owned = _owned(embedded, context)
    replaced = _replaced(group, request.group_instance_id, profile)
    if replaced and migration.downgrades_for(group, replaced, context):
        if replaced.instance_id != request.group_instance_id:
            # Kafka looks for the replaced member by its instance id, converts it too, and throws.
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        return _join_downgraded(change, replaced, owned, profile, context)
    step = heartbeat.next_step(change, owned, profile, context)
    key = TimerKey(TimerKind.SYNC, group.group_id, member_id)
    timers = (
        *step.timers,
        Timer(TimerKey(TimerKind.JOIN, group.group_id, member_id), None),
        classic_session_timer(group.group_id, step.member, context),
        Timer(key, context.now + request.rebalance_timeout_ms / 1000),
    )
    return Outcome(
        _joined(step.member), step.records, timers, topics_version=step.subscribed.topics_version
    )


def _replaced(
    group: ConsumerGroup, instance_id: str | None, profile: Profile
) -> GroupMember | None:
    if instance_id is None:
        return None
    return group.members.get(member_checks.holder_id(group, instance_id, profile) or "")


def _join_downgraded(
    change: Change,
    replaced: GroupMember,
    owned: Assignment,
    profile: Profile,
    context: RequestContext,
) -> Outcome[JoinGroupResponse]:
    """Answer the classic member that replaces the last one of the consumer protocol."""
    group, member = change.group, change.updated_member
    if profile.downgrade_rebalance is DowngradeRebalance.NEVER:
        step = heartbeat.next_step(change, owned, profile, context)
        member, records, timers, rebalances = step.member, step.records, step.timers, False
    else:
        subscribed = subscription(change, profile, context)
        records, timers = (*change.records(), *subscribed.records), subscribed.timers
        rebalances = subscribed.has_changed or (
            profile.downgrade_rebalance is DowngradeRebalance.STALE_TARGET
            and group.assignment_epoch < subscribed.group_epoch
        )
        if not rebalances:
            last = heartbeat.last_target(group, member, profile)
            target = heartbeat.MemberTarget(group.assignment_epoch, last)
            member = heartbeat.reconciled(change, subscribed, target, profile, context, owned=owned)
    outcome = migration.downgraded(
        group,
        {replaced.member_id},
        context,
        _joined(member),
        joining=member,
        records=records,
        rebalances=rebalances,
    )
    stopped = Timer(TimerKey(TimerKind.JOIN, group.group_id, member.member_id), None)
    return replace(outcome, timers=(*timers, *outcome.timers, stopped))


def _joined(member: GroupMember) -> JoinGroupResponse:
    """Return the response to a member that joined; no member leads."""
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocol.name,
        member_id=member.member_id,
    )


def _check_join(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    profile: Profile,
    context: RequestContext,
) -> None:
    broker = context.settings.broker
    if (
        profile.disabled_policy_refuses_classic
        and broker.migration_policy is MigrationPolicy.DISABLED
    ):
        raise RefusedError(
            CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because"
            " the group migration is disabled.",
        )
    member_checks.check_size(group, member_id, request.group_instance_id, profile, broker)
    # A member that joins again counts with the protocols that it had.
    known = [
        {supported_protocol.name for supported_protocol in member.classic.supported_protocols}
        for member in group.members.values()
        if member.classic
    ]
    offered = {protocol.name for protocol in request.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not offered.intersection(*known):
        raise RefusedError(
            CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )


def _subscription(request: JoinGroupRequest) -> Subscription:
    """Return the subscription of the first protocol; all protocols have the same one.

    Raises:
        RefusedError: UNKNOWN_SERVER_ERROR if it is malformed.
    """
    try:
        return decode_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None) from error


def _check_embedded(embedded: Subscription, member: GroupMember, profile: Profile) -> None:
    """Check what only the KIP requires (KIP-848, "JoinGroup Handling")."""
    if not profile.checks_embedded_metadata:
        return
    if embedded.version < migration.KIP_EMBEDDED_VERSION:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Version {embedded.version} of the embedded protocol is not supported.",
        )
    if embedded.generation_id not in (member.member_epoch, NO_GENERATION):
        raise RefusedError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The generation id {embedded.generation_id} is not the member epoch"
            f" {member.member_epoch}.",
        )


def _updated_member(
    member: GroupMember,
    request: JoinGroupRequest,
    embedded: Subscription,
    profile: Profile,
    context: RequestContext,
) -> GroupMember:
    """Return the member with the changes of the request; the same object if nothing changed."""
    timeout_ms = request.rebalance_timeout_ms
    changes: dict[str, Any] = {
        "rebalance_timeout_ms": member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        "rack_id": embedded.rack_id or member.rack_id,
        "instance_id": request.group_instance_id or member.instance_id,
        "subscribed_topic_names": frozenset(embedded.topics),
        "client_id": context.client_id,
        "client_host": context.client_host,
        "classic": ClassicMetadata(request.session_timeout_ms, request.protocols),
    }
    if profile.classic_join_drops_pattern:
        changes["subscribed_topic_regex"] = ""
    if profile.checks_embedded_metadata:
        changes["client_assignors"] = _client_assignors(changes["classic"])
    updated_member = replace(member, **changes)
    return member if updated_member == member else updated_member


def _client_assignors(metadata: ClassicMetadata) -> tuple[ClientAssignor, ...]:
    try:
        return migration.client_assignors(metadata)
    except ProtocolError as error:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None) from error


def _owned(embedded: Subscription, context: RequestContext) -> Assignment:
    by_name = context.topics.by_name
    return Assignment(
        frozenset(
            TopicIdPartition(by_name[owned_partition.topic].topic_id, owned_partition.partition)
            for owned_partition in embedded.owned_partitions
            if owned_partition.topic in by_name
        )
    )


def _validated(
    group: ConsumerGroup,
    request: SyncGroupRequest | ClassicHeartbeatRequest,
    profile: Profile,
) -> tuple[GroupMember, ClassicMetadata]:
    """Return the sender of a SyncGroup or Heartbeat.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
    """
    member = member_checks.leaver(group, request.member_id, request.group_instance_id, profile)
    if member.classic is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    if request.generation_id != member.member_epoch:
        raise RefusedError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {request.generation_id} is not equal to the member epoch"
            f" {member.member_epoch} of member {member.member_id}.",
        )
    return member, member.classic


def _check_protocol(request: SyncGroupRequest, metadata: ClassicMetadata) -> None:
    expected_type, expected_name = CONSUMER_PROTOCOL_TYPE, metadata.protocol.name
    if request.protocol_type not in (None, expected_type) or request.protocol_name not in (
        None,
        expected_name,
    ):
        raise RefusedError(
            CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol of member {request.member_id} is {expected_type} {expected_name}, not"
            f" {request.protocol_type} {request.protocol_name}.",
        )


def _epoch_to_reach(group: ConsumerGroup, profile: Profile) -> int:
    """Return the epoch below which a classic member must join again."""
    return group.assignment_epoch if profile.classic_follows_target else group.group_epoch


def _join_timer(group: ConsumerGroup, member: GroupMember, context: RequestContext) -> Timer:
    return Timer(
        TimerKey(TimerKind.JOIN, group.group_id, member.member_id),
        context.now + member.rebalance_timeout_ms / 1000,
        keeps_earlier=True,
    )


def _embedded_assignment(
    group: ConsumerGroup,
    member: GroupMember,
    metadata: ClassicMetadata,
    context: RequestContext,
    *,
    is_cut: bool,
) -> bytes:
    """Return the assignment; the KIP's client-side assignors may also have metadata for it.

    Args:
        is_cut: Whether it lacks what the target takes away; then it lacks the target's metadata.
    """
    target = group.targets.get(member.member_id, r.TargetMemberValue())
    embedded, assigned = metadata.protocol.metadata, member.assignment
    if is_cut:
        assigned = assigned & target.partitions
    user_data = None if is_cut else target.metadata or None
    return migration.embedded_assignment(assigned, embedded, context, user_data)
