"""Changes of a group between two polls, as events with text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from spark_groups.group.member.messages import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from spark_groups.observation.views import GroupView, MemberView
from spark_groups.types import TopicPartition


class EventKind(Enum):
    """The kind of an event."""

    GROUP_STATE = "group state"
    GROUP_EPOCH = "group epoch"
    ASSIGNMENT_EPOCH = "assignment epoch"
    MEMBER_EPOCH = "member epoch"
    MEMBER_JOINED = "member joined"
    MEMBER_GONE = "member gone"
    REVOCATION_BEGAN = "revocation began"
    REVOCATION_ENDED = "revocation ended"
    PARTITIONS_RELEASED = "partitions released"
    PARTITIONS_MOVED = "partitions moved"
    COMMITS_REFUSED = "commits refused"
    DELETION_ALERT = "deletion alert"
    DELETION_ALERT_ENDED = "deletion alert ended"
    GROUP_MISSING = "group missing"
    NOT_READABLE = "not readable"
    READABLE = "readable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent:
    """A change of a group, detected by a poll.

    Args:
        at_s: The time of the poll, in seconds since 1970.
        text: A sentence without a full stop.
        member_id: The member concerned; the new owner of moved partitions.
        from_member_id: The previous owner; None: no known owner.
        took_s: Time since the change was first observed in progress; None: it never was.
        budget_used: Time taken as a fraction of the rebalance timeout, possibly above 1; None:
            unknown.
        move: The number of the group's move that it belongs to; None: it stands alone.
    """

    at_s: float
    kind: EventKind
    text: str
    member_id: str | None = None
    from_member_id: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    took_s: float | None = None
    budget_used: float | None = None
    move: int | None = None


def member_label(client_id: str, member_id: str) -> str:
    """Return a short name of a member: `flights-1 4f2a9c1b`.

    Member ids of the classic protocol begin with the client id, which is not repeated.
    """
    return f"{client_id} {member_id.removeprefix(client_id).strip('-')[:8]}".strip()


def label_of(member: MemberView) -> str:
    """Return the short name of a member."""
    return member_label(member.client_id, member.member_id)


def group_changes(before: GroupView, after: GroupView, at_s: float) -> Iterator[GroupEvent]:
    """Yield changes of the group's state and epochs, and of its members."""
    changed = (
        (EventKind.GROUP_EPOCH, "group epoch", before.group_epoch, after.group_epoch),
        (
            EventKind.ASSIGNMENT_EPOCH,
            "assignment epoch",
            before.assignment_epoch,
            after.assignment_epoch,
        ),
        (EventKind.GROUP_STATE, "group", before.group_state, after.group_state),
    )
    for kind, what, old, new in changed:
        if old != new:
            yield GroupEvent(at_s=at_s, kind=kind, text=f"{what} {_or_dash(old)} → {_or_dash(new)}")
    was = {member.member_id: member for member in before.members}
    now = {member.member_id: member for member in after.members}
    yield from _joined((member for member in after.members if member.member_id not in was), at_s)
    yield from _gone((member for member in before.members if member.member_id not in now), at_s)
    for member in after.members:
        if member.member_id in was:
            yield from _member_changes(was[member.member_id], member, at_s)


def _or_dash(value: object) -> str:
    return "—" if value is None else str(value)


def _joined(members: Iterable[MemberView], at_s: float) -> Iterator[GroupEvent]:
    for member in members:
        static = f" as {member.instance_id}" if member.instance_id else ""
        host = member.client_host or "an unknown host"
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.MEMBER_JOINED,
            text=f"{label_of(member)} joined{static} from {host}",
            member_id=member.member_id,
        )


def _gone(members: Iterable[MemberView], at_s: float) -> Iterator[GroupEvent]:
    for member in members:
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.MEMBER_GONE,
            # The coordinator does not report which of the two.
            text=f"{label_of(member)} left or was removed",
            member_id=member.member_id,
        )


def _member_changes(before: MemberView, after: MemberView, at_s: float) -> Iterator[GroupEvent]:
    old, new = before.member_epoch, after.member_epoch
    if old != new:
        may_return = new == LEAVE_GROUP_STATIC_MEMBER_EPOCH
        change = "left and may return" if may_return else f"epoch {_or_dash(old)} → {_or_dash(new)}"
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.MEMBER_GONE if may_return else EventKind.MEMBER_EPOCH,
            text=f"{label_of(after)} {change}",
            member_id=after.member_id,
        )
    if before.local is None or after.local is None:
        return
    refused = after.local.commits_refused - before.local.commits_refused
    if refused > 0:
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.COMMITS_REFUSED,
            text=f"{label_of(after)}: offset commits refused: {refused:,}",
            member_id=after.member_id,
        )
