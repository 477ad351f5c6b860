"""The pause before a retry."""

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
