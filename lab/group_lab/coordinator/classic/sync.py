"""SyncGroup: the leader's assignment for each member, once it is in the log.

Members that sync before the leader are parked; after the record is replicated all get their
assignments, and the group is stable.

Source: GroupMetadataManager.classicGroupSync, classicGroupSyncToClassicGroup, validateSyncGroup;
GroupCoordinatorService.syncGroup; KafkaApis.handleSyncGroupRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from group_lab.coordinator import mixed
from group_lab.coordinator.classic.draft import Draft
from group_lab.coordinator.classic.group import ClassicGroup, ClassicState, metadata_record
from group_lab.coordinator.classic.messages import SyncGroupRequest, SyncGroupResponse
from group_lab.coordinator.classic.rebalance import (
    propagate,
    rebalance_or_complete,
    reset_assignments,
    synced,
)
from group_lab.coordinator.effects import (
    CoordinatorErrorCode,
    Outcome,
    Parked,
    Phase,
    RequestContext,
    refused,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode

_PROTOCOL_VERSION: Final = 5
"""The version from which SyncGroup must name the protocol and its type."""

SyncOutcome = Outcome[SyncGroupResponse] | Outcome[SyncGroupResponse | None]


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, profile: Profile, context: RequestContext
) -> SyncOutcome:
    """Handle a SyncGroup request."""
    named = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _PROTOCOL_VERSION and not named:
        return refused(request, CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return refused(request, CoordinatorErrorCode.INVALID_GROUP_ID)
    if group.members:
        return mixed.sync(group, request, profile, context)
    return _sync_classic(group, request, context)


def _sync_classic(
    group: ConsumerGroup, request: SyncGroupRequest, context: RequestContext
) -> SyncOutcome:
    """Handle a SyncGroup request to a classic group."""
    classic = group.classic
    if classic is None or classic.state is ClassicState.EMPTY:
        return refused(request, ErrorCode.UNKNOWN_MEMBER_ID)
    if error := _error(classic, request):
        return refused(request, error)
    if classic.state is ClassicState.PREPARING_REBALANCE:
        return refused(request, CoordinatorErrorCode.REBALANCE_IN_PROGRESS)
    draft = Draft(classic, context)
    member_id = request.member_id
    draft.change(pending_syncs=draft.group.pending_syncs - {member_id})
    if not draft.group.pending_syncs:
        draft.cancel_sync()
    if classic.state is ClassicState.STABLE:
        member = draft.group.members[member_id]
        return draft.outcome(synced(draft.group, member), answers_at_once=True)
    draft.change_member(member_id, awaits_sync=True)
    parked = draft.outcome(parks=Parked(draft.group_id, member_id, Phase.SYNC))
    if classic.leader_id != member_id:
        return parked
    return replace(
        parked,
        records=(metadata_record(draft.group, request.assignments),),
        appended=partial(
            _assigned, generation_id=request.generation_id, assignments=request.assignments
        ),
    )


def _assigned(
    group: ClassicGroup,
    error_code: int,
    context: RequestContext,
    *,
    generation_id: int,
    assignments: Mapping[str, bytes],
) -> Outcome[None]:
    """Send the assignments, or begin a rebalance if their record is lost.

    A member that came meanwhile has begun another rebalance: then nothing is left to do.
    """
    draft = Draft(group, context)
    if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation_id != generation_id:
        return Outcome(None)
    if error_code:
        reset_assignments(draft, error_code)
        rebalance_or_complete(draft)
        return draft.outcome()
    draft.change_all(lambda each: replace(each, assignment=assignments.get(each.member_id, b"")))
    propagate(draft)
    draft.move(ClassicState.STABLE)
    return draft.outcome()


def _error(group: ClassicGroup, request: SyncGroupRequest) -> int:
    if error := group.member_error(request.member_id, request.group_instance_id):
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE
