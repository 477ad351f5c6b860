"""The assignors that members bring: which one a group uses, and which member may run it.

Source: KIP-848, "Assignor Selection", "Metadata Version Handling", "Member Selection". Kafka never
shipped this; where the text leaves something open, docs/decisions/0012 says what is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.member import ClientAssignor, GroupMember
from spark_groups.lab.coordinator.messages import KipHeartbeatRequest
from spark_groups.lab.coordinator.refusal import RefusedError, Rule, check_rules
from spark_groups.protocol.messages import HeartbeatRequest

_RULES: Final[tuple[Rule[ClientAssignor], ...]] = (
    Rule(lambda each: not each.name, "Assignor.Name can't be empty."),
    Rule(lambda each: each.minimum_version < -1, "Assignor.MinimumVersion must be >= -1."),
    Rule(
        lambda each: each.maximum_version < max(0, each.minimum_version),
        "Assignor.MaximumVersion must be >= 0 and >= Assignor.MinimumVersion.",
    ),
    Rule(
        lambda each: not each.minimum_version <= each.metadata_version <= each.maximum_version,
        "Assignor.Version must be between Assignor.MinimumVersion and Assignor.MaximumVersion.",
    ),
)


def told(
    member: GroupMember, request: HeartbeatRequest, members: Mapping[str, GroupMember]
) -> GroupMember:
    """Return a member with the assignors that it brings.

    Args:
        member: The member as it was.
        request: Its heartbeat; None as its assignors leaves them as they are.
        members: The group's members.

    Raises:
        RefusedError: INVALID_REQUEST where no group would take them (KIP-848, "Request
            Validation"), UNSUPPORTED_ASSIGNOR where their versions overlap with nobody's.
    """
    if not isinstance(request, KipHeartbeatRequest) or request.client_assignors is None:
        return member
    if request.client_assignors and request.server_assignor is not None:
        message = "ServerAssignor and ClientAssignors can't be used together."
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    for each in request.client_assignors:
        check_rules(each, _RULES)
    changed = replace(member, client_assignors=request.client_assignors)
    _check_versions(changed, members)
    return changed if changed != member else member


def _check_versions(member: GroupMember, members: Mapping[str, GroupMember]) -> None:
    for own in member.client_assignors:
        for other in members.values():
            theirs = None if _is_same(member, other) else _named(other, own.name)
            if theirs and not _overlap(own, theirs):
                raise RefusedError(
                    ErrorCode.UNSUPPORTED_ASSIGNOR,
                    f"The versions {own.minimum_version} to {own.maximum_version} of ClientAssignor"
                    f" {own.name} do not overlap with those of member {other.member_id}.",
                )


def _is_same(member: GroupMember, other: GroupMember) -> bool:
    """Tell whether a member is another's next life, or the one whose place it takes."""
    same_instance = member.instance_id is not None and member.instance_id == other.instance_id
    return member.member_id == other.member_id or same_instance


def chosen(members: Mapping[str, GroupMember]) -> str | None:
    """Return the client-side assignor that a group uses; None if the server's is used.

    It is one that every member supports and that some member can run; of several, the one that
    most members have before the others.

    Args:
        members: The group's members.
    """
    if not members:
        return None
    named = [{each.name for each in member.client_assignors} for member in members.values()]
    common = {each for each in set.intersection(*named) if readers(members, each)}
    votes = Counter(
        next(each.name for each in member.client_assignors if each.name in common)
        for member in members.values()
        if common
    )
    return min(votes, key=lambda name: (-votes[name], name), default=None)


def readers(members: Mapping[str, GroupMember], assignor: str) -> list[str]:
    """Return who may run an assignor: who handles all versions that the others support.

    If nobody does, it is who can read the metadata of all.

    Args:
        members: The group's members, all of which support it.
        assignor: Its name.
    """
    brought = {
        member_id: own
        for member_id, member in members.items()
        if (own := _named(member, assignor)) is not None
    }
    least = min(each.minimum_version for each in brought.values())
    greatest = max(each.maximum_version for each in brought.values())
    handles_all = [
        member_id
        for member_id, own in brought.items()
        if own.minimum_version <= least and own.maximum_version >= greatest
    ]
    used = {each.metadata_version for each in brought.values()}
    return handles_all or [
        member_id
        for member_id, own in brought.items()
        if own.minimum_version <= min(used) and own.maximum_version >= max(used)
    ]


def brought_by(member: GroupMember, assignor: str) -> ClientAssignor:
    """Return what a member told of an assignor; the defaults if it told nothing."""
    return _named(member, assignor) or ClientAssignor(assignor)


def _named(member: GroupMember, assignor: str) -> ClientAssignor | None:
    return next((each for each in member.client_assignors if each.name == assignor), None)


def _overlap(one: ClientAssignor, other: ClientAssignor) -> bool:
    return (
        one.minimum_version <= other.maximum_version
        and other.minimum_version <= one.maximum_version
    )
