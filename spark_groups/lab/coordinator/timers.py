"""The timers of one event loop: by key, the earliest first, in virtual time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from spark_groups.lab.coordinator.effects import Timer, TimerKey


@dataclass(slots=True)
class Timers:
    """Timers that are set; those of one instant fire in the order in which they were set.

    A timer that is set anew leaves its old place in the queue behind, which is skipped later.
    """

    _by_key: dict[TimerKey, tuple[int, Timer]] = field(default_factory=dict)
    _queue: list[tuple[float, int, TimerKey]] = field(default_factory=list)
    _count: int = 0

    def get(self, key: TimerKey) -> Timer | None:
        """Return the timer of a key, None if it is not set."""
        found = self._by_key.get(key)
        return found[1] if found else None

    def put(self, timer: Timer) -> None:
        """Set a timer, or stop it."""
        if timer.at is None:
            self._by_key.pop(timer.key, None)
            return
        self._count += 1
        self._by_key[timer.key] = (self._count, timer)
        heapq.heappush(self._queue, (timer.at, self._count, timer.key))

    def next_at(self) -> float | None:
        """Return when the next timer fires, in seconds."""
        while self._queue:
            at, number, key = self._queue[0]
            found = self._by_key.get(key)
            if found is not None and found[0] == number:
                return at
            heapq.heappop(self._queue)
        return None

    def pop_due(self, now: float) -> Timer | None:
        """Take out the next timer that is due."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._queue)
        return self._by_key.pop(key)[1]
