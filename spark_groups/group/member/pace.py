"""When the next heartbeat is due: after the broker's interval, or earlier if a change is expected.

A member may heartbeat faster than the broker's interval, without being throttled (measured): a
hand-over takes 5 s with 5 s heartbeats, 0.5 s with 0.5 s ones. A member that waits for partitions
sends one every `FAST_INTERVAL_S` for `FAST_PERIOD_S`, then doubles the interval up to the broker's.
"""

from __future__ import annotations

from typing import Final

from spark_groups.group.member.backoff import MAX_BACKOFF_S, Backoff

DEFAULT_INTERVAL_S: Final = 5.0
FAST_INTERVAL_S: Final = 0.3
FAST_PERIOD_S: Final = 10.0
BATCH_END_INTERVAL_S: Final = FAST_INTERVAL_S
"""A member that reads learns by these heartbeats that another one has left."""


class Pace:
    """Decides when a heartbeat is due; `fast=False` uses the broker's interval only."""

    def __init__(self, *, fast: bool = True) -> None:
        self.interval_s = DEFAULT_INTERVAL_S
        self.last_sent_at: float | None = None
        self.unanswered_since: float | None = None
        """When the oldest heartbeat was sent whose answer we do not have, but which the broker may
        have accepted."""
        self._fast = fast
        self._due_at: float | None = None
        self._not_before = 0.0
        self._expecting_since: float | None = None
        self._expecting_interval_s = FAST_INTERVAL_S
        self._backoff = Backoff()

    def due_at(self) -> float | None:
        """Return when the next heartbeat is due, None before the first."""
        return None if self._due_at is None else max(self._due_at, self._not_before)

    def at_once(self, now: float) -> None:
        """Make the next heartbeat due now, unless the broker throttles."""
        self._due_at = now if self._due_at is None else min(self._due_at, now)

    def at_batch_end(self, now: float) -> None:
        """Make one due at the end of a batch, at least `BATCH_END_INTERVAL_S` after the last."""
        if self._fast and self.last_sent_at is not None:
            due_at = max(now, self.last_sent_at + BATCH_END_INTERVAL_S)
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)

    def expect_assignment(self, now: float, *, more: bool) -> None:
        """Note whether a new assignment is expected: the target differs, or the epoch is behind."""
        if not more:
            self._expecting_since = None
        elif self._fast and self._expecting_since is None:
            self._expecting_since = now
            self._expecting_interval_s = FAST_INTERVAL_S
            self._schedule(now)

    def renew(self, now: float) -> None:
        """Note progress towards the expected assignment: restart the fast period."""
        if self._expecting_since is not None:
            self._expecting_since = now
            self._expecting_interval_s = FAST_INTERVAL_S
            self._schedule(now)

    def sent(self, now: float) -> None:
        """Note that a heartbeat was sent."""
        self.last_sent_at = now
        if self.unanswered_since is None:
            self.unanswered_since = now
        self._due_at = None

    def answered(self, now: float, *, interval_ms: int, throttle_ms: int) -> None:
        """Note an accepted heartbeat; one requested meanwhile stays due.

        Args:
            now: Seconds.
            interval_ms: The broker's heartbeat interval; ignored unless positive.
            throttle_ms: The broker's throttle time.
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

    def refused(self, now: float, *, throttle_ms: int, max_pause_s: float = MAX_BACKOFF_S) -> None:
        """Note a refused heartbeat: the next one waits, longer each time."""
        if self.unanswered_since == self.last_sent_at:
            self.unanswered_since = None
        self._not_before = max(self._not_before, now + throttle_ms / 1000)
        self.failed(now, max_pause_s)

    def failed(self, now: float, max_pause_s: float = MAX_BACKOFF_S) -> None:
        """Note a heartbeat without an answer: the next one waits, longer each time."""
        self._backoff.failed(now, max_pause_s)
        self._due_at = self._backoff.not_before

    def _schedule(self, now: float) -> None:
        interval_s = self.interval_s
        if self._expecting_since is not None:
            interval_s = min(interval_s, self._expecting_interval_s)
        due_at = (self.last_sent_at if self.last_sent_at is not None else now) + interval_s
        self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
