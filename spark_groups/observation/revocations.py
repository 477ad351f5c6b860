"""Revocations under way, with the share of the rebalance timeout that they have used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_groups.observation.group_events import EventKind, GroupEvent, label_of
from spark_groups.observation.plain_values import View, partition_ranges
from spark_groups.observation.views import GroupView, MemberView
from spark_groups.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation(View):
    """The partitions that a member must still revoke.

    Args:
        since_s: When the revocation began, as the member reports it, or else when it was first
            observed, in seconds since 1970.
        age_s: Its age as the member reports it; None: the member does not run on this machine.
        rebalance_timeout_s: None: unknown.
        budget_used: The used fraction of the rebalance timeout; None: unknown.
    """

    member_id: str
    label: str
    partitions: tuple[TopicPartition, ...]
    since_s: float
    age_s: float | None = None
    rebalance_timeout_s: float | None = None
    budget_used: float | None = None


class Revocations:
    """The revocations under way in a group."""

    def __init__(self) -> None:
        self._under_way: dict[str, Revocation] = {}

    def under_way(self) -> tuple[Revocation, ...]:
        """Return the revocations under way, the oldest first."""
        return tuple(sorted(self._under_way.values(), key=lambda each: each.since_s))

    def look(self, view: GroupView, at_s: float) -> list[GroupEvent]:
        """Record the revocations in a view, and return those that began and ended."""
        before, self._under_way = self._under_way, {}
        events = []
        for member in view.members:
            revoking = _revoking(member)
            if not revoking:
                continue
            old = before.get(member.member_id)
            now = _revocation(member, revoking, at_s, old)
            self._under_way[member.member_id] = now
            if old is None:
                events.append(_began(now, at_s))
        members = {each.member_id for each in view.members}
        ended = (each for each in before.values() if each.member_id not in self._under_way)
        return [*_ended(ended, members, at_s), *events]


def _revoking(member: MemberView) -> tuple[TopicPartition, ...]:
    """Before Kafka 4.3 only the member itself knows the partitions that it must revoke."""
    local = member.local.revoking if member.local is not None else ()
    return tuple(sorted({*member.revoking, *local}))


def _revocation(
    member: MemberView,
    revoking: tuple[TopicPartition, ...],
    at_s: float,
    before: Revocation | None,
) -> Revocation:
    local = member.local
    age_s = None if local is None else local.revocation_age_s
    timeout_s = None if local is None else local.revocation_timeout_s
    seen_since_s = at_s if before is None else before.since_s
    since_s = seen_since_s if age_s is None else min(seen_since_s, at_s - age_s)
    return Revocation(
        member_id=member.member_id,
        label=label_of(member),
        partitions=revoking,
        since_s=round(since_s, 3),
        age_s=age_s,
        rebalance_timeout_s=timeout_s,
        budget_used=None if age_s is None or not timeout_s else round(age_s / timeout_s, 4),
    )


def _began(now: Revocation, at_s: float) -> GroupEvent:
    timeout_s = now.rebalance_timeout_s
    within = "" if timeout_s is None else f" within {timeout_s:g} s"
    return GroupEvent(
        at_s=at_s,
        kind=EventKind.REVOCATION_BEGAN,
        text=f"{now.label} must revoke {partition_ranges(now.partitions)}{within}",
        member_id=now.member_id,
        partitions=now.partitions,
        budget_used=now.budget_used,
    )


def _ended(ended: Iterator[Revocation], members: set[str], at_s: float) -> Iterator[GroupEvent]:
    for each in ended:
        took_s = round(at_s - each.since_s, 3)
        timeout_s = each.rebalance_timeout_s
        used = None if timeout_s is None else round(took_s / timeout_s, 4)
        what = partition_ranges(each.partitions)
        if each.member_id in members:
            result = f"revoked {what} after {took_s:.1f} s"
        else:
            result = f"left the group before it revoked {what}"
        share = "" if used is None else f", {used:.0%} of its rebalance timeout"
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.REVOCATION_ENDED,
            text=f"{each.label} {result}{share}",
            member_id=each.member_id,
            partitions=each.partitions,
            took_s=took_s,
            budget_used=used,
        )
