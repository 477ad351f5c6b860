"""Detects a dead query behind a live member: heartbeats do not prove that Spark still calls.

A live query calls regularly or runs a batch. If it does neither for too long, its member leaves, so
that others read its partitions, and rejoins if Spark calls again. How long is too long depends on
the trigger interval: it is measured, unless a listener reports it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from spark_groups.group.ledger.ledger import Ledger
from spark_groups.group.member.events import (
    BatchOverdue,
    BatchRunsLong,
    Event,
    QueryGone,
    QueryReturned,
)
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_states import ACTIVE, MemberState
from spark_groups.types import BatchPlan

LEAVE_S: Final = 5.0
"""How long the member of an idle query may take to leave."""
LEAST_IDLE_S: Final = 600.0
GAPS_KEPT: Final = 16
PATIENCE: Final = 4
"""How many times the longest gap between two calls a query may be idle."""
FIRST_REPORT_S: Final = 300.0
"""When a long batch is first reported; then each time its duration has doubled."""


@dataclass(frozen=True, slots=True)
class LivenessLimits:
    """How long a query may be idle.

    Args:
        max_idle_s: Without a batch and without a call, in seconds; None: four times the longest
            recent gap between two calls or the trigger interval, at least ten minutes.
        max_batch_s: While a batch runs.
    """

    max_idle_s: float | None = None
    max_batch_s: float = inf


ADAPTIVE: Final = LivenessLimits()


class Sign(Enum):
    """A finding about a query."""

    NONE = "nothing to report"
    LONG_BATCH = "a batch runs for long: to report only"
    OVERDUE_BATCH = "a batch exceeded its limit"
    GONE = "no batch runs, and Spark has not called within the limit"


class QueryActivity:
    """Follows Spark's calls and batches."""

    def __init__(self, limits: LivenessLimits) -> None:
        self.last_called_at: float | None = None
        """When Spark called last, in seconds; None: it has not."""
        self._limits = limits
        self._seen_at: float | None = None
        self._is_calling = False
        self._gaps_s: deque[float] = deque(maxlen=GAPS_KEPT)
        self._known_gap_s = 0.0
        self._batch: BatchPlan | None = None
        self._batch_began_at: float | None = None
        self._report_batch_at = inf
        self._due_at = inf
        """When `judge` next has a finding; cached, because it is called after every input."""

    @property
    def idle_limit_s(self) -> float:
        """How long Spark may not call while no batch runs, in seconds."""
        if self._limits.max_idle_s is not None:
            return self._limits.max_idle_s
        return max(LEAST_IDLE_S, PATIENCE * max((self._known_gap_s, *self._gaps_s)))

    @property
    def max_batch_s(self) -> float:
        """How long a batch may run, in seconds."""
        return self._limits.max_batch_s

    def expect_calls_every(self, gap_s: float) -> None:
        """Note that the query's trigger calls every `gap_s` seconds."""
        self._known_gap_s = gap_s
        self._set_due()

    def call_began(self, now: float) -> None:
        """Note that Spark calls."""
        if self._seen_at is not None:
            self._gaps_s.append(now - self._seen_at)
        self._seen_at = self.last_called_at = now
        self._is_calling = True
        self._set_due()

    def call_ended(self, now: float) -> None:
        """Note that Spark's call returned."""
        self._seen_at = now
        self._is_calling = False
        self._set_due()

    def follow(self, in_flight: BatchPlan | None, now: float) -> None:
        """Note the running batch, if any."""
        if in_flight is self._batch:
            return
        if self._batch is not None and self._seen_at is not None:
            # Spark reports the end of a batch in a call, or through a listener.
            self._seen_at = max(self._seen_at, now)
        self._batch = in_flight
        self._batch_began_at = None if in_flight is None else now
        self._report_batch_at = inf if in_flight is None else now + FIRST_REPORT_S
        self._set_due()

    def idle_s(self, now: float) -> float | None:
        """Return how long Spark has not called; None during a batch or a call."""
        if self._seen_at is None or self._is_calling or self._batch is not None:
            return None
        return now - self._seen_at

    def batch_age_s(self, now: float) -> float | None:
        """Return how long the batch has been running; None without a batch."""
        return None if self._batch_began_at is None else now - self._batch_began_at

    def judge(self, now: float) -> Sign:
        """Return the finding that is due now."""
        if now < self._due_at:
            return Sign.NONE
        if self._batch_began_at is None:
            return Sign.GONE
        if now >= self._batch_began_at + self._limits.max_batch_s:
            return Sign.OVERDUE_BATCH
        self._report_batch_at = now + (now - self._batch_began_at)
        self._set_due()
        return Sign.LONG_BATCH

    def next_wakeup(self) -> float | None:
        """Return when to judge again."""
        return None if self._due_at == inf else self._due_at

    def _set_due(self) -> None:
        if self._batch_began_at is not None:
            overdue_at = self._batch_began_at + self._limits.max_batch_s
            self._due_at = min(self._report_batch_at, overdue_at)
        elif self._is_calling or self._seen_at is None:
            self._due_at = inf
        else:
            self._due_at = self._seen_at + self.idle_limit_s


@dataclass(slots=True)
class Liveness:
    """Decides when the member of an idle query leaves, and when it rejoins."""

    member: Member
    ledger: Ledger
    activity: QueryActivity
    emit: Callable[[Event], None]
    is_absent: bool = field(default=False, init=False)
    """True from when the member leaves until it rejoins."""
    _will_rejoin: bool = field(default=False, init=False)
    _leaves_idle_query: bool = field(default=False, init=False)
    _is_over: bool = field(default=False, init=False)

    @property
    def is_member(self) -> bool:
        """True from the answer to a join until the member leaves an idle query."""
        return self.member.member_epoch > 0 and not self.is_absent

    def called(self, now: float) -> None:
        """Note that Spark calls: an absent member will rejoin."""
        self.activity.call_began(now)
        if self.is_absent and not self._will_rejoin:
            self._will_rejoin = True
            self.emit(QueryReturned(*self._who(now)))

    def must_leave(self, now: float) -> bool:
        """Return whether the member must leave now; reports why, and reports long batches."""
        self.activity.follow(self.ledger.in_flight, now)
        if self.is_absent or self.member.state not in ACTIVE:
            return False
        sign = self.activity.judge(now)
        if sign is Sign.NONE:
            return False
        match sign:
            case Sign.LONG_BATCH:
                age_s = self.activity.batch_age_s(now) or 0.0
                self.emit(BatchRunsLong(*self._who(now), age_s))
                return False
            case Sign.OVERDUE_BATCH:
                age_s = self.activity.batch_age_s(now) or 0.0
                limit_s = self.activity.max_batch_s
                self.emit(BatchOverdue(*self._who(now), age_s, limit_s))
            case Sign.GONE:
                idle_s = self.activity.idle_s(now) or 0.0
                limit_s = self.activity.idle_limit_s
                self.emit(QueryGone(*self._who(now), idle_s, limit_s))
        self.is_absent = self._leaves_idle_query = True
        return True

    def leaves(self) -> None:
        """Note that the member leaves; it rejoins only if `must_leave` decided that."""
        self._is_over = self._is_over or not self._leaves_idle_query
        self._leaves_idle_query = False

    def may_rejoin(self) -> bool:
        """Return whether the member rejoins now; True once for each return."""
        if self._is_over or not self._will_rejoin:
            return False
        if self.member.state is not MemberState.UNSUBSCRIBED:
            return False
        self.is_absent = self._will_rejoin = False
        return True

    def next_wakeup(self) -> float | None:
        """Return when to look again."""
        is_judged = self.member.state in ACTIVE and not self.is_absent
        return self.activity.next_wakeup() if is_judged else None

    def _who(self, now: float) -> tuple[float, str, int]:
        return now, self.member.member_id, self.member.member_epoch
