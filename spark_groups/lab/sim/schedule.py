"""Virtual time: one heap of things to do, and the clocks of members, which run fast or slow."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


class Schedule:
    """Everything that is going to happen, in order; nothing happens beside it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        """How many things have happened."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Let something happen later; things of the same instant happen in the order asked.

        Args:
            when: Seconds; what is in the past happens next.
        """
        self._asked += 1
        heapq.heappush(self._heap, (max(when, self.now), self._asked, act))

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Let something happen in so many seconds; never in less than none."""
        self._asked += 1
        when = self.now + (delay_s if delay_s > 0.0 else 0.0)
        heapq.heappush(self._heap, (when, self._asked, act))

    def run_until(self, end: float) -> None:
        """Let everything happen up to an instant, that instant included."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, act = heapq.heappop(heap)
            self.steps += 1
            act()
        self.now = end

    def run_steps(self, count: int) -> None:
        """Let so many things happen."""
        last = self.steps + count
        while self._heap and self.steps < last:
            self.now, _, act = heapq.heappop(self._heap)
            self.steps += 1
            act()


ROUNDING_S: Final = 1e-6
"""A wake-up comes so much late where a clock is not exact: never a moment too early."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A member's clock.

    Args:
        offset_s: What it shows when the run begins.
        rate: How many of its seconds pass in one of the run's.
    """

    offset_s: float = 0.0
    rate: float = 1.0

    def local(self, now: float) -> float:
        """Return what the clock shows at an instant of the run."""
        return self.offset_s + self.rate * now

    def instant(self, local: float) -> float:
        """Return the instant of the run at which the clock shows something."""
        if self.rate == 1.0 and self.offset_s == 0.0:
            return local
        return (local - self.offset_s) / self.rate + ROUNDING_S


EXACT: Final = Clock()
