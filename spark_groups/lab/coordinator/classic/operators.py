"""DescribeGroups, the description of a classic group.

Source: GroupMetadataManager.describeGroups; ClassicGroupMember.describe.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.classic.group import ClassicGroup, ClassicState
from spark_groups.lab.coordinator.classic.messages import (
    DescribedClassicMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from spark_groups.lab.coordinator.effects import RequestContext
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.profile import Profile

_ERROR_VERSION: Final = 6
"""The version from which a missing group is an error (KIP-1043)."""


def describe(
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
