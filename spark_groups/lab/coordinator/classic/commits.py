"""OffsetCommit of classic members: who may commit, and the session that a commit extends.

Source: ClassicGroup.validateOffsetCommit; OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.classic.checks import member_error
from spark_groups.lab.coordinator.classic.draft import Draft
from spark_groups.lab.coordinator.classic.group import ClassicGroup, ClassicState
from spark_groups.lab.coordinator.effects import CoordinatorErrorCode, RequestContext, Timer
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.protocol.messages import OffsetCommitRequest


def commit_error(group: ClassicGroup, request: OffsetCommitRequest) -> int:
    """Return the error of a commit; its member epoch is the generation id."""
    generation_id, member_id = request.member_epoch, request.member_id
    if generation_id < 0 and group.state is ClassicState.EMPTY:
        # An operator, or a consumer that assigns itself.
        return ErrorCode.NONE
    if generation_id < 0 and not member_id and request.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if error := member_error(group, member_id, request.instance_id):
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicState.COMPLETING_REBALANCE:
        return CoordinatorErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def session_after_commit(
    group: ConsumerGroup, member_id: str, context: RequestContext
) -> tuple[Timer, ...]:
    """Return the session timer that an accepted commit of a classic member starts again."""
    classic = group.classic
    if classic is None or member_id not in classic.members:
        return ()
    draft = Draft(classic, context)
    draft.schedule_session(member_id)
    return tuple(draft.timers)
