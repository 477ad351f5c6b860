"""Groups as operators see them: their list, and members that are removed from one (LeaveGroup)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_groups.wire.schemas.codec import Values

ANY_MEMBER_ID: Final = ""
"""What LeaveGroup has in place of a member id where a member is named by its instance id alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group as ListGroups v5 names it."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """A member that is to be removed: by its member id, its instance id, or both.

    Args:
        member_id: Its member id; None: whichever member has the instance id.
        instance_id: Its `group.instance.id`.
    """

    member_id: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """What became of members that were to be removed.

    Args:
        error_code: Kafka's error code for the whole request.
        member_error_codes: One for each member, in the order in which they were named.
    """

    error_code: int = 0
    member_error_codes: tuple[int, ...] = ()


def leave_to_wire(group_id: str, members: Sequence[MemberIdentity], reason: str) -> Values:
    """Ask a coordinator to remove members.

    Args:
        group_id: Their group.
        members: The members.
        reason: What the coordinator's log says about it.
    """
    return {
        "group_id": group_id,
        "members": tuple(
            {
                "member_id": ANY_MEMBER_ID if each.member_id is None else each.member_id,
                "group_instance_id": each.instance_id,
                "reason": reason,
            }
            for each in members
        ),
    }


def leave_from_wire(values: Values) -> LeaveGroupResponse:
    """Read what a coordinator did; it answers for members in the order it was asked in."""
    return LeaveGroupResponse(
        error_code=values["error_code"],
        member_error_codes=tuple(each["error_code"] for each in values["members"]),
    )
