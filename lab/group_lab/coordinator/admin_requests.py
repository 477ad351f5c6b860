"""Requests of operators: describe, list and delete groups, remove members.

Source: ConsumerGroup.asDescribedGroup, ConsumerGroupMember.asConsumerGroupDescribeMember;
GroupMetadataManager.describeGroups, ClassicGroupMember.describe;
GroupMetadataManager.listGroups; Group.createGroupTombstoneRecords;
GroupMetadataManager.classicGroupLeaveToConsumerGroup; kafka_protocol.md 2.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Final

from group_lab.coordinator import (
    client_assignment,
    heartbeat,
    leaving,
    member_checks,
    target_assignment,
)
from group_lab.coordinator import messages as m
from group_lab.coordinator import records as r
from group_lab.coordinator.classic.group import ClassicGroup, ClassicState
from group_lab.coordinator.classic.messages import (
    DescribedClassicMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from group_lab.coordinator.effects import (
    CoordinatorErrorCode,
    Outcome,
    RefusedError,
    RequestContext,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.profile import Profile
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    DescribedMember,
    DescribeGroupRequest,
    DescribeGroupResponse,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition

CLASSIC_MEMBER_TYPE: Final = 0
CONSUMER_MEMBER_TYPE: Final = 1
_ERROR_VERSION: Final = 6
"""The version from which DescribeGroups reports a missing group as an error (KIP-1043)."""


def describe(
    group: ConsumerGroup, _request: DescribeGroupRequest, profile: Profile, context: RequestContext
) -> DescribeGroupResponse:
    """Answer ConsumerGroupDescribe for one group."""
    if not group.group_id:
        return DescribeGroupResponse(error_code=profile.no_group_id_error)
    try:
        member_checks.check_exists(group, f"Group {group.group_id} not found.")
    except RefusedError as refused:
        return DescribeGroupResponse(
            group_id=group.group_id, error_code=refused.code, error_message=refused.message
        )
    topic_names = {each.topic_id: each.name for each in context.topics.by_name.values()}
    return DescribeGroupResponse(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=client_assignment.chosen(group.members)
        or target_assignment.described_assignor(group, context),
        members=tuple(
            _member(group, member, topic_names, profile) for member in group.members.values()
        ),
        topic_names=topic_names,
    )


def _member(
    group: ConsumerGroup, member: GroupMember, topic_names: dict[TopicId, str], profile: Profile
) -> DescribedMember:
    # Partitions belong to a member until it has revoked them.
    revoking = member.pending_revocation if profile.describes_revoking else ()
    target = group.targets.get(member.member_id, r.TargetMemberValue()).partitions
    described = DescribedMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_type=CLASSIC_MEMBER_TYPE if member.classic else CONSUMER_MEMBER_TYPE,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_existing((*member.assigned, *revoking), topic_names),
        target_assignment=_existing(target.partitions, topic_names),
    )
    return _with_results(group, member, described) if profile.kip_heartbeats else described


def _with_results(
    group: ConsumerGroup, member: GroupMember, described: DescribedMember
) -> m.KipDescribedMember:
    target = group.targets.get(member.member_id, r.TargetMemberValue())
    error = group.target_metadata.error if group.target_metadata else 0
    result = m.AssignorResult(error, target.metadata_version, target.metadata)
    standing = heartbeat.Standing(
        member, heartbeat.MemberTarget(group.assignment_epoch, target.partitions)
    )
    values = {field_.name: getattr(described, field_.name) for field_ in fields(DescribedMember)}
    return m.KipDescribedMember(
        **values,
        assignor_result=result if standing.has_arrived else m.AssignorResult(),
        target_assignor_result=result,
    )


def _existing(
    partitions: Iterable[TopicIdPartition], topic_names: dict[TopicId, str]
) -> Assignment:
    return Assignment(
        frozenset(partition for partition in partitions if partition.topic_id in topic_names)
    )


def describe_classic(
    group: ConsumerGroup,
    _request: DescribeGroupsRequest,
    _profile: Profile,
    context: RequestContext,
) -> DescribeGroupsResponse:
    """Describe a classic group, or one that only has offsets; any other is dead."""
    if not group.exists or group.is_consumer_group:
        dead = DescribeGroupsResponse(group_id=group.group_id, group_state=ClassicState.DEAD.value)
        if context.api_version < _ERROR_VERSION:
            return dead
        problem = "is not a classic group" if group.exists else "not found"
        return replace(
            dead,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group.group_id} {problem}.",
        )
    classic = group.classic or ClassicGroup(group_id=group.group_id)
    is_stable = classic.state is ClassicState.STABLE
    protocol = classic.protocol_name or ""
    return DescribeGroupsResponse(
        group_id=group.group_id,
        group_state=classic.state.value,
        protocol_type=classic.protocol_type or "",
        protocol_data=protocol if is_stable else "",
        members=tuple(
            DescribedClassicMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata(protocol) if is_stable else b"",
                member_assignment=each.assignment,
            )
            for each in classic.ordered
        ),
    )


TYPE_NAMES: Final = {
    "consumer": "consumer",
    "classic": "classic",
    "generic": "classic",
    "share": "share",
    "streams": "streams",
}
"""Values of a types filter, in any case; `generic` is the KIP's word for classic."""


def list_groups(
    groups: Iterable[ConsumerGroup], request: m.ListGroupsRequest
) -> m.ListGroupsResponse:
    """List groups; a filter that names only unknown values matches no group.

    Args:
        groups: The replicated state of all groups that have records.
    """
    states = {each.lower().strip() for each in request.states_filter}
    types = {TYPE_NAMES.get(each.lower()) for each in request.types_filter}
    listed = (_listed_group(group) for group in groups)
    return m.ListGroupsResponse(
        groups=tuple(
            each
            for each in listed
            if (not states or each.group_state.lower() in states)
            and (not types or each.group_type in types)
        )
    )


def _listed_group(group: ConsumerGroup) -> m.ListedGroup:
    """Return a list entry; Kafka lists a group with only offsets as a simple classic group."""
    if not group.is_consumer_group:
        classic = group.classic or ClassicGroup(group_id=group.group_id)
        return m.ListedGroup(
            group_id=group.group_id,
            protocol_type=classic.protocol_type or "",
            group_state=classic.state.value,
            group_type="classic",
        )
    return m.ListedGroup(group_id=group.group_id, group_state=group.state.value)


def delete_group(
    group: ConsumerGroup,
    _request: m.DeleteGroupsRequest,
    _profile: Profile,
    _context: RequestContext,
) -> Outcome[m.DeleteGroupsResponse]:
    """Delete a group."""
    if not group.exists:
        return Outcome(m.DeleteGroupsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if not group.is_empty:
        return Outcome(m.DeleteGroupsResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    return Outcome(m.DeleteGroupsResponse(), group.tombstones())


def remove_members(
    group: ConsumerGroup, request: m.LeaveGroupRequest, profile: Profile, context: RequestContext
) -> Outcome[m.LeaveGroupResponse]:
    """Remove the members that an operator names; each gets its own result.

    Args:
        request: Names members by member id, instance id or both.
    """
    if not group.group_id:
        return Outcome(m.LeaveGroupResponse(error_code=CoordinatorErrorCode.INVALID_GROUP_ID))
    found: dict[str, GroupMember] = {}
    results = []
    for each in request.members:
        error_code: int = ErrorCode.NONE
        try:
            member = _named_member(group, each, profile)
            found[member.member_id] = member
        except RefusedError as refusal:
            error_code = refusal.code
        results.append(
            m.LeftMember(
                member_id=each.member_id, instance_id=each.instance_id, error_code=error_code
            )
        )
    response = m.LeaveGroupResponse(members=tuple(results))
    return leaving.fence(group, tuple(found.values()), profile, context, response)


def _named_member(group: ConsumerGroup, named: m.LeavingMember, profile: Profile) -> GroupMember:
    if named.instance_id is not None and not named.member_id:
        return member_checks.static_member(group, named.instance_id, profile)
    return member_checks.leaver(group, named.member_id, named.instance_id, profile)
