"""What a member does about a query that is silent: it leaves, and comes back if Spark calls."""

from __future__ import annotations

from typing import Final

from spark_groups.client.liveness import Liveness, LivenessLimits, Sign
from spark_groups.client.parts import Parts
from spark_groups.protocol.events import BatchOverdue, BatchRunsLong, QueryGone, QueryReturned
from spark_groups.protocol.membership import MemberState

LEAVE_S: Final = 5.0
"""How long a member whose query is gone may take to leave."""
_JUDGED: Final = (
    MemberState.JOINING,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.STABLE,
    MemberState.FENCED,
)


class Attendance:
    """Decides when the member of a silent query leaves and when it joins again.

    Args:
        parts: What the client is made of.
        limits: How long the query may be silent.
    """

    def __init__(self, parts: Parts, limits: LivenessLimits) -> None:
        self.liveness = Liveness(limits)
        self.is_absent = False
        """True from when the member leaves until it joins again."""
        self._is_called_back = False
        self._is_sent_away = False
        self._is_over = False
        self._parts = parts

    @property
    def is_member(self) -> bool:
        """True from the answer to a join until the member leaves by itself."""
        return self._parts.member.member_epoch > 0 and not self.is_absent

    def called(self, now: float) -> None:
        """Note that Spark calls: an absent member is to come back."""
        self.liveness.call_began(now)
        if self.is_absent and not self._is_called_back:
            self._is_called_back = True
            self._parts.events.append(QueryReturned(*self._who(now)))

    def call_ended(self, now: float) -> None:
        """Note that Spark was answered."""
        self.liveness.call_ended(now)

    def must_leave(self, now: float) -> bool:
        """Tell whether the member must leave now; says why, and says that a batch runs for long."""
        parts = self._parts
        self.liveness.follow(parts.ledger.in_flight, now)
        if self.is_absent or parts.member.state not in _JUDGED:
            return False
        sign = self.liveness.judge(now)
        if sign is Sign.NONE:
            return False
        match sign:
            case Sign.LONG_BATCH:
                age_s = self.liveness.batch_age_s(now) or 0.0
                parts.events.append(BatchRunsLong(*self._who(now), age_s))
                return False
            case Sign.OVERDUE_BATCH:
                age_s = self.liveness.batch_age_s(now) or 0.0
                limit_s = self.liveness.max_batch_s
                parts.events.append(BatchOverdue(*self._who(now), age_s, limit_s))
            case Sign.GONE:
                idle_s = self.liveness.idle_s(now) or 0.0
                limit_s = self.liveness.idle_limit_s
                parts.events.append(QueryGone(*self._who(now), idle_s, limit_s))
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
        if self._parts.member.state is not MemberState.UNSUBSCRIBED:
            return False
        self.is_absent = self._is_called_back = False
        return True

    def next_wakeup(self) -> float | None:
        """Return when to look again."""
        is_judged = self._parts.member.state in _JUDGED and not self.is_absent
        return self.liveness.next_wakeup() if is_judged else None

    def _who(self, now: float) -> tuple[float, str, int]:
        return now, self._parts.member.member_id, self._parts.member.member_epoch
