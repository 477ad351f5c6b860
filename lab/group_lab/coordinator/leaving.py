"""Members that leave, are fenced, or exceed their session or rebalance timeout.

Source: GroupMetadataManager.consumerGroupLeave, consumerGroupFenceMembers,
scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout and onLoaded; KIP-848,
"Heartbeat & Session" and "Fail Over".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from group_lab.coordinator import member_checks, migration, subscriptions
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import Outcome, R, RequestContext, Timer, TimerKey, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember, ReconciliationState
from group_lab.coordinator.profile import Profile
from spark_groups.group.member.messages import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    HeartbeatResponse,
)


def leave(
    group: ConsumerGroup, request: HeartbeatRequest, profile: Profile, context: RequestContext
) -> Outcome[HeartbeatResponse]:
    """Remove a member, or keep the place of a static member that leaves temporarily.

    The session timer of a static member continues: it must return before it fires.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    """
    member_checks.check_exists(group, f"Group {group.group_id} not found.")
    member = member_checks.leaver(group, request.member_id, request.instance_id, profile)
    response = HeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        away = replace(
            member,
            member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            # Its successor counts as the owner from the beginning.
            assigned=dict.fromkeys(member.assigned, 0),
            pending_revocation={},
        )
        return Outcome(response, (r.current_assignment(group.group_id, away),))
    return fence(group, (member,), profile, context, response)


def fence(
    group: ConsumerGroup,
    members: Sequence[GroupMember],
    profile: Profile,
    context: RequestContext,
    response: R,
) -> Outcome[R]:
    """Remove members: the group epoch grows, and the next heartbeat computes a target.

    If only classic members are left, the group becomes a classic one instead.
    """
    if not members:
        return Outcome(response)
    group_id = group.group_id
    leaving = {each.member_id for each in members}
    if migration.downgrades_without(group, leaving, context):
        return migration.downgraded(group, leaving, context, response)
    remaining = [each for each in group.members.values() if each.member_id not in leaving]
    patterns = {each.subscribed_topic_regex for each in members} - {""}
    patterns -= {each.subscribed_topic_regex for each in remaining}
    regexes = {key: regex for key, regex in group.regexes.items() if key not in patterns}
    epoch = subscriptions.next_epoch(
        group, remaining, profile, context, bumps=True, regexes=regexes
    )
    records = [
        *(each for member in members for each in r.member_tombstones(group_id, member.member_id)),
        *(
            r.Record(r.RegularExpressionKey(group_id, pattern), None)
            for pattern in sorted(patterns)
        ),
        *epoch.records,
    ]
    if profile.last_leave_installs_target and not remaining:
        # Without a time, so that the next join does not wait for the assignment interval.
        installed = r.TargetMetadataValue(epoch.group_epoch)
        records.append(r.Record(r.TargetMetadataKey(group_id), installed))
    timers = [
        Timer(TimerKey(kind, group_id, each.member_id), None)
        for each in members
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC)
    ]
    running = context.computing
    if running and running.computation and running.computation.member_id in leaving:
        # The next heartbeat chooses another member, if any is left.
        timers.append(replace(running, at=None))
    return Outcome(response, tuple(records), (*timers, *epoch.timers))


def session_timer(group_id: str, member_id: str, context: RequestContext) -> Timer:
    """Return the timer that removes a member unless it sends a heartbeat."""
    return Timer(
        TimerKey(TimerKind.SESSION, group_id, member_id),
        context.now + context.settings.session_timeout_s(group_id),
    )


def rebalance_timer(group_id: str, member: GroupMember, context: RequestContext) -> Timer:
    """Return the timer of a revocation, or stop it."""
    key = TimerKey(TimerKind.REBALANCE, group_id, member.member_id)
    if member.state is not ReconciliationState.UNREVOKED_PARTITIONS:
        return Timer(key, None)
    return Timer(key, context.now + member.rebalance_timeout_ms / 1000, member.member_epoch)


def timed_out(
    group: ConsumerGroup, timer: Timer, profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Remove the member whose session or rebalance timeout is over; it may have left already."""
    member = group.members.get(timer.key.member_id)
    if member is None:
        return Outcome(None)
    revokes = timer.key.kind is TimerKind.REBALANCE
    if revokes and member.member_epoch != timer.member_epoch:
        return Outcome(None)
    return fence(group, (member,), profile, context, None)


def timers_once_loaded(
    group: ConsumerGroup, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Give all members of a loaded group new session and rebalance timeouts."""
    timers = []
    for member in group.members.values():
        timers.append(session_timer(group.group_id, member.member_id, context))
        if member.state is ReconciliationState.UNREVOKED_PARTITIONS:
            timers.append(rebalance_timer(group.group_id, member, context))
    return Outcome(None, timers=tuple(timers))
