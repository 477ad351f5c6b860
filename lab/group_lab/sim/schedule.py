"""Virtual time: one heap of actions, and the clocks of members, which run fast or slow."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


class Schedule:
    """All future actions of a run, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Schedule an action; actions of the same instant run in the order scheduled.

        Args:
            when: Seconds; an action in the past runs next.
        """
        self._asked += 1
        heapq.heappush(self._heap, (max(when, self.now), self._asked, act))

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Schedule an action after a delay; a negative delay counts as 0."""
        self._asked += 1
        when = self.now + (delay_s if delay_s > 0.0 else 0.0)
        heapq.heappush(self._heap, (when, self._asked, act))

    def run_until(self, end: float) -> None:
        """Run all actions up to and including an instant."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, act = heapq.heappop(heap)
            self.steps += 1
            act()
        self.now = end

    def run_steps(self, count: int) -> None:
        """Run so many actions."""
        last = self.steps + count
        while self._heap and self.steps < last:
            self.now, _, act = heapq.heappop(self._heap)
            self.steps += 1
            act()


ROUNDING_S: Final = 1e-6
"""How late a wake-up comes where the clock is not exact, so that it never comes early."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A member's clock.

    Args:
        offset_s: Its time at the start of the run.
        rate: Its seconds in one second of the run.
    """

    offset_s: float = 0.0
    rate: float = 1.0

    def local(self, now: float) -> float:
        """Return the clock's time at an instant of the run."""
        return self.offset_s + self.rate * now

    def instant(self, local: float) -> float:
        """Return the instant of the run for a time of the clock."""
        if self.rate == 1.0 and self.offset_s == 0.0:
            return local
        return (local - self.offset_s) / self.rate + ROUNDING_S


EXACT: Final = Clock()
