"""JoinGroup: a new member, one that returns, or one that joins the rebalance again.

An accepted join is parked until the join phase ends. Some are answered at once: a dynamic member
gets its id first (MEMBER_ID_REQUIRED), one that has missed its answer gets it again, and a static
member that returns to a stable group takes its old place without a rebalance.

Source: GroupMetadataManager.classicGroupJoin and the methods named classicGroupJoin...,
updateStaticMemberThenRebalanceOrCompleteJoin, acceptJoiningMember;
GroupCoordinatorService.joinGroup; KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from group_lab.coordinator import migration, mixed
from group_lab.coordinator.classic.draft import Draft
from group_lab.coordinator.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    metadata_record,
)
from group_lab.coordinator.classic.messages import (
    MEMBER_ID_REQUIRED_VERSION,
    JoinGroupRequest,
    JoinGroupResponse,
)
from group_lab.coordinator.classic.rebalance import (
    complete_if_all_joined,
    joined,
    prepare,
    rebalance_or_complete,
)
from group_lab.coordinator.effects import (
    Answer,
    CoordinatorErrorCode,
    Outcome,
    Parked,
    Phase,
    RequestContext,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long the first JoinGroup of a member waits (CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS)."""
_SKIP_ASSIGNMENT_VERSION: Final = 9
"""The JoinGroup version from which a response can ask a leader not to assign (KIP-814)."""

JoinOutcome = Outcome[JoinGroupResponse] | Outcome[JoinGroupResponse | None]


def join(
    group: ConsumerGroup, request: JoinGroupRequest, profile: Profile, context: RequestContext
) -> JoinOutcome:
    """Handle a JoinGroup request."""
    if not request.group_id:
        return _refuse(request.member_id, CoordinatorErrorCode.INVALID_GROUP_ID)
    broker = context.settings.broker
    timeout_s = request.session_timeout_ms / 1000
    if (
        not broker.classic_min_session_timeout_s
        <= timeout_s
        <= broker.classic_max_session_timeout_s
    ):
        return _refuse(request.member_id, CoordinatorErrorCode.INVALID_SESSION_TIMEOUT)
    if group.members:
        return mixed.join(group, request, profile, context)
    if group.is_consumer_group:
        return _join_empty(group, request, context)
    return _join_classic(group, request, context)


def _join_empty(
    group: ConsumerGroup, request: JoinGroupRequest, context: RequestContext
) -> JoinOutcome:
    """Handle a JoinGroup request to an empty consumer group: a new classic one replaces it."""
    if request.member_id:
        return _refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    joined_new = _join_classic(ConsumerGroup(group.group_id), request, context)
    tombstones = migration.consumer_tombstones(group)
    return replace(joined_new, records=(*tombstones, *joined_new.records))


def _join_classic(
    group: ConsumerGroup, request: JoinGroupRequest, context: RequestContext
) -> JoinOutcome:
    """Handle a JoinGroup request to a classic group, or to one that it creates."""
    if not group.exists and request.member_id:
        return _refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    classic = group.classic or ClassicGroup(group_id=group.group_id, state_since_s=context.now)
    draft = Draft(classic, context)
    if not _has_room(draft, request.member_id):
        draft.remove(request.member_id)
        outcome = _refuse("", ErrorCode.GROUP_MAX_SIZE_REACHED, draft)
    elif not classic.supports(request.protocol_type, request.protocols):
        outcome = _refuse(
            request.member_id, CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL, draft
        )
    elif request.member_id:
        outcome = _known(draft, request)
    else:
        outcome = _new(draft, request)
    if not group.exists:
        # The record makes the group. If it is lost, so is the group, with everybody in it.
        empty = ClassicGroup(group_id=group.group_id, state_since_s=context.now)
        created = partial(_created, parked=outcome.parks)
        outcome = replace(outcome, records=(metadata_record(empty, {}),), appended=created)
    return outcome


def _created(
    _group: ClassicGroup, error_code: int, _context: RequestContext, *, parked: Parked | None
) -> Outcome[None]:
    if not error_code:
        return Outcome(None)
    lost = JoinGroupResponse(error_code=error_code)
    answers = (Answer(parked, lost),) if parked else ()
    return Outcome(None, removes_classic=True, answers=answers)


def _new(draft: Draft, request: JoinGroupRequest) -> JoinOutcome:
    """Handle a join without a member id: give it one, or to a static member its former place."""
    context, instance_id = draft.context, request.group_instance_id
    member_id = context.new_classic_id(context.client_id if instance_id is None else instance_id)
    if instance_id is not None:
        holder = draft.group.holder_id(instance_id)
        if holder is not None:
            return _replace_static(draft, request, holder, member_id)
    elif context.api_version >= MEMBER_ID_REQUIRED_VERSION:
        draft.change(pending_joins=draft.group.pending_joins | {member_id})
        draft.schedule_session(member_id, request.session_timeout_ms)
        return _refuse(member_id, CoordinatorErrorCode.MEMBER_ID_REQUIRED, draft)
    return _add(draft, request, member_id)


def _known(draft: Draft, request: JoinGroupRequest) -> JoinOutcome:
    """Handle a join with a member id."""
    group, member_id = draft.group, request.member_id
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            # A pending member has no instance id: Kafka throws.
            return _refuse("", ErrorCode.UNKNOWN_SERVER_ERROR, draft)
        return _add(draft, request, member_id)
    if error := group.member_error(member_id, request.group_instance_id):
        return _refuse(member_id, error, draft)
    has_changed = group.members[member_id].protocols != request.protocols
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            rejoins = True
        case ClassicState.COMPLETING_REBALANCE:
            rejoins = has_changed
        case ClassicState.STABLE:
            # A leader joins again if only it knows why, for example of new topics.
            rejoins = has_changed or group.leader_id == member_id
        case _:
            return _refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID, draft)
    if not rejoins:
        return draft.outcome(joined(group, member_id), answers_at_once=True)
    _update(draft, request, member_id)
    rebalance_or_complete(draft)
    return _park(draft, member_id)


def _add(draft: Draft, request: JoinGroupRequest, member_id: str) -> JoinOutcome:
    """Add a member, and begin a rebalance or continue the one under way."""
    group = draft.group
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and group.previous_state is ClassicState.EMPTY
    ):
        draft.change(new_member_added=True)
    draft.group = draft.group.with_member(
        ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=draft.context.client_id,
            client_host=draft.context.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            awaits_join=True,
            is_new=True,
        )
    )
    # It sends no heartbeats before it knows its generation.
    draft.schedule_session(member_id, NEW_MEMBER_TIMEOUT_MS)
    rebalance_or_complete(draft)
    return _park(draft, member_id)


def _update(draft: Draft, request: JoinGroupRequest, member_id: str) -> None:
    draft.change_member(
        member_id,
        protocols=request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        awaits_join=True,
    )


def _replace_static(
    draft: Draft, request: JoinGroupRequest, former_id: str, member_id: str
) -> JoinOutcome:
    """Let a static member that returns take its former place under a new member id.

    The former member is fenced at once. A stable group rebalances only if the selected protocol
    changes; otherwise the record with the new member id is the only effect.
    """
    former_leader = draft.group.leader_id
    former = _take_place(draft, former_id, member_id)
    draft.schedule_session(member_id)
    _update(draft, request, member_id)
    group = draft.group
    if group.state is ClassicState.STABLE:
        if group.selected_protocol() != (group.protocol_name or ""):
            rebalance_or_complete(draft)
            return _park(draft, member_id)
        assignments = {member.member_id: member.assignment for member in group.members.values()}
        draft.records = (metadata_record(group, assignments),)
        appended = partial(
            _static_appended,
            former=former,
            former_leader=former_leader,
            member_id=member_id,
            api_version=draft.context.api_version,
        )
        return replace(_park(draft, member_id), appended=appended)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        # The leader may have assigned to the former member id already.
        prepare(draft)
    else:
        complete_if_all_joined(draft)
    return _park(draft, member_id)


def _take_place(draft: Draft, former_id: str, member_id: str) -> ClassicMember:
    """Give the place of a static member to another member id; return the member as it was."""
    draft.fence(former_id)
    former = draft.group.members[former_id]
    draft.group = draft.group.with_place_given(former_id, member_id)
    return former


def _static_appended(
    group: ClassicGroup,
    error_code: int,
    context: RequestContext,
    *,
    former: ClassicMember,
    former_leader: str | None,
    member_id: str,
    api_version: int,
) -> Outcome[None]:
    """Answer a static member that has returned; if its record is lost, its return is undone."""
    draft = Draft(group, context)
    if member_id not in group.members:
        return Outcome(None)
    leads = group.leader_id == member_id
    if leads and group.state is ClassicState.PREPARING_REBALANCE and not error_code:
        # Another member has begun a rebalance meanwhile, which answers the join.
        return Outcome(None)
    if error_code:
        refused = JoinGroupResponse(
            error_code=error_code,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=former_leader or "",
        )
        draft.answer(member_id, refused)
        _take_place(draft, member_id, former.member_id)
        draft.change_member(
            former.member_id,
            protocols=former.protocols,
            rebalance_timeout_ms=former.rebalance_timeout_ms,
            session_timeout_ms=former.session_timeout_ms,
        )
        draft.schedule_session(former.member_id)
    elif api_version >= _SKIP_ASSIGNMENT_VERSION:
        # The leader must know the members, but not assign (KIP-814).
        response = replace(joined(group, member_id), skip_assignment=leads)
        draft.answer(member_id, response)
    else:
        # Named as the leader, it would assign; so the former one is.
        response = replace(joined(group, member_id), leader=former_leader or "", members=())
        draft.answer(member_id, response)
    return draft.outcome()


def _has_room(draft: Draft, member_id: str) -> bool:
    """Return whether one more member may join (`group.max.size`)."""
    group, limit = draft.group, draft.context.settings.broker.classic_max_size
    member = group.members.get(member_id)
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            # The first to join stay, so a group that is too large shrinks.
            return (member is not None and member.awaits_join) or group.awaiting_join < limit
        case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
            return member is not None or len(group.members) < limit
        case _:
            return True


def _park(draft: Draft, member_id: str) -> JoinOutcome:
    return draft.outcome(parks=Parked(draft.group_id, member_id, Phase.JOIN))


def _refuse(member_id: str, error_code: int, draft: Draft | None = None) -> JoinOutcome:
    response = JoinGroupResponse(error_code=error_code, member_id=member_id)
    if draft:
        return draft.outcome(response, answers_at_once=True)
    return Outcome(response, answers_at_once=True)
