"""The rebalance of a classic group: from the first join until all members may sync, and its timers.

A rebalance begins when a member joins, leaves or changes; members learn of it from their
heartbeats. The join phase ends when all members have joined again, or at the longest of their
rebalance timeouts: then dynamic members that have not joined are removed, and static ones keep
their place until their session expires. The first rebalance of an empty group waits for more
members instead (`group.initial.rebalance.delay.ms`).

Source: GroupMetadataManager.prepareRebalance, completeClassicGroupJoin,
tryCompleteInitialRebalanceElseSchedule, expireClassicGroupMemberHeartbeat, expirePendingSync,
onLoaded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from group_lab.coordinator.classic.draft import Draft
from group_lab.coordinator.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    metadata_record,
)
from group_lab.coordinator.classic.messages import (
    JoinedMember,
    JoinGroupResponse,
    SyncGroupResponse,
)
from group_lab.coordinator.effects import (
    CoordinatorErrorCode,
    InitialDelay,
    Outcome,
    RequestContext,
    Timer,
    TimerKind,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode


def rebalance_or_complete(draft: Draft) -> None:
    """Begin a rebalance, or end the join phase of the one under way if everybody has joined."""
    if draft.group.state is ClassicState.PREPARING_REBALANCE:
        complete_if_all_joined(draft)
    else:
        prepare(draft)


def complete_if_all_joined(draft: Draft) -> None:
    """End the join phase if all have joined, unless it is the initial one, which waits."""
    group = draft.group
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and group.previous_state is not ClassicState.EMPTY
        and group.has_all_joined
    ):
        complete(draft)


def prepare(draft: Draft) -> None:
    """Begin a rebalance: members that wait for an assignment must join again."""
    if draft.group.state is ClassicState.COMPLETING_REBALANCE:
        reset_assignments(draft, CoordinatorErrorCode.REBALANCE_IN_PROGRESS)
    draft.change(pending_syncs=frozenset())
    draft.cancel_sync()
    is_initial = draft.group.state is ClassicState.EMPTY
    if is_initial:
        delay_s = draft.context.settings.broker.classic_initial_rebalance_delay_s
        delay_ms = round(delay_s * 1000)
        remaining_ms = max(draft.group.rebalance_timeout_ms - delay_ms, 0)
        draft.schedule_join(delay_ms, InitialDelay(delay_ms, remaining_ms))
    draft.move(ClassicState.PREPARING_REBALANCE)
    if is_initial:
        return
    if draft.group.has_all_joined:
        complete(draft)
    else:
        draft.schedule_join(draft.group.rebalance_timeout_ms)


def complete(draft: Draft) -> None:
    """End the join phase: answer the members of the next generation, or record that it is empty."""
    draft.cancel_join()
    for member in draft.group.ordered:
        if not member.awaits_join and member.instance_id is None:
            draft.remove(member.member_id)
    if not _elect_joined_leader(draft) and draft.group.members:
        # Only static members remain, and none has joined: their sessions decide.
        draft.schedule_join(draft.group.rebalance_timeout_ms)
        return
    generation_id = draft.group.generation_id + 1
    draft.change(generation_id=generation_id, pending_syncs=frozenset())
    if not draft.group.members:
        draft.change(protocol_name=None)
        draft.group = draft.group.with_topics()
        draft.move(ClassicState.EMPTY)
        draft.records = (metadata_record(draft.group, {}),)
        return
    draft.change(protocol_name=draft.group.selected_protocol())
    draft.group = draft.group.with_topics()
    draft.move(ClassicState.COMPLETING_REBALANCE)
    for member in draft.group.ordered:
        member_id = member.member_id
        draft.answer(member_id, joined(draft.group, member_id))
        draft.schedule_session(member_id)
        draft.change_member(member_id, is_new=False)
    draft.change(pending_syncs=frozenset(draft.group.members))
    draft.schedule_sync()


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Return the answer to a join; only the leader learns of the other members."""
    members: tuple[JoinedMember, ...] = ()
    if group.leader_id == member_id:
        protocol_name = group.protocol_name or ""
        members = tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(protocol_name))
            for each in group.ordered
        )
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=members,
    )


def _elect_joined_leader(draft: Draft) -> bool:
    """Let a member that has joined lead; return False if none has."""
    group = draft.group
    if group.leader_id is None:
        return False
    if group.members[group.leader_id].awaits_join:
        return True
    elected = next((each.member_id for each in group.ordered if each.awaits_join), None)
    if elected is not None:
        draft.change(leader_id=elected)
    return elected is not None


def reset_assignments(draft: Draft, error_code: int) -> None:
    """Take all assignments of the generation back, and answer the parked SyncGroups."""
    draft.change_all(lambda each: replace(each, assignment=b""))
    propagate(draft, error_code)


def propagate(draft: Draft, error_code: int = ErrorCode.NONE) -> None:
    """Answer the parked SyncGroups; without an error with the assignments."""
    for member in draft.group.ordered:
        if draft.answer(member.member_id, synced(draft.group, member, error_code)):
            draft.schedule_session(member.member_id)


def synced(
    group: ClassicGroup, member: ClassicMember, error_code: int = ErrorCode.NONE
) -> SyncGroupResponse:
    """Return the answer to a SyncGroup."""
    return SyncGroupResponse(
        error_code=error_code,
        protocol_type=None if error_code else group.protocol_type,
        protocol_name=None if error_code else group.protocol_name,
        assignment=member.assignment,
    )


def session_expired(
    group: ConsumerGroup, timer: Timer, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Remove a member, or a pending one, whose session timeout is over.

    A member that waits for an answer lives on: its session begins again with the answer. But a new
    one whose first JoinGroup is parked that long is removed (five minutes).
    """
    member_id = timer.key.member_id
    if group.classic is None:
        return Outcome(None)
    draft = Draft(group.classic, context)
    if member_id in draft.group.pending_joins:
        draft.remove(member_id)
    else:
        member = draft.group.members.get(member_id)
        if member is None:
            return Outcome(None)
        if (member.awaits_join or member.awaits_sync) and not member.is_new:
            return Outcome(None)
        draft.remove(member_id)
        if draft.group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            prepare(draft)
            return draft.outcome()
    if draft.group.state is ClassicState.PREPARING_REBALANCE and draft.group.has_all_joined:
        complete(draft)
    return draft.outcome()


def join_phase_ended(
    group: ConsumerGroup, timer: Timer, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """End the join phase, or extend the initial one for members that came meanwhile."""
    if group.classic is None or group.classic.state is not ClassicState.PREPARING_REBALANCE:
        return Outcome(None)
    draft = Draft(group.classic, context)
    delay = timer.initial_delay
    if delay and draft.group.new_member_added and delay.remaining_ms:
        draft.change(new_member_added=False)
        delay_s = context.settings.broker.classic_initial_rebalance_delay_s
        next_ms = min(round(delay_s * 1000), delay.remaining_ms)
        later = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        draft.schedule_join(next_ms, later)
    else:
        complete(draft)
    return draft.outcome()


def sync_phase_ended(
    group: ConsumerGroup, timer: Timer, _profile: Profile, context: RequestContext
) -> Outcome[None]:
    """Remove the members that have not synced, and begin a rebalance."""
    classic = group.classic
    if classic is None or timer.generation_id != classic.generation_id:
        return Outcome(None)
    awaited = (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
    if classic.state not in awaited or not classic.pending_syncs:
        return Outcome(None)
    draft = Draft(classic, context)
    for member_id in sorted(classic.pending_syncs):
        draft.remove(member_id)
    prepare(draft)
    return draft.outcome()


def loaded(group: ConsumerGroup, _profile: Profile, context: RequestContext) -> Outcome[None]:
    """Give all members of a loaded group a new session; a group that is too large rebalances."""
    if group.classic is None:
        return Outcome(None)
    draft = Draft(group.classic, context)
    for member in draft.group.ordered:
        draft.schedule_session(member.member_id)
    if len(draft.group.members) > context.settings.broker.classic_max_size:
        prepare(draft)
    return draft.outcome()


FIRED: Final = {
    TimerKind.CLASSIC_SESSION: session_expired,
    TimerKind.CLASSIC_JOIN: join_phase_ended,
    TimerKind.CLASSIC_SYNC: sync_phase_ended,
}
"""What happens when a timer of a classic group fires."""
