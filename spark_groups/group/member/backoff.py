"""The pause before a retry, and how long an attempt may take."""

from __future__ import annotations

from typing import Final

FIRST_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 1.0


class Backoff:
    """When to retry; the pause doubles up to a limit."""

    def __init__(self) -> None:
        self.not_before = 0.0
        self._next_s = FIRST_BACKOFF_S

    def failed(self, now: float, max_s: float = MAX_BACKOFF_S) -> None:
        """Pause, longer each time."""
        pause_s = min(max_s, self._next_s)
        self.not_before = now + pause_s
        self._next_s = pause_s * 2

    def ended(self, now: float, *, accepted: bool) -> None:
        """Note the outcome of a request: pause unless it was accepted."""
        self.succeeded() if accepted else self.failed(now)

    def succeeded(self) -> None:
        """Return to the shortest pause."""
        self.not_before = 0.0
        self._next_s = FIRST_BACKOFF_S


class Patience:
    """How long the next attempt may take: twice as long as the last one did, within limits.

    An attempt that was cut off lets the next one take twice as long, so a broker that is slow is
    understood after a few attempts, and one that hangs delays others as little as possible.

    Args:
        first_s: The least time of an attempt.
        limit_s: The most.
    """

    def __init__(self, first_s: float, limit_s: float) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._needed_s = 0.0

    def seconds(self) -> float:
        """Return the timeout of the next attempt."""
        return min(self._limit_s, max(self._first_s, self._needed_s))

    def answered(self, took_s: float) -> None:
        """Note an answer."""
        self._needed_s = 2 * took_s

    def failed(self, took_s: float) -> None:
        """Note an attempt without an answer; one that failed at once changes nothing."""
        self._needed_s = max(self._needed_s, 2 * took_s)
