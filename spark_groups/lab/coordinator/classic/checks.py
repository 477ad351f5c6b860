"""Checks of the member in a request of the classic protocol.

Source: ClassicGroup.validateMember; GroupCoordinatorService for what the broker checks first.
"""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.classic.group import ClassicGroup


def member_error(group: ClassicGroup, member_id: str, instance_id: str | None) -> int:
    """Return the error of a request from a member; an instance id decides before the member id."""
    if instance_id is not None:
        holder = group.holder_id(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
