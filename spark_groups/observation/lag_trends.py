"""Lag over time: rates, recent values, and a history of one day."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from spark_groups.observation.catch_up import (
    SAMPLES_MAX,
    CatchUp,
    Progress,
    RecentProgress,
    slowest,
)
from spark_groups.observation.views import GroupView

RATE_WINDOW_S: Final = 30.0
HISTORY_STEP_S: Final = 60.0
HISTORY_STEPS_MAX: Final = 24 * 60
"""One day."""
RECENT_STEP_S: Final = 5.0
RECENT_S: Final = 900.0

PartitionKey = tuple[str, int]
"""Topic id, as Kafka's tools print it, and partition."""
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTrend:
    """Rates in offsets per second; None: unknown, as after the first poll.

    Args:
        lag_rate: Growth of the lag; negative if it shrinks.
        read_rate: Growth of the committed offset.
        written_rate: Growth of the log end offset.
        recent_lags: The lag at each of the last polls, the oldest first; None: unknown.
        catch_up: When it will have caught up; of a group: when the last partition will have.
    """

    lag_rate: float | None = None
    read_rate: float | None = None
    written_rate: float | None = None
    recent_lags: tuple[int | None, ...] = ()
    catch_up: CatchUp = field(default_factory=CatchUp)


class LagPoint(NamedTuple):
    """The lag of a group at one time.

    Args:
        at_s: Seconds since 1970.
        lag: None: unknown.
    """

    at_s: float
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagHistory:
    """The lag of a group over a day, and closer over the last minutes.

    Args:
        from_s: The start of the first step, in seconds since 1970; None: no poll yet.
        step_s: The length of a step.
        lags: The largest lag in each step, the oldest first; None: unknown.
        recent: The last 15 minutes, the oldest first: the largest lag within 5 s each.
    """

    from_s: float | None = None
    step_s: float = HISTORY_STEP_S
    lags: tuple[int | None, ...] = ()
    recent: tuple[LagPoint, ...] = ()


class _Seen(NamedTuple):
    """A partition at the last polls, and when it will have caught up."""

    polls: deque[Progress]
    progress: RecentProgress


class LagTrends:
    """The trend of every partition of a group, and of the group."""

    def __init__(self) -> None:
        self._seen: dict[PartitionKey, _Seen] = {}
        self._totals: deque[Progress] = deque(maxlen=SAMPLES_MAX)
        self._steps: deque[int | None] = deque(maxlen=HISTORY_STEPS_MAX)
        self._last_step = 0
        self._recent: deque[LagPoint] = deque(maxlen=int(RECENT_S / RECENT_STEP_S))

    def look(self, view: GroupView, at_s: float) -> None:
        """Record the lags of a view, and forget partitions that are no longer in it."""
        known = self._seen
        self._seen = {}
        for each in view.partitions:
            key = each.topic_id, each.partition
            seen = known.get(key) or _Seen(deque(maxlen=SAMPLES_MAX), RecentProgress())
            sample = Progress(at_s, each.unread_lag, each.committed_offset, each.log_end_offset)
            seen.polls.append(sample)
            seen.progress.add(sample)
            self._seen[key] = seen
        # A sum over some partitions only would change whenever others become known.
        lag = None if view.totals.unknown_lag_partitions else view.totals.lag
        committed = sum_if_known(partition.committed_offset for partition in view.partitions)
        end = sum_if_known(partition.log_end_offset for partition in view.partitions)
        self._totals.append(Progress(at_s, lag, committed, end))
        self._note(lag, int(at_s // HISTORY_STEP_S))
        self._note_recent(LagPoint(at_s, lag))

    def trend(self, key: PartitionKey) -> LagTrend:
        """Return the trend of one partition."""
        seen = self._seen.get(key)
        return LagTrend() if seen is None else _trend(seen.polls, seen.progress.catch_up())

    def history(self) -> LagHistory:
        """Return the total lag over a day, and over the last minutes."""
        if not self._steps:
            return LagHistory()
        first = self._last_step - len(self._steps) + 1
        return LagHistory(
            from_s=first * HISTORY_STEP_S, lags=tuple(self._steps), recent=tuple(self._recent)
        )

    def _note(self, lag: int | None, step: int) -> None:
        if not self._steps or step > self._last_step:
            unseen = min(step - self._last_step - 1, HISTORY_STEPS_MAX) if self._steps else 0
            self._steps.extend([None] * unseen)
            self._steps.append(lag)
            self._last_step = step
        elif lag is not None:
            self._steps[-1] = max(lag, self._steps[-1] or 0)

    def _note_recent(self, point: LagPoint) -> None:
        recent = self._recent
        while recent and point.at_s - recent[0].at_s > RECENT_S:
            recent.popleft()
        if not recent or point.at_s - recent[-1].at_s >= RECENT_STEP_S:
            recent.append(point)
        elif point.lag is not None:
            recent[-1] = LagPoint(recent[-1].at_s, max(point.lag, recent[-1].lag or 0))

    def total(self) -> LagTrend:
        """Return the trend of the total lag."""
        return _trend(self._totals, slowest(e.progress.catch_up() for e in self._seen.values()))


def sum_if_known(values: Iterable[Number | None]) -> Number | None:
    """Return a sum; None if any number is None."""
    given = list(values)
    known = [each for each in given if each is not None]
    return sum(known) if len(known) == len(given) else None


def _trend(samples: Iterable[Progress], catching_up: CatchUp) -> LagTrend:
    seen = tuple(samples)
    return LagTrend(
        lag_rate=_rate(seen, lambda each: each.lag),
        read_rate=_rate(seen, lambda each: each.committed_offset),
        written_rate=_rate(seen, lambda each: each.log_end_offset),
        recent_lags=tuple(each.lag for each in seen),
        catch_up=catching_up,
    )


def _rate(samples: tuple[Progress, ...], of: Callable[[Progress], int | None]) -> float | None:
    if not samples or (now := of(samples[-1])) is None:
        return None
    last_s = samples[-1].at_s
    for sample in samples[:-1]:
        before = of(sample)
        if before is not None and 0 < last_s - sample.at_s <= RATE_WINDOW_S:
            return round((now - before) / (last_s - sample.at_s), 3)
    return None
