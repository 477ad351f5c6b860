"""A group as it is and as it came to be: what `watch`, the live page and the demo show.

A frame is made of the views of a group, one after the other. Where a look fails, the last good
frame stays, marked stale with the reason. Only `GroupWatch` reads, and knows the time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from spark_groups.errors import GroupNotFoundError, SparkGroupsError
from spark_groups.observation.group_events import EventKind, GroupEvent, group_changes
from spark_groups.observation.lag_trends import LagHistory, LagTrend, LagTrends
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.ownership import Ownership, OwnershipSpan
from spark_groups.observation.plain_values import View, by_topic, json_value
from spark_groups.observation.revocations import Revocation, Revocations
from spark_groups.observation.views import GroupView

EVENTS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHistory:
    """What became of a partition while one looked.

    Args:
        trend: How its lag moves.
        unsettled_since_s: Since when it is on its way or has lost its owner, in seconds; None: it
            is where it is to be.
        ownership: Who had it, the earliest first.
    """

    topic: str
    partition: int
    trend: LagTrend = field(default_factory=LagTrend)
    unsettled_since_s: float | None = None
    ownership: tuple[OwnershipSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why a frame is not of now.

    Args:
        reason: Why the last look failed.
        since_s: When the first look failed in this way, in seconds.
        is_missing: Whether the brokers answered that there is no such group; else they could not
            be asked.
    """

    reason: str
    since_s: float
    is_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame(View):
    """A group at one moment, with what led to it.

    Args:
        at_s: When one looked, in seconds.
        view: The group as it was last read; None: it never was.
        seen_at_s: When that was, in seconds.
        stale: Why that is not of now; None: it is.
        trend: How the lag of the whole group moves.
        lag_history: Its lag in each minute of the last day.
        partitions: For each partition of the view, in its order, what became of it.
        revocations: What is being given up.
        events: What happened, the latest last.
    """

    group_id: str
    at_s: float
    view: GroupView | None = None
    seen_at_s: float | None = None
    stale: Staleness | None = None
    trend: LagTrend = field(default_factory=LagTrend)
    lag_history: LagHistory = field(default_factory=LagHistory)
    partitions: tuple[PartitionHistory, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    events: tuple[GroupEvent, ...] = ()

    @property
    def new_events(self) -> tuple[GroupEvent, ...]:
        """What was seen at this look."""
        return tuple(each for each in self.events if each.at_s == self.at_s)

    def to_json(self) -> dict[str, Any]:
        """Return the frame as plain values; `group` is what `describe --json` shows."""
        events = [
            json_value(asdict(each)) | {"partitions": by_topic(each.partitions)}
            for each in self.events
        ]
        return {
            "group_id": self.group_id,
            "at_s": self.at_s,
            "seen_at_s": self.seen_at_s,
            "stale": None if self.stale is None else asdict(self.stale),
            "group": None if self.view is None else self.view.to_json(),
            "trend": json_value(asdict(self.trend)),
            "lag_history": json_value(asdict(self.lag_history)),
            "partitions": [json_value(asdict(each)) for each in self.partitions],
            "revocations": [each.to_json() for each in self.revocations],
            "events": events,
        }


class GroupHistory:
    """Makes the frames of one group out of what was read of it."""

    def __init__(self, group_id: str) -> None:
        self._frame = Frame(group_id=group_id, at_s=0.0)
        self._trends = LagTrends()
        self._ownership = Ownership()
        self._revocations = Revocations()
        self._events: deque[GroupEvent] = deque(maxlen=EVENTS_MAX)

    def seen(self, view: GroupView, at_s: float) -> Frame:
        """Return the frame after a look that succeeded.

        Args:
            at_s: Seconds; later than at the look before.
        """
        before = self._frame.view
        if before is not None and self._frame.stale is not None:
            away_s = at_s - self._frame.stale.since_s
            what = "there" if self._frame.stale.is_missing else "readable"
            self._say(EventKind.READABLE, f"{what} again after {away_s:.1f} s", at_s)
        if before is not None:
            self._events.extend(group_changes(before, view, at_s))
        self._events.extend(self._revocations.look(view, at_s))
        self._events.extend(self._ownership.look(view, at_s))
        self._trends.look(view, at_s)
        self._frame = Frame(
            group_id=self._frame.group_id,
            at_s=at_s,
            view=view,
            seen_at_s=at_s,
            trend=self._trends.total(),
            lag_history=self._trends.history(),
            partitions=tuple(
                PartitionHistory(
                    topic=each.topic,
                    partition=each.partition,
                    trend=self._trends.trend((each.topic_id, each.partition)),
                    unsettled_since_s=self._ownership.unsettled_since(
                        (each.topic_id, each.partition)
                    ),
                    ownership=self._ownership.spans((each.topic_id, each.partition)),
                )
                for each in view.partitions
            ),
            revocations=self._revocations.under_way(),
            events=tuple(self._events),
        )
        return self._frame

    def failed(self, reason: str, at_s: float, *, is_missing: bool = False) -> Frame:
        """Return the last good frame, marked stale."""
        stale = self._frame.stale
        if stale is not None and stale.is_missing is not is_missing:
            stale = None
        if stale is None and is_missing:
            self._say(EventKind.GROUP_MISSING, reason, at_s)
        elif stale is None:
            self._say(EventKind.NOT_READABLE, f"not readable: {reason}", at_s)
        self._frame = replace(
            self._frame,
            at_s=at_s,
            stale=Staleness(reason, at_s if stale is None else stale.since_s, is_missing),
            events=tuple(self._events),
        )
        return self._frame

    def _say(self, kind: EventKind, text: str, at_s: float) -> None:
        self._events.append(GroupEvent(at_s=at_s, kind=kind, text=text))


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since 1970 that goes on evenly, also where the system's is set."""
    ahead_s = time.time() - time.monotonic()
    return lambda: round(ahead_s + time.monotonic(), 3)


class GroupWatch:
    """Looks at one group over the same connections; used by one thread.

    Args:
        observer: Reads the group; closed with the watch.
        now: The clock of the frames, in seconds; by default since 1970.
    """

    def __init__(
        self, observer: GroupObserver, group_id: str, now: Callable[[], float] | None = None
    ) -> None:
        self._observer = observer
        self._group_id = group_id
        self._now = now or steady_clock()
        self._history = GroupHistory(group_id)

    def close(self) -> None:
        """Close all connections."""
        self._observer.close()

    def look(self) -> Frame:
        """Read the group and return a frame; where that fails, the last good one, marked stale."""
        try:
            view = self._observer.view(self._group_id)
        except GroupNotFoundError as error:
            return self._history.failed(str(error), self._now(), is_missing=True)
        except SparkGroupsError as error:
            return self._history.failed(str(error), self._now())
        return self._history.seen(view, self._now())
