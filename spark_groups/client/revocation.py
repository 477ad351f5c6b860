"""How much of the rebalance time-out a revocation has used, and what is said or done about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_groups.offsets.events import RevocationBudgetUsed
from spark_groups.types import Assignment, BatchPlan

WARN_PERCENT: Final = (50, 80)
GIVE_UP_PERCENT: Final = 90
MAX_REBALANCE_TIMEOUT_MS: Final = 3_600_000


class RevocationBudget:
    """Follows one revocation after another against its deadline."""

    def __init__(self) -> None:
        self._told_at: float | None = None
        self._warned: set[int] = set()
        self._offsets_per_s: float | None = None
        self._batch_began_at: float | None = None
        self._batch_offsets = 0

    def batch_began(self, plan: BatchPlan, now: float) -> None:
        """Note a batch that begins to run."""
        self._batch_began_at = now
        self._batch_offsets = sum(len(each) for each in plan.ranges)

    def batch_finished(self, now: float) -> None:
        """Note that it is finished: its speed says which limit would have fitted."""
        if self._batch_began_at is not None and now > self._batch_began_at and self._batch_offsets:
            self._offsets_per_s = self._batch_offsets / (now - self._batch_began_at)
        self._batch_began_at = None

    def is_over(self, told_at: float, timeout_s: float, now: float) -> bool:
        """Tell whether what is contested must be given up, so that the rest is kept."""
        return now >= self.give_up_at(told_at, timeout_s)

    def give_up_at(self, told_at: float, timeout_s: float) -> float:
        """Return when the budget is over, in seconds."""
        return _mark(told_at, timeout_s, GIVE_UP_PERCENT)

    def warnings(
        self, told_at: float, timeout_s: float, contested: Assignment, now: float
    ) -> Iterator[RevocationBudgetUsed]:
        """Yield each warning that is due, once for each revocation."""
        if self._told_at != told_at:
            self._told_at = told_at
            self._warned = set()
        for percent in WARN_PERCENT:
            if now >= _mark(told_at, timeout_s, percent) and percent not in self._warned:
                self._warned.add(percent)
                yield RevocationBudgetUsed(
                    now, percent, tuple(contested), self._fitting_offsets(timeout_s, now)
                )

    def next_mark(self, told_at: float, timeout_s: float, now: float) -> float | None:
        """Return when the next warning, or the giving up, is due."""
        marks = [_mark(told_at, timeout_s, each) for each in (*WARN_PERCENT, GIVE_UP_PERCENT)]
        return next((mark for mark in marks if mark > now), None)

    def _fitting_offsets(self, timeout_s: float, now: float) -> int | None:
        speed = self._offsets_per_s
        if speed is None and self._batch_began_at is not None and now > self._batch_began_at:
            speed = self._batch_offsets / (now - self._batch_began_at)
        return None if speed is None else max(1, int(speed * timeout_s / 2))


def _mark(told_at: float, timeout_s: float, percent: int) -> float:
    """The one formula for when a share is used up, so that a wake-up is never just too early."""
    return told_at + timeout_s * percent / 100


def timeout_for_gap(gap_s: float, rebalance_timeout_ms: int) -> int | None:
    """Return the larger rebalance time-out that calls this far apart need, None if it is enough.

    Args:
        gap_s: Seconds between two calls of Spark.
        rebalance_timeout_ms: The time-out that holds now.
    """
    if gap_s * 2_000 <= rebalance_timeout_ms:
        return None
    wanted = min(MAX_REBALANCE_TIMEOUT_MS, int(gap_s * 4_000))
    return wanted if wanted > rebalance_timeout_ms else None
