"""DeleteGroups: a group that is empty is gone, with its offsets."""

from __future__ import annotations

from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.effects import Outcome, Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.messages import DeleteGroupsRequest, DeleteGroupsResponse
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import Record

_TOMBSTONE_ORDER: Final = (
    r.OffsetCommitKey,
    r.CurrentAssignmentKey,
    r.TargetMemberKey,
    r.TargetMetadataKey,
    r.MemberMetadataKey,
    r.RegularExpressionKey,
    r.PartitionMetadataKey,
    r.GroupMetadataKey,
)
"""Offsets first, then what stands on the group, then the group itself."""


def delete(
    group: ConsumerGroup, _request: DeleteGroupsRequest, _profile: Profile, _around: Surroundings
) -> Outcome[DeleteGroupsResponse]:
    """Delete a group.

    Args:
        group: The group.
    """
    if not group.exists:
        return Outcome(DeleteGroupsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if group.members:
        return Outcome(DeleteGroupsResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    return Outcome(DeleteGroupsResponse(), tombstones(group))


def tombstones(group: ConsumerGroup) -> tuple[Record, ...]:
    """Return what deletes a group with everything in it (Group.createGroupTombstoneRecords)."""
    keys: set[r.Key] = {each.key for each in group.records()}
    keys.add(r.GroupMetadataKey(group.group_id))
    ordered = sorted(keys, key=lambda key: _TOMBSTONE_ORDER.index(type(key)))
    return tuple(Record(key, None) for key in ordered)
