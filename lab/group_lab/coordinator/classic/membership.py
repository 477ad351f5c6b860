"""Heartbeat and LeaveGroup of classic members.

Source: GroupMetadataManager.classicGroupHeartbeat, classicGroupLeave and
classicGroupLeaveToClassicGroup; GroupCoordinatorService.heartbeat and leaveGroup; KIP-345.
"""

from __future__ import annotations

from group_lab.coordinator import admin_requests, mixed
from group_lab.coordinator import messages as m
from group_lab.coordinator.classic.draft import Draft
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import ClassicHeartbeatRequest, ClassicHeartbeatResponse
from group_lab.coordinator.classic.rebalance import complete_if_all_joined, prepare
from group_lab.coordinator.effects import CoordinatorErrorCode, Outcome, RequestContext, refused
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode


def heartbeat(
    group: ConsumerGroup,
    request: ClassicHeartbeatRequest,
    profile: Profile,
    context: RequestContext,
) -> Outcome[ClassicHeartbeatResponse]:
    """Handle a Heartbeat request."""
    if not request.group_id:
        code = CoordinatorErrorCode.INVALID_GROUP_ID
        return Outcome(ClassicHeartbeatResponse(error_code=code))
    if group.members:
        return mixed.classic_heartbeat(group, request, profile, context)
    return _heartbeat_classic(group, request, context)


def _heartbeat_classic(
    group: ConsumerGroup,
    request: ClassicHeartbeatRequest,
    context: RequestContext,
) -> Outcome[ClassicHeartbeatResponse]:
    """Extend the session of a classic member, and tell it of a rebalance."""
    classic = group.classic
    if classic is None:
        return refused(request, ErrorCode.UNKNOWN_MEMBER_ID)
    error = classic.member_error(request.member_id, request.group_instance_id)
    if not error and request.generation_id != classic.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    if error:
        return refused(request, error)
    draft = Draft(classic, context)
    draft.schedule_session(request.member_id)
    rebalances = classic.state is ClassicState.PREPARING_REBALANCE
    code = CoordinatorErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE
    return draft.outcome(ClassicHeartbeatResponse(error_code=code))


def leave(
    group: ConsumerGroup, request: m.LeaveGroupRequest, profile: Profile, context: RequestContext
) -> Outcome[m.LeaveGroupResponse]:
    """Handle a LeaveGroup request, of members or of an operator."""
    if group.is_consumer_group or not group.group_id:
        return admin_requests.remove_members(group, request, profile, context)
    return _leave_classic(group, request, context)


def _leave_classic(
    group: ConsumerGroup, request: m.LeaveGroupRequest, context: RequestContext
) -> Outcome[m.LeaveGroupResponse]:
    """Remove members of a classic group, with one rebalance for all of them."""
    if group.classic is None:
        unknown = tuple(_left(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members)
        return Outcome(m.LeaveGroupResponse(members=unknown), answers_at_once=True)
    draft = Draft(group.classic, context)
    results = tuple(_left(member, _remove(draft, member)) for member in request.members)
    if any(not result.error_code for result in results):
        if draft.group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            prepare(draft)
        else:
            complete_if_all_joined(draft)
    return draft.outcome(m.LeaveGroupResponse(members=results))


def _remove(draft: Draft, named: m.LeavingMember) -> int:
    """Remove one member, and return its error code."""
    group, member_id = draft.group, named.member_id
    if member_id in group.pending_joins:
        draft.remove(member_id)
    elif member_id:
        if error := group.member_error(member_id, named.instance_id):
            return error
        draft.remove(member_id)
    else:
        # An operator names an instance id only.
        holder = group.holder_id(named.instance_id) if named.instance_id is not None else None
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        draft.remove(holder)
    return ErrorCode.NONE


def _left(named: m.LeavingMember, error_code: int) -> m.LeftMember:
    return m.LeftMember(
        member_id=named.member_id, instance_id=named.instance_id, error_code=error_code
    )
