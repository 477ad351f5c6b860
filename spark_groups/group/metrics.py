"""Counters and timers of a client, named as in Kafka's consumer where it has the same."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, Final

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.counts import Count
from spark_groups.group.ledger import events as offset
from spark_groups.group.member import events as member
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    Request,
    Response,
)

WINDOW_S: Final = 30.0
"""A maximum covers this window and the one before, as in Kafka's metrics."""
NO_ANSWER: Final = "no answer"
MEMBER_IDS_KEPT: Final = 16


class Took(Enum):
    """Timers; the value says from when until when."""

    __hash__ = object.__hash__

    HEARTBEAT_RESPONSE_TIME = "from a heartbeat to its response"
    COMMIT_LATENCY = "from an offset commit to its response"
    REBALANCE_LATENCY = "from a new assignment until its acknowledgement"
    PARTITION_REVOKED_LATENCY = "from a revocation until its acknowledgement"
    BATCH_TIME = "from the plan of a batch until it is proven finished"


_ANSWERS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAITS_S: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 900.0, 3600.0)
BOUNDS_S: Final[dict[Took, tuple[float, ...]]] = {
    Took.HEARTBEAT_RESPONSE_TIME: _ANSWERS_S,
    Took.COMMIT_LATENCY: _ANSWERS_S,
    Took.REBALANCE_LATENCY: _WAITS_S,
    Took.PARTITION_REVOKED_LATENCY: _WAITS_S,
    Took.BATCH_TIME: _WAITS_S,
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """The metrics of one kind of request."""

    name: str
    asked: Count
    failed: Count
    took: Took


_HEARTBEAT: Final = _Asked(
    "Heartbeat", Count.HEARTBEAT, Count.HEARTBEAT_FAILED, Took.HEARTBEAT_RESPONSE_TIME
)
_COMMIT: Final = _Asked("OffsetCommit", Count.COMMIT, Count.COMMIT_FAILED, Took.COMMIT_LATENCY)
_FENCING: Final = (Reaction.REFRESH_EPOCH, Reaction.REJOIN_SAME_ID, Reaction.REJOIN_NEW_ID)


def _one(_: Any) -> int:
    return 1


def _partitions(event: Any) -> int:
    return len(event.partitions)


_EVENTS: Final[dict[type, tuple[tuple[Count, Callable[[Any], int]], ...]]] = {
    member.PartitionsAssigned: ((Count.PARTITIONS_ASSIGNED, _partitions),),
    member.PartitionsRevoked: ((Count.PARTITIONS_REVOKED, _partitions),),
    member.PartitionsLost: ((Count.PARTITIONS_LOST, _partitions), (Count.MEMBERSHIPS_LOST, _one)),
    offset.PartitionsGivenUp: ((Count.PARTITIONS_GIVEN_UP, _partitions),),
    offset.BatchPlanned: ((Count.BATCHES_PLANNED, _one),),
    offset.BatchFinished: (
        (Count.BATCHES_FINISHED, _one),
        (Count.OFFSETS_FINISHED, lambda each: sum(map(len, each.plan.ranges))),
    ),
    offset.RangesLost: ((Count.OFFSETS_LOST, lambda each: sum(map(len, each.ranges))),),
}
_REBALANCING: Final = (MemberState.RECONCILING, MemberState.ACKNOWLEDGING)
_OUTSIDE: Final = (MemberState.FENCED, MemberState.FATAL)


@dataclass(frozen=True, slots=True)
class Durations:
    """What a timer measured.

    Args:
        buckets: How many took at most each bound, and how many in all.
        max_s: The maximum of the last 30 to 60 s; None: there was none.
    """

    buckets: tuple[int, ...]
    bounds_s: tuple[float, ...]
    sum_s: float
    max_s: float | None


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All counters and timers.

    Args:
        errors: Request, name of the error, and how many responses had it.
        joined_as: The last member ids, the current one last.
    """

    counts: Mapping[Count, int]
    took: Mapping[Took, Durations]
    errors: tuple[tuple[str, str, int], ...]
    last_rebalance_age_s: float | None
    joined_as: tuple[str, ...]


class Spread:
    """Durations as a histogram, with a recent maximum.

    Args:
        bounds_s: Upper bounds of its buckets, ascending, without infinity.
    """

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._buckets = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0
        self._longest_s: dict[int, float] = {}
        """By number of the window: this one and the one before."""

    def add(self, seconds: float, now: float) -> None:
        """Add a duration."""
        self._buckets[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds
        window = _window(now)
        if window not in self._longest_s:
            self._longest_s = self._recent(window)
        self._longest_s[window] = max(seconds, self._longest_s.get(window, seconds))

    def durations(self, now: float) -> Durations:
        """Return the measured durations."""
        recent = self._recent(_window(now)).values()
        return Durations(
            buckets=tuple(accumulate(self._buckets)),
            bounds_s=self._bounds_s,
            sum_s=round(self._sum_s, 6),
            max_s=round(max(recent), 6) if recent else None,
        )

    def _recent(self, window: int) -> dict[int, float]:
        return {each: longest for each, longest in self._longest_s.items() if each >= window - 1}


class Metrics:
    """Counts since the client began."""

    def __init__(self) -> None:
        self.counts: Counter[Count] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        """By request and error name: once for each response with it."""
        self.joined_as: deque[str] = deque(maxlen=MEMBER_IDS_KEPT)
        """The last member ids, the current one last."""
        self._spreads = {took: Spread(bounds_s) for took, bounds_s in BOUNDS_S.items()}
        self._rebalancing_since: float | None = None
        self._revoking_since: float | None = None
        self._batch_since: float | None = None
        self._rebalanced_at: float | None = None
        self._uncommitted_since: float | None = None

    def answered(self, request: Request, response: Response, took_s: float, now: float) -> None:
        """Count the response to a request, which took so many seconds."""
        match response:
            case HeartbeatResponse(error_code=code):
                codes = {code}
            case OffsetCommitResponse(errors=errors):
                codes = set(errors.values())
                if ErrorCode.NONE in codes and self._uncommitted_since is not None:
                    self._uncommitted_since = now
                if any(rule_for(code).offsets in _FENCING for code in codes):
                    self.counts[Count.COMMIT_FENCED] += 1
            case _:
                return
        asked = _asked(request)
        if asked is not None:
            codes.discard(ErrorCode.NONE)
            self._count(asked, {ErrorCode.name_of(each) for each in codes})
            self._spreads[asked.took].add(took_s, now)

    def unanswered(self, request: Request) -> None:
        """Count a request without a response."""
        asked = _asked(request)
        if asked is not None:
            self._count(asked, {NO_ANSWER})

    def happened(self, event: member.Event) -> None:
        """Count an event."""
        for count, amount in _EVENTS.get(type(event), ()):
            self.counts[count] += amount(event)
        match event:
            case member.EpochChanged(previous=0) if event.member_id not in self.joined_as:
                self.joined_as.append(event.member_id)
            case member.RevocationRequested() if self._revoking_since is None:
                self._revoking_since = event.at
            case member.PartitionsRevoked():
                self._add(Took.PARTITION_REVOKED_LATENCY, self._revoking_since, event.at)
                self._revoking_since = None
            case member.PartitionsLost():
                self._revoking_since = None
            case offset.BatchPlanned():
                self._batch_since = event.at
            case offset.BatchFinished():
                self._add(Took.BATCH_TIME, self._batch_since, event.at)
                self._batch_since = None

    def follow(self, state: MemberState, now: float, *, has_uncommitted: bool) -> None:
        """Note the member's state and whether offsets wait to be committed."""
        if not has_uncommitted:
            self._uncommitted_since = None
        elif self._uncommitted_since is None:
            self._uncommitted_since = now
        if state in _REBALANCING:
            if self._rebalancing_since is None:
                self._rebalancing_since = now
        elif self._rebalancing_since is not None:
            self._rebalance_ended(state, now)

    def uncommitted_age_s(self, now: float) -> float | None:
        """Return how long offsets have waited without any being accepted; None: none wait."""
        return None if self._uncommitted_since is None else now - self._uncommitted_since

    def snapshot(self, now: float) -> MetricsSnapshot:
        """Return all counts and durations."""
        age_s = None if self._rebalanced_at is None else round(now - self._rebalanced_at, 3)
        return MetricsSnapshot(
            counts={each: self.counts[each] for each in Count},
            took={each: self._spreads[each].durations(now) for each in Took},
            errors=tuple((*error, count) for error, count in sorted(self.errors.items())),
            last_rebalance_age_s=age_s,
            joined_as=tuple(self.joined_as),
        )

    def _count(self, asked: _Asked, errors: set[str]) -> None:
        self.counts[asked.asked] += 1
        if errors:
            self.counts[asked.failed] += 1
            self.errors.update((asked.name, error) for error in errors)

    def _rebalance_ended(self, state: MemberState, now: float) -> None:
        if state is MemberState.STABLE:
            self._add(Took.REBALANCE_LATENCY, self._rebalancing_since, now)
            self.counts[Count.REBALANCE] += 1
            self._rebalanced_at = now
        elif state in _OUTSIDE:
            self.counts[Count.FAILED_REBALANCE] += 1
        self._rebalancing_since = None

    def _add(self, took: Took, began_at: float | None, at: float) -> None:
        if began_at is not None:
            self._spreads[took].add(at - began_at, at)


def _asked(request: Request) -> _Asked | None:
    match request:
        case HeartbeatRequest(member_epoch=member_epoch):
            # A leave, also one for an earlier member id, proves nothing about this member.
            return _HEARTBEAT if member_epoch >= 0 else None
        case OffsetCommitRequest():
            return _COMMIT
        case _:
            return None


def _window(now: float) -> int:
    return int(now // WINDOW_S)
