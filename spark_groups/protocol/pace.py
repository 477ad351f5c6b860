"""When the next heartbeat is due: the broker's interval, or faster while something is expected.

A member may heartbeat faster than it is told, and the broker does not throttle it (measured): with
5 s heartbeats a hand-over takes 5 s, with 0.5 s ones it takes 0.5 s. So a member that waits for
partitions asks every `FAST_INTERVAL_S` for `FAST_PERIOD_S`, then doubles up to the broker's own.
"""

from __future__ import annotations

from typing import Final

from spark_groups.protocol.backoff import Backoff

DEFAULT_INTERVAL_S: Final = 5.0
FAST_INTERVAL_S: Final = 0.3
FAST_PERIOD_S: Final = 10.0
BOUNDARY_INTERVAL_S: Final = 0.5


class Pace:
    """Decides when a heartbeat is due.

    Args:
        fast: False to use the broker's interval only.
    """

    def __init__(self, *, fast: bool = True) -> None:
        self.interval_s = DEFAULT_INTERVAL_S
        self.last_sent_at: float | None = None
        self.unanswered_since: float | None = None
        """When the first heartbeat was sent that the broker may have taken without being heard."""
        self._fast = fast
        self._due_at: float | None = None
        self._not_before = 0.0
        self._expecting_since: float | None = None
        self._expecting_interval_s = FAST_INTERVAL_S
        self._backoff = Backoff()

    def due_at(self) -> float | None:
        """Return when the next heartbeat is due, None before the first one was asked for."""
        return None if self._due_at is None else max(self._due_at, self._not_before)

    def at_once(self, now: float) -> None:
        """Make the next heartbeat due now; a throttle of the broker is obeyed all the same."""
        self._due_at = now if self._due_at is None else min(self._due_at, now)

    def at_boundary(self, now: float) -> None:
        """Make one due at the end of a batch, never closer than half a second to the last."""
        if self._fast and self.last_sent_at is not None:
            due_at = max(now, self.last_sent_at + BOUNDARY_INTERVAL_S)
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)

    def expect(self, now: float, *, more: bool) -> None:
        """Say whether the next assignment is awaited.

        Args:
            now: Seconds.
            more: True while the target differs from the assignment, or the epoch is behind.
        """
        if not more:
            self._expecting_since = None
        elif self._fast and self._expecting_since is None:
            self._expecting_since = now
            self._expecting_interval_s = FAST_INTERVAL_S
            self._schedule(now)

    def renew(self, now: float) -> None:
        """Take it that what is awaited came closer: the fast period begins anew."""
        if self._expecting_since is not None:
            self._expecting_since = now
            self._expecting_interval_s = FAST_INTERVAL_S
            self._schedule(now)

    def sent(self, now: float) -> None:
        """Note that a heartbeat was sent; nothing is due until it is answered."""
        self.last_sent_at = now
        if self.unanswered_since is None:
            self.unanswered_since = now
        self._due_at = None

    def answered(self, now: float, *, interval_ms: int, throttle_ms: int) -> None:
        """Note an accepted heartbeat; what was asked for while it was under way stays due.

        Args:
            now: Seconds.
            interval_ms: The interval the broker asks for; ignored unless positive.
            throttle_ms: How long the broker wants to hear nothing.
        """
        if interval_ms > 0:
            self.interval_s = interval_ms / 1000
        self.unanswered_since = None
        self._not_before = now + max(0, throttle_ms) / 1000
        self._backoff.succeeded()
        if (
            self._expecting_since is not None
            and now - self._expecting_since > FAST_PERIOD_S
            and self._expecting_interval_s < self.interval_s
        ):
            self._expecting_interval_s *= 2
        self._schedule(now)

    def refused(self, now: float, *, throttle_ms: int) -> None:
        """Note a heartbeat that was refused for now: the next waits, longer each time.

        Args:
            now: Seconds.
            throttle_ms: How long the broker wants to hear nothing.
        """
        if self.unanswered_since == self.last_sent_at:
            self.unanswered_since = None
        self._not_before = max(self._not_before, now + throttle_ms / 1000)
        self.failed(now)

    def failed(self, now: float) -> None:
        """Note a heartbeat that got no answer: the next waits, longer each time."""
        self._backoff.failed(now)
        self._due_at = self._backoff.not_before

    def _schedule(self, now: float) -> None:
        interval_s = self.interval_s
        if self._expecting_since is not None:
            interval_s = min(interval_s, self._expecting_interval_s)
        due_at = (self.last_sent_at if self.last_sent_at is not None else now) + interval_s
        self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
