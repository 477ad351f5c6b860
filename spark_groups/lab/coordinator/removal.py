"""Members that an operator removes: LeaveGroup v5 on a consumer group.

Source: GroupMetadataManager.classicGroupLeaveToConsumerGroup; kafka_protocol.md 2.8.
"""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import leaving, membership
from spark_groups.lab.coordinator.effects import Outcome, Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.messages import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
)
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.refusal import CoordinatorErrorCode, RefusedError


def remove(
    group: ConsumerGroup, request: LeaveGroupRequest, profile: Profile, around: Surroundings
) -> Outcome[LeaveGroupResponse]:
    """Remove the members that an operator names; each gets a result of its own.

    Args:
        group: The group.
        request: Who is to go: by member id, by instance id, or by both.
        profile: Which coordinator it is.
        around: The topics.
    """
    if not group.group_id:
        return Outcome(LeaveGroupResponse(error_code=CoordinatorErrorCode.INVALID_GROUP_ID))
    found: dict[str, GroupMember] = {}
    results = []
    for each in request.members:
        error_code: int = ErrorCode.NONE
        try:
            member = _named(group, each, profile)
            found[member.member_id] = member
        except RefusedError as refusal:
            error_code = refusal.code
        results.append(
            LeftMember(
                member_id=each.member_id, instance_id=each.instance_id, error_code=error_code
            )
        )
    fenced = leaving.fence(group, tuple(found.values()), profile, around)
    response = LeaveGroupResponse(members=tuple(results))
    return Outcome(response, fenced.records, fenced.timers)


def _named(group: ConsumerGroup, named: LeavingMember, profile: Profile) -> GroupMember:
    if named.instance_id is not None and not named.member_id:
        return membership.static_member(group, named.instance_id, profile)
    return membership.leaver(group, named.member_id, named.instance_id, profile)
