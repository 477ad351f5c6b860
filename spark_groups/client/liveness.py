"""Whether the query behind a member still lives: heartbeats alone do not prove it.

A query that lives calls again and again, or runs a batch. One that does neither for long enough
holds partitions that nobody reads: its member leaves, and joins again if Spark calls after all. How
long is long enough depends on the trigger, which no source is told: so it is measured, unless a
listener knows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from spark_groups.offsets.ledger import Ledger
from spark_groups.protocol.events import (
    BatchOverdue,
    BatchRunsLong,
    Event,
    QueryGone,
    QueryReturned,
)
from spark_groups.protocol.member import Member
from spark_groups.protocol.membership import ACTIVE, MemberState
from spark_groups.types import BatchPlan

LEAVE_S: Final = 5.0
"""How long a member whose query is gone may take to leave."""
LEAST_IDLE_S: Final = 600.0
GAPS_KEPT: Final = 16
PATIENCE: Final = 4
"""How many times the longest gap between two calls a query may be silent."""
FIRST_REPORT_S: Final = 300.0
"""When a batch is first called long; then each time it has taken twice as long."""


@dataclass(frozen=True, slots=True)
class LivenessLimits:
    """How long a query may be silent.

    Args:
        max_idle_s: Without a batch and without a call, in seconds; None: four times the longest
            of the last gaps between two calls, or the trigger's interval, at least ten minutes;
            infinite: for ever.
        max_batch_s: While a batch runs.
    """

    max_idle_s: float | None = None
    max_batch_s: float = inf


ADAPTIVE: Final = LivenessLimits()


class Sign(Enum):
    """What is found out about a query."""

    NONE = "nothing that needs to be said"
    LONG_BATCH = "a batch runs for long: to be said, no more"
    OVERDUE_BATCH = "a batch has run for longer than it may"
    GONE = "no batch runs, and nobody called for longer than is allowed"


class QueryActivity:
    """Follows calls and batches.

    Args:
        limits: How long the query may be silent.
    """

    def __init__(self, limits: LivenessLimits) -> None:
        self._limits = limits
        self._seen_at: float | None = None
        self._is_calling = False
        self._gaps_s: deque[float] = deque(maxlen=GAPS_KEPT)
        self._known_gap_s = 0.0
        self._batch: BatchPlan | None = None
        self._batch_began_at: float | None = None
        self._report_batch_at = inf
        self._due_at = inf
        """When there is something to be said or done: kept, for it is asked after every input."""

    @property
    def idle_limit_s(self) -> float:
        """For how long nobody may call while no batch runs, in seconds."""
        if self._limits.max_idle_s is not None:
            return self._limits.max_idle_s
        return max(LEAST_IDLE_S, PATIENCE * max((self._known_gap_s, *self._gaps_s)))

    @property
    def max_batch_s(self) -> float:
        """For how long a batch may run, in seconds."""
        return self._limits.max_batch_s

    def expect_calls_every(self, gap_s: float) -> None:
        """Take it that the query's trigger lets so much time pass between two calls.

        Args:
            gap_s: Seconds, from somebody who knows the trigger.
        """
        self._known_gap_s = gap_s
        self._set_due()

    def call_began(self, now: float) -> None:
        """Note that Spark calls."""
        if self._seen_at is not None:
            self._gaps_s.append(now - self._seen_at)
        self._seen_at = now
        self._is_calling = True
        self._set_due()

    def call_ended(self, now: float) -> None:
        """Note that Spark was answered."""
        self._seen_at = now
        self._is_calling = False
        self._set_due()

    def follow(self, in_flight: BatchPlan | None, now: float) -> None:
        """Note which batch runs, if one does."""
        if in_flight is self._batch:
            return
        if self._batch is not None and self._seen_at is not None:
            # The end of a batch is heard of in a call, or from a listener.
            self._seen_at = max(self._seen_at, now)
        self._batch = in_flight
        self._batch_began_at = None if in_flight is None else now
        self._report_batch_at = inf if in_flight is None else now + FIRST_REPORT_S
        self._set_due()

    def idle_s(self, now: float) -> float | None:
        """Return for how long nobody has called; None while a batch or a call is under way."""
        if self._seen_at is None or self._is_calling or self._batch is not None:
            return None
        return now - self._seen_at

    def batch_age_s(self, now: float) -> float | None:
        """Return for how long the batch has been running; None: there is none."""
        return None if self._batch_began_at is None else now - self._batch_began_at

    def judge(self, now: float) -> Sign:
        """Return what is to be said or done now; each long batch is told in growing intervals."""
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
    """Decides when the member of a silent query leaves and when it joins again."""

    member: Member
    ledger: Ledger
    activity: QueryActivity
    emit: Callable[[Event], None]
    is_absent: bool = field(default=False, init=False)
    """True from when the member leaves until it joins again."""
    _is_called_back: bool = field(default=False, init=False)
    _is_sent_away: bool = field(default=False, init=False)
    _is_over: bool = field(default=False, init=False)

    @property
    def is_member(self) -> bool:
        """True from the answer to a join until the member leaves by itself."""
        return self.member.member_epoch > 0 and not self.is_absent

    def called(self, now: float) -> None:
        """Note that Spark calls: an absent member is to come back."""
        self.activity.call_began(now)
        if self.is_absent and not self._is_called_back:
            self._is_called_back = True
            self.emit(QueryReturned(*self._who(now)))

    def call_ended(self, now: float) -> None:
        """Note that Spark was answered."""
        self.activity.call_ended(now)

    def must_leave(self, now: float) -> bool:
        """Tell whether the member must leave now; says why, and says that a batch runs for long."""
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
        self.is_absent = self._is_sent_away = True
        return True

    def leaves(self) -> None:
        """Note that the member is to leave: unless that was decided here, it never returns."""
        self._is_over = self._is_over or not self._is_sent_away
        self._is_sent_away = False

    def may_return(self) -> bool:
        """Tell whether the member joins again now; once for each return."""
        if self._is_over or not self._is_called_back:
            return False
        if self.member.state is not MemberState.UNSUBSCRIBED:
            return False
        self.is_absent = self._is_called_back = False
        return True

    def next_wakeup(self) -> float | None:
        """Return when to look again."""
        is_judged = self.member.state in ACTIVE and not self.is_absent
        return self.activity.next_wakeup() if is_judged else None

    def _who(self, now: float) -> tuple[float, str, int]:
        return now, self.member.member_id, self.member.member_epoch
