"""Whether a member is healthy, for liveness and readiness probes and for people.

Everything that can end a membership or delay other members has a deadline. A probe that waits for
the deadline is too late, because the coordinator has acted by then, so a member is unhealthy after
half of it. A restart is asked for only if it helps: not if brokers are unreachable, nor for a long
batch that delays no other member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from spark_groups.group.member.member_states import MemberState
from spark_groups.group.snapshot import MemberSnapshot

SHARE: Final = 0.5
"""The part of a deadline after which a member is unhealthy."""


class Condition(Enum):
    """The condition of a member; the gravest first."""

    FAILED = "the member failed for good: its query ends"
    STUCK = "half of a deadline has passed, and only a restart of the process helps"
    CUT_OFF = "half of the session timeout has passed without a heartbeat; brokers do not answer"
    OUTSIDE = "not a member of the group: joining or leaving"
    SLOW = "a batch has used half of the rebalance timeout; no other member waits for it"
    STANDBY = "a member that owns no partition"
    READING = "a member that owns partitions"


NOT_LIVE: Final = (Condition.FAILED, Condition.STUCK)
READY: Final = (Condition.STANDBY, Condition.READING)
_OUTSIDE: Final = {
    MemberState.UNSUBSCRIBED: "it is not a member of the group",
    MemberState.WARMING_UP: "it joins the group when its query has warmed up",
    MemberState.JOINING: "it is joining the group",
    MemberState.FENCED: "it was fenced and will rejoin",
    MemberState.PREPARE_LEAVING: "it is leaving the group",
    MemberState.LEAVING: "it is leaving the group",
}


@dataclass(frozen=True, slots=True)
class Health:
    """The condition of a member, with a sentence for each problem."""

    condition: Condition
    reasons: tuple[str, ...] = ()

    @property
    def is_live(self) -> bool:
        """False if the process should be restarted."""
        return self.condition not in NOT_LIVE

    @property
    def is_ready(self) -> bool:
        """True if the member is in the group and healthy."""
        return self.condition in READY

    def as_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "condition": self.condition.name,
            "is_live": self.is_live,
            "is_ready": self.is_ready,
            "reasons": list(self.reasons),
        }


def assess(member: MemberSnapshot) -> Health:
    """Return the health of a member at the time of its snapshot."""
    found = [(condition, text) for condition, check in _CHECKS for text in check(member)]
    if not found:
        return Health(Condition.READING if member.assigned else Condition.STANDBY)
    gravest = min((condition for condition, _ in found), key=list(Condition).index)
    return Health(gravest, tuple(text for _, text in found))


def _failed(member: MemberSnapshot) -> Iterator[str]:
    if member.failure:
        yield member.failure


def _does_not_send(member: MemberSnapshot) -> Iterator[str]:
    age_s = _silence_s(member)
    if age_s is not None and _is_own_fault(member):
        yield f"{_silent(member, age_s)}, and the next one is overdue"


def _is_cut_off(member: MemberSnapshot) -> Iterator[str]:
    age_s = _silence_s(member)
    if age_s is not None and not _is_own_fault(member):
        yield f"{_silent(member, age_s)}: {member.unreachable_reason or 'no answer yet'}"


def _holds_up_a_revocation(member: MemberSnapshot) -> Iterator[str]:
    age_s, limit_s = member.revocation_age_s, member.revocation_timeout_s
    if _is_over_its_share(age_s, limit_s) and not any(_is_cut_off(member)):
        partitions = len(member.revoking)
        yield (
            f"a revocation of {partitions} partitions has been pending for {age_s:.0f} s; the"
            f" coordinator removes the member after {limit_s:g} s"
        )


def _is_not_called(member: MemberSnapshot) -> Iterator[str]:
    if member.left_because_idle:
        yield "the member left: its query is idle, or a batch took longer than maxBatchTime"
    age_s, limit_s = member.idle_s, member.idle_limit_s
    if _is_over_its_share(age_s, limit_s):
        yield (
            f"no batch runs and Spark has not called for {age_s:.0f} s; the member leaves after"
            f" {limit_s:g} s (maxIdleTime)"
        )


def _outlives_its_batch(member: MemberSnapshot) -> Iterator[str]:
    age_s, limit_s = member.batch_age_s, member.batch_limit_s
    if _is_over_its_share(age_s, limit_s):
        yield (
            f"a batch has been running for {age_s:.0f} s; the member leaves after {limit_s:g} s"
            " (maxBatchTime)"
        )


def _does_not_commit(member: MemberSnapshot) -> Iterator[str]:
    age_s, limit_s = member.uncommitted_age_s, _rebalance_timeout_s(member)
    if _is_over_its_share(age_s, limit_s) and not any(_is_cut_off(member)):
        partitions = len(member.uncommitted)
        yield f"offsets of {partitions} partitions have been uncommitted for {age_s:.0f} s"


def _is_outside(member: MemberSnapshot) -> Iterator[str]:
    if member.state in _OUTSIDE:
        left_s = member.instance_wait_left_s
        waits = "" if left_s is None else f"; it waits up to {left_s:.0f} s for its instance id"
        yield f"{_OUTSIDE[member.state]}{waits}"


def _is_slow(member: MemberSnapshot) -> Iterator[str]:
    age_s, limit_s = member.batch_age_s, _rebalance_timeout_s(member)
    if _is_over_its_share(age_s, limit_s):
        yield (
            f"a batch has been running for {age_s:.0f} s: a revocation would wait for it, and the"
            f" rebalance timeout is {limit_s:g} s"
        )


Check = Callable[[MemberSnapshot], Iterator[str]]
_CHECKS: Final[tuple[tuple[Condition, Check], ...]] = (
    (Condition.FAILED, _failed),
    (Condition.STUCK, _does_not_send),
    (Condition.STUCK, _holds_up_a_revocation),
    (Condition.STUCK, _is_not_called),
    (Condition.STUCK, _outlives_its_batch),
    (Condition.STUCK, _does_not_commit),
    (Condition.CUT_OFF, _is_cut_off),
    (Condition.OUTSIDE, _is_outside),
    (Condition.SLOW, _is_slow),
)


def _silence_s(member: MemberSnapshot) -> float | None:
    """Return the age of the last accepted heartbeat, if too old."""
    if member.state is MemberState.UNSUBSCRIBED:
        return None
    age_s = member.last_heartbeat_age_s
    return age_s if _is_over_its_share(age_s, member.proven_for_s) else None


def _is_own_fault(member: MemberSnapshot) -> bool:
    """Whether a heartbeat is due and only this process keeps it from being sent."""
    return bool(member.heartbeat_overdue_s) and member.unreachable_age_s is None


def _silent(member: MemberSnapshot, age_s: float) -> str:
    return f"no heartbeat was accepted for {age_s:.0f} s (limit: {member.proven_for_s:g} s)"


def _rebalance_timeout_s(member: MemberSnapshot) -> float | None:
    timeout_ms = member.rebalance_timeout_ms
    return None if timeout_ms is None else timeout_ms / 1000


def _is_over_its_share(age_s: float | None, limit_s: float | None) -> bool:
    return age_s is not None and limit_s is not None and age_s >= SHARE * limit_s
