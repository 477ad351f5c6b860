"""ConsumerGroupHeartbeat: one request through the whole protocol, in the order of Kafka's steps.

Record types are written in the order 5, 16, 4, 3, 7, 6, 8. Requests are checked like
GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid; "Request Validation" in the
KIP agrees, except where it contradicts itself. There the model does what Kafka does: a join without
a member id requests an id, and epoch -2 is the temporary leave of a static member.

Source: KIP-848, "Request Handling", "Assignment Epoch - Compute the group assignment", "Response
Schema", "Assignment", "Client Side Mode"; KIP-1263; GroupMetadataManager.consumerGroupHeartbeat and
maybeUpdateTargetAssignment; kafka_protocol.md 2.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from group_lab.assignors.assignor import AssignorError
from group_lab.coordinator import (
    client_assignment,
    leaving,
    member_checks,
    migration,
    target_assignment,
)
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import (
    Outcome,
    RefusedError,
    RequestContext,
    Rule,
    Timer,
    check_rules,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.leaving import rebalance_timer, session_timer
from group_lab.coordinator.member import GroupMember, ReconciliationState
from group_lab.coordinator.messages import KipHeartbeatResponse
from group_lab.coordinator.profile import KIP_848, MemberIds, Profile
from group_lab.coordinator.reconciliation import Reconciliation
from group_lab.coordinator.subscriptions import Change, GroupSubscription, subscription
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)
from spark_groups.types import NO_PARTITIONS, Assignment
from spark_groups.values import dataclass


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, context: RequestContext
) -> Outcome[HeartbeatResponse]:
    """Answer a heartbeat: a join, a regular one, or a leave."""
    try:
        check_request(request, profile, context)
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            return leaving.leave(group, request, profile, context)
        if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            return _join(group, request, profile, context)
        return _regular(group, request, profile, context)
    except RefusedError as refusal:
        return _refused(refusal)


def _refused(refusal: RefusedError) -> Outcome[HeartbeatResponse]:
    return Outcome(HeartbeatResponse(error_code=refusal.code, error_message=refusal.message))


def _join(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, context: RequestContext
) -> Outcome[HeartbeatResponse]:
    """Let a member join, after the conversion of a classic group."""
    upgrade = migration.upgraded(group, profile, context)
    try:
        if upgrade.refusal:
            raise upgrade.refusal
        joined = _regular(upgrade.group, request, profile, context)
    except RefusedError as refusal:
        # The group stays classic, but its parked requests are answered.
        return replace(_refused(refusal), classic=upgrade.classic, answers=upgrade.answers)
    return replace(
        joined,
        records=(*upgrade.records, *joined.records),
        timers=(*upgrade.timers, *joined.timers),
        classic=upgrade.classic,
        answers=upgrade.answers,
    )


def _regular(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, context: RequestContext
) -> Outcome[HeartbeatResponse]:
    group_id = group.group_id
    if request.member_epoch != JOIN_GROUP_MEMBER_EPOCH:
        member_checks.check_exists(group, f"Consumer group {group_id} not found.")
    broker = context.settings.broker
    member_checks.check_size(group, request.member_id, request.instance_id, profile, broker)
    member_id = request.member_id or context.new_member_id()
    sender = member_checks.sender(group, request, member_id, profile)
    updated_member = _updated_member(sender.member, request, context)
    if profile.kip_heartbeats:
        updated_member = client_assignment.with_assignors(updated_member, request, group.members)
    change = Change(group, sender, updated_member)
    step = next_step(change, request.topic_partitions, profile, context)
    timers = [*step.timers, session_timer(group_id, step.member.member_id, context)]
    response = _answer(request, sender.member, step.member, context)
    if profile.kip_heartbeats:
        after = Standing(step.member, step.target)
        response = extended(response, request, change, after, step.computing)
    return Outcome(response, step.records, tuple(timers), step.subscribed.topics_version)


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """The target of one member, with the records that install it for the group."""

    assignment_epoch: int
    assignment: Assignment
    records: tuple[r.Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A member after a heartbeat or a join.

    Args:
        records: All records of the request.
        timers: Those of patterns, of the revocation and of the computation of a target; the session
            timer is the caller's.
        computing: The effect on that computation.
    """

    member: GroupMember
    target: MemberTarget
    subscribed: GroupSubscription
    records: tuple[r.Record, ...]
    timers: tuple[Timer, ...]
    computing: client_assignment.Progress


def next_step(
    change: Change, owned: Assignment | None, profile: Profile, context: RequestContext
) -> Step:
    """Update subscriptions and target, and reconcile the sender as far as possible.

    A computation of the target by a member, of which only the KIP has any, starts or stops here,
    for requests of both protocols: the server may have computed the target itself.

    Args:
        owned: The partitions that the sender reports; None without a report.

    Raises:
        RefusedError: The pattern is invalid, the assignor fails, or the member's state is unknown.
    """
    group, updated_member = change.group, change.updated_member
    subscribed = subscription(change, profile, context)
    target = member_target(change, subscribed, profile, context)
    records = [*change.records(), *subscribed.records, *target.records]
    timers = list(subscribed.timers)
    member = reconciled(change, subscribed, target, profile, context, owned=owned)
    if member != updated_member:
        records.append(r.current_assignment(group.group_id, member))
        # A classic member has a time to join and a time to sync instead.
        if not member.classic:
            timers.append(rebalance_timer(group.group_id, member, context))
    computing = client_assignment.NO_PROGRESS
    if profile.kip_heartbeats:
        is_due = subscribed.group_epoch > target.assignment_epoch
        computing = client_assignment.progress(
            group.group_id, change.members(), member.member_id, context, is_due=is_due
        )
        timers += computing.timers
    return Step(member, target, subscribed, tuple(records), tuple(timers), computing)


def reconciled(
    change: Change,
    subscribed: GroupSubscription,
    target: MemberTarget,
    profile: Profile,
    context: RequestContext,
    *,
    owned: Assignment | None,
) -> GroupMember:
    """Return the sender after its next step towards a target; the same object without one."""
    member = change.updated_member
    if not subscribed.has_changed and member.is_reconciled_to(target.assignment_epoch):
        return member
    return Reconciliation(
        assignment_epoch=target.assignment_epoch,
        target=target.assignment,
        subscribed=change.subscribed_ids(context),
        names_no_topic=not change.subscribed_names,
        has_subscription_changed=subscribed.has_changed,
        owned=owned,
        held=change.group.held_partitions,
        profile=profile,
    ).of(member)


def _updated_member(
    member: GroupMember, request: HeartbeatRequest, context: RequestContext
) -> GroupMember:
    """Return the member with the changes of the request; the same object if nothing changed."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    if (
        # Most heartbeats change nothing.
        timeout_ms == -1
        and names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and (context.client_id, context.client_host) == (member.client_id, member.client_host)
        and member.classic is None
    ):
        return member
    sent = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if timeout_ms == -1 else timeout_ms,
        "server_assignor": request.server_assignor,
        "subscribed_topic_names": None if names is None else frozenset(names),
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "client_id": context.client_id,
        "client_host": context.client_host,
    }
    changes: dict[str, Any] = {
        name: value
        for name, value in sent.items()
        if value is not None and value != getattr(member, name)
    }
    if member.classic:
        changes |= {"classic": None, "client_assignors": ()}
    return replace(member, **changes) if changes else member


def _answer(
    request: HeartbeatRequest, before: GroupMember, member: GroupMember, context: RequestContext
) -> HeartbeatResponse:
    """Return the answer, with the assignment for joins, full requests and changes."""
    has_assignment = (
        request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        or request.is_full
        or member.assigned != before.assigned
    )
    interval_s = context.settings.heartbeat_interval_s(request.group_id)
    return HeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=round(interval_s * 1000),
        assignment=member.assignment if has_assignment else None,
    )


_MEMBER_ID_VERSION: Final = 1
"""The first version with member ids made by clients (KIP-1082)."""
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's String.trim removes."""


def _is_blank(text: str | None) -> bool:
    """Return whether a text is present but empty (Utils.throwIfEmptyString)."""
    return text is not None and not text.strip(_TRIMMED)


_RULES_WITH_ID: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(lambda request: _is_blank(request.member_id), "MemberId can't be empty."),
)
_RULES: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(lambda request: _is_blank(request.group_id), "GroupId can't be empty."),
    Rule(lambda request: _is_blank(request.instance_id), "InstanceId can't be empty."),
    Rule(lambda request: _is_blank(request.rack_id), "RackId can't be empty."),
    Rule(
        lambda request: (
            request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None
        ),
        "InstanceId can't be null.",
    ),
    Rule(
        lambda request: request.member_epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        "MemberEpoch is invalid.",
    ),
)
_JOIN_RULES: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(
        lambda request: request.rebalance_timeout_ms == -1,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    Rule(
        lambda request: request.topic_partitions != NO_PARTITIONS,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    Rule(
        lambda request: (
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None
        ),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
)


_TIMEOUT_RULES: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(
        # -1 says that it is unchanged.
        lambda request: request.rebalance_timeout_ms <= 0 and request.rebalance_timeout_ms != -1,
        "RebalanceTimeoutMs must be larger than zero.",
    ),
)


def check_request(request: HeartbeatRequest, profile: Profile, context: RequestContext) -> None:
    """Check everything that does not depend on the group; the first broken rule counts.

    Raises:
        RefusedError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    if _needs_id(request, profile, context):
        check_rules(request, _RULES_WITH_ID)
    check_rules(request, _RULES)
    if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
        check_rules(request, _JOIN_RULES)
    if profile.checks_rebalance_timeout:
        check_rules(request, _TIMEOUT_RULES)
    assignors = context.settings.broker.assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported."
            f" Supported assignors: {', '.join(assignors)}.",
        )


def _needs_id(request: HeartbeatRequest, profile: Profile, context: RequestContext) -> bool:
    if request.member_epoch > 0 or request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return True
    return profile.member_ids is MemberIds.CLIENT and context.api_version >= _MEMBER_ID_VERSION


def member_target(
    change: Change, subscribed: GroupSubscription, profile: Profile, context: RequestContext
) -> MemberTarget:
    """Return the target of a member, computed again if the group epoch is ahead of its epoch.

    Args:
        subscribed: Subscriptions and epoch of the group after the request.

    Raises:
        RefusedError: UNKNOWN_SERVER_ERROR if the assignor fails.
    """
    group, updated_member = change.group, change.updated_member
    group_epoch = subscribed.group_epoch
    if group.assignment_epoch >= group_epoch or not _may_assign(change, profile, context):
        return MemberTarget(group.assignment_epoch, last_target(group, updated_member, profile))
    # Kafka updates the subscription type only when it compares the topics. If this request does not
    # make it compare them, the type stays that of the members before the request.
    if subscribed.is_compared:
        homogeneous = target_assignment.is_homogeneous(change.counted(), subscribed.regexes)
    else:
        homogeneous = target_assignment.is_homogeneous(
            group.members.values(), group.counted_regexes
        )
    try:
        computed = target_assignment.compute(
            group,
            change.members(),
            profile,
            context,
            group_epoch=group_epoch,
            assignor=target_assignment.preferred_assignor(
                group, change.counted(), context, updated_member.member_id
            ),
            asking=updated_member.member_id,
            homogeneous=homogeneous,
        )
    except AssignorError as error:
        # Kafka logs the reason and answers only the code.
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None) from error
    mine = computed.by_member.get(updated_member.member_id, NO_PARTITIONS)
    return MemberTarget(group_epoch, mine, computed.records)


def target_due(
    group: ConsumerGroup, _timer: Timer, profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Compute a target without waiting for a heartbeat (the KIP's "Fail Over")."""
    epoch, members = group.group_epoch, tuple(group.members.values())
    if (
        not group.members
        or group.assignment_epoch >= epoch
        or client_assignment.chosen(group.members)
    ):
        return Outcome(None)
    try:
        computed = target_assignment.compute(
            group,
            group.members,
            profile,
            context,
            group_epoch=epoch,
            assignor=target_assignment.preferred_assignor(group, members, context),
            homogeneous=target_assignment.is_homogeneous(members, group.regexes),
        )
    except AssignorError:
        # The next heartbeat retries and reports the error.
        return Outcome(None)
    return Outcome(None, computed.records)


def last_target(group: ConsumerGroup, member: GroupMember, profile: Profile) -> Assignment:
    """Return the last target of a member, for a static one that of its instance id."""
    member_id: str | None = member.member_id
    if member.instance_id is not None:
        member_id = member_checks.holder_id(group, member.instance_id, profile)
    value = group.targets.get(member_id) if member_id else None
    return value.partitions if value else NO_PARTITIONS


def _may_assign(change: Change, profile: Profile, context: RequestContext) -> bool:
    """Return whether the server may assign now (interval, client-side assignors)."""
    if profile.kip_heartbeats and client_assignment.chosen(change.members()):
        return False
    computed = change.group.target_metadata
    if not profile.batches_assignments or not computed or not computed.assignment_timestamp_s:
        return True
    interval_s = context.settings.assignment_interval_s(change.group.group_id)
    return not interval_s or context.now >= computed.assignment_timestamp_s + interval_s


@dataclass(frozen=True, slots=True)
class Standing:
    """A member and its target."""

    member: GroupMember
    target: MemberTarget

    @property
    def has_arrived(self) -> bool:
        """True once the member has the epoch of the target; it may still wait for partitions."""
        revokes = self.member.state is ReconciliationState.UNREVOKED_PARTITIONS
        return self.member.member_epoch == self.target.assignment_epoch and not revokes

    @property
    def pending(self) -> Assignment:
        """Partitions not yet released by other members; none while it revokes."""
        return (
            self.target.assignment - self.member.assignment if self.has_arrived else NO_PARTITIONS
        )


def extended(
    response: HeartbeatResponse,
    request: HeartbeatRequest,
    change: Change,
    after: Standing,
    computing: client_assignment.Progress,
) -> KipHeartbeatResponse:
    """Return the answer with the fields of the KIP.

    Args:
        after: The sender after the request.
        computing: The effect of the request on the computation of the target.
    """
    group, sender = change.group, change.sender.member
    extended_response = KipHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        should_compute_assignment=computing.should_compute,
    )
    before = Standing(
        sender, MemberTarget(group.assignment_epoch, last_target(group, sender, KIP_848))
    )
    if response.assignment is not None or _is_news(request, before, after):
        extended_response = _with_assignment(extended_response, change, after)
    return extended_response


def _is_news(request: HeartbeatRequest, before: Standing, after: Standing) -> bool:
    """Return whether a member has a new assignment or has not acknowledged the last one."""
    owned = request.topic_partitions
    return (
        before.member.member_epoch != after.member.member_epoch
        or before.pending != after.pending
        or (owned is not None and owned != after.member.assignment)
    )


def _with_assignment(
    extended_response: KipHeartbeatResponse, change: Change, after: Standing
) -> KipHeartbeatResponse:
    group = change.group
    installed = group.target_metadata
    target, error = r.TargetMemberValue(), 0
    if (
        installed
        and installed.assignment_epoch == after.target.assignment_epoch
        and after.has_arrived
    ):
        target = group.targets.get(after.member.member_id, target)
        error = installed.error
    return replace(
        extended_response,
        assignment=after.member.assignment,
        assignment_error=error,
        pending_topic_partitions=after.pending,
        metadata_version=target.metadata_version,
        metadata_bytes=target.metadata,
    )
