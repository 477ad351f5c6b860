"""ConsumerGroupDescribe: a group as its coordinator has it.

Source: ConsumerGroup.asDescribedGroup, ConsumerGroupMember.asConsumerGroupDescribeMember.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import membership, target
from spark_groups.lab.coordinator.effects import Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import TargetMemberValue
from spark_groups.lab.coordinator.refusal import CoordinatorErrorCode, RefusedError
from spark_groups.protocol.messages import (
    DescribedMember,
    DescribeGroupRequest,
    DescribeGroupResponse,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition

CONSUMER_MEMBER_TYPE: Final = 1


def describe(
    group: ConsumerGroup, _request: DescribeGroupRequest, profile: Profile, around: Surroundings
) -> DescribeGroupResponse:
    """Describe a group.

    Args:
        group: The group; without records if it does not exist.
        profile: Which coordinator it is.
        around: The topics and the settings.
    """
    if not group.group_id:
        refused = CoordinatorErrorCode.INVALID_GROUP_ID
        fails = ErrorCode.UNKNOWN_SERVER_ERROR
        return DescribeGroupResponse(error_code=refused if profile.describes_no_group_id else fails)
    try:
        membership.check_exists(group, f"Group {group.group_id} not found.")
    except RefusedError as refused:
        return DescribeGroupResponse(
            group_id=group.group_id, error_code=refused.code, error_message=refused.message
        )
    topic_names = {each.topic_id: each.name for each in around.topics.by_name.values()}
    return DescribeGroupResponse(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=target.described_assignor(group, around),
        members=tuple(
            _member(group, each, topic_names, profile) for each in group.members.values()
        ),
        topic_names=topic_names,
    )


def _member(
    group: ConsumerGroup, member: GroupMember, topic_names: dict[TopicId, str], profile: Profile
) -> DescribedMember:
    # Who still has to give something up answers for it until it has.
    revoking = member.pending_revocation if profile.describes_revoking else ()
    meant = group.targets.get(member.member_id, TargetMemberValue()).partitions
    return DescribedMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_type=CONSUMER_MEMBER_TYPE,
        subscribed_topic_names=tuple(sorted(member.subscribed_topic_names)),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_existing((*member.assigned, *revoking), topic_names),
        target_assignment=_existing(meant.partitions, topic_names),
    )


def _existing(
    partitions: Iterable[TopicIdPartition], topic_names: dict[TopicId, str]
) -> Assignment:
    """Return partitions without those of topics that are gone: nothing can name them."""
    return Assignment(frozenset(each for each in partitions if each.topic_id in topic_names))
