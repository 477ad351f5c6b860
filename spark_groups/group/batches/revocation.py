"""The time budget of a revocation, and its hold for a rebalance listener."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from spark_groups.group.ledger.events import PartitionsGivenUp, RevocationBudgetUsed, RevocationHeld
from spark_groups.group.ledger.positions import Positions
from spark_groups.types import NO_PARTITIONS, Assignment, BatchPlan

WARN_PERCENT: Final = (50, 80)
GIVE_UP_PERCENT: Final = 90
MAX_REBALANCE_TIMEOUT_MS: Final = 3_600_000


class RevocationBudget:
    """Follows each revocation against its deadline."""

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._warned: set[int] = set()
        self._offsets_per_s: float | None = None
        self._batch_began_at: float | None = None
        self._batch_offsets = 0

    def batch_began(self, plan: BatchPlan, now: float) -> None:
        """Note that a batch begins."""
        self._batch_began_at = now
        self._batch_offsets = sum(len(offset_range) for offset_range in plan.ranges)

    def batch_finished(self, now: float) -> None:
        """Note that the batch is finished, to measure its speed."""
        if self._batch_began_at is not None and now > self._batch_began_at and self._batch_offsets:
            self._offsets_per_s = self._batch_offsets / (now - self._batch_began_at)
        self._batch_began_at = None

    def is_over(self, requested_at: float, timeout_s: float, now: float) -> bool:
        """Return whether the delaying partitions must be released, so that the rest is kept."""
        return now >= self.give_up_at(requested_at, timeout_s)

    def give_up_at(self, requested_at: float, timeout_s: float) -> float:
        """Return when the budget is used up, in seconds."""
        return _mark(requested_at, timeout_s, GIVE_UP_PERCENT)

    def warnings(
        self, requested_at: float, timeout_s: float, delaying: Assignment, now: float
    ) -> Iterator[RevocationBudgetUsed]:
        """Yield each warning that is due, once for each revocation."""
        if self._told_at != requested_at:
            self._told_at = requested_at
            self._warned = set()
        for percent in WARN_PERCENT:
            if now >= _mark(requested_at, timeout_s, percent) and percent not in self._warned:
                self._warned.add(percent)
                yield RevocationBudgetUsed(
                    now, percent, tuple(delaying), self._fitting_offsets(timeout_s, now)
                )

    def next_mark(self, requested_at: float, timeout_s: float, now: float) -> float | None:
        """Return when the next warning, or the release, is due."""
        marks = [_mark(requested_at, timeout_s, each) for each in (*WARN_PERCENT, GIVE_UP_PERCENT)]
        return next((mark for mark in marks if mark > now), None)

    def _fitting_offsets(self, timeout_s: float, now: float) -> int | None:
        speed = self._offsets_per_s
        if speed is None and self._batch_began_at is not None and now > self._batch_began_at:
            speed = self._batch_offsets / (now - self._batch_began_at)
        return None if speed is None else max(1, int(speed * timeout_s / 2))


class RevocationHold:
    """Holds the acknowledgement of a revocation until a rebalance listener has finished.

    The listener is called when no batch reads the partitions and everything finished is committed.
    The acknowledgement waits for it until the budget is used up. Each revocation has its own
    number.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether there is a listener."""
        self._number = 0
        self._held = NO_PARTITIONS
        self._is_released = True

    def begin(self, revoking: Assignment, deadline: float, now: float) -> RevocationHeld | None:
        """Hold a revocation; None without a listener, or if it is held already.

        A larger set of partitions is another revocation.
        """
        if not self.is_wanted or revoking == self._held:
            return None
        self._number += 1
        self._held, self._is_released = revoking, False
        return RevocationHeld(now, self._number, tuple(sorted(revoking)), deadline)

    def holds(self) -> bool:
        """Return whether the acknowledgement must wait."""
        return self.is_wanted and not self._is_released

    def release(self, number: int) -> None:
        """Release a revocation by its number; an old number is ignored."""
        if number == self._number:
            self._is_released = True

    def forget(self) -> None:
        """Note that the revocation is over: acknowledged, or its partitions lost."""
        self._held, self._is_released = NO_PARTITIONS, True


@dataclass(slots=True)
class Revocation:
    """Decides when to acknowledge a revocation: its reads are committed, or time is up."""

    positions: Positions
    budget: RevocationBudget = field(default_factory=RevocationBudget, init=False)
    hold: RevocationHold = field(default_factory=RevocationHold, init=False)

    def may_be_acknowledged(self, now: float) -> bool:
        """Return whether to acknowledge now; emits warnings, and released partitions."""
        positions, member, budget = self.positions, self.positions.member, self.budget
        delaying = positions.ledger.delaying_revocation(
            member.revoking,
            positions.commits.pending(),
            commits_start_first=positions.resolver.commits_start_first,
        )
        requested_at, timeout_s = member.revocation_requested_at, member.revocation_timeout_s
        if delaying and requested_at is not None:
            for warning in budget.warnings(requested_at, timeout_s, delaying, now):
                positions.emit(warning)
            if not budget.is_over(requested_at, timeout_s, now):
                return False
            positions.emit(PartitionsGivenUp(now, tuple(delaying)))
        elif requested_at is not None and not budget.is_over(requested_at, timeout_s, now):
            deadline = budget.give_up_at(requested_at, timeout_s)
            held = self.hold.begin(member.revoking, deadline, now)
            if held is not None:
                positions.emit(held)
            return not self.hold.holds()
        return True

    def next_wakeup(self, now: float) -> float | None:
        """Return when to look again without input."""
        member = self.positions.member
        if member.revocation_requested_at is None:
            return None
        return self.budget.next_mark(
            member.revocation_requested_at, member.revocation_timeout_s, now
        )


def _mark(requested_at: float, timeout_s: float, percent: int) -> float:
    """The only formula for it, so that a wakeup is never just too early."""
    return requested_at + timeout_s * percent / 100


def timeout_for_gap(gap_s: float, rebalance_timeout_ms: int) -> int | None:
    """Return the larger rebalance timeout that such a gap between calls needs, None if none.

    Args:
        gap_s: Seconds between two calls of Spark.
    """
    if gap_s * 2_000 <= rebalance_timeout_ms:
        return None
    wanted = min(MAX_REBALANCE_TIMEOUT_MS, int(gap_s * 4_000))
    return wanted if wanted > rebalance_timeout_ms else None
