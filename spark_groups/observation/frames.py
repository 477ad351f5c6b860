"""A group and its recent history, as `watch`, the live page and the demo show them.

Frames are made from successive views. After a failed poll the last frame stays, marked stale with
the reason. Only `GroupWatch` reads brokers and the clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spark_groups.errors import GroupNotFoundError, SparkGroupsError
from spark_groups.observation.group_events import EventKind, GroupEvent, group_changes
from spark_groups.observation.lag_times import (
    ALERT_HOURS,
    AlertKind,
    DeletionAlert,
    deletion_alert,
)
from spark_groups.observation.lag_trends import LagHistory, LagTrend, LagTrends
from spark_groups.observation.moves import GroupMove, Moves
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.ownership import Ownership, OwnershipSpan
from spark_groups.observation.plain_values import View, partition_ranges
from spark_groups.observation.revocations import Revocation, Revocations
from spark_groups.observation.views import GroupView
from spark_groups.types import TopicPartition

EVENTS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHistory:
    """The history of a partition since the first poll.

    Args:
        unsettled_since_s: Since when it has been moving or without an owner, in seconds since 1970;
            None: it is neither.
        ownership: Its owners, the earliest first.
    """

    topic: str
    partition: int
    trend: LagTrend = field(default_factory=LagTrend)
    unsettled_since_s: float | None = None
    ownership: tuple[OwnershipSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why a frame is outdated.

    Args:
        reason: The error of the last poll.
        since_s: The time of the first failed poll, in seconds since 1970.
        is_missing: Whether the group does not exist; else the brokers did not answer.
    """

    reason: str
    since_s: float
    is_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame(View):
    """A group at the time of a poll, with its recent history.

    Args:
        at_s: The time of the poll, in seconds since 1970.
        seen_at_s: The time of the latest view.
        stale: Why the latest view is outdated; None: it is current.
        view: The latest view; None: the group was never read.
        trend: The trend of the group's total lag.
        lag_history: The total lag of the last minutes, and of a day.
        partitions: In the order of the view.
        alerts: Partitions whose unread records are, or may soon be, deleted.
        events: The latest last.
        moves: What the events of each move amount to, the latest last.
    """

    group_id: str
    at_s: float
    seen_at_s: float | None = None
    stale: Staleness | None = None
    view: GroupView | None = None
    trend: LagTrend = field(default_factory=LagTrend)
    lag_history: LagHistory = field(default_factory=LagHistory)
    partitions: tuple[PartitionHistory, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    alerts: tuple[DeletionAlert, ...] = ()
    events: tuple[GroupEvent, ...] = ()
    moves: tuple[GroupMove, ...] = ()

    @property
    def new_events(self) -> tuple[GroupEvent, ...]:
        """The events of this poll."""
        return tuple(event for event in self.events if event.at_s == self.at_s)

    def to_json(self) -> dict[str, Any]:
        """Return the frame as JSON has it; `group` is the view of `describe --json`."""
        document = super(Frame, self).to_json()
        return {"group" if name == "view" else name: of for name, of in document.items()}


class GroupHistory:
    """Makes frames from successive views of one group."""

    def __init__(self, group_id: str, alert_hours: float = ALERT_HOURS) -> None:
        self._alert_hours = alert_hours
        self._frame = Frame(group_id=group_id, at_s=0.0)
        self._trends = LagTrends()
        self._ownership = Ownership()
        self._revocations = Revocations()
        self._moves = Moves()
        self._events: deque[GroupEvent] = deque(maxlen=EVENTS_MAX)

    def seen(self, view: GroupView, at_s: float) -> Frame:
        """Return the frame after a successful poll at `at_s`."""
        before = self._frame.view
        if before is not None and self._frame.stale is not None:
            away_s = at_s - self._frame.stale.since_s
            what = "there" if self._frame.stale.is_missing else "readable"
            self._add_event(EventKind.READABLE, f"{what} again after {away_s:.1f} s", at_s)
        changes = [] if before is None else list(group_changes(before, view, at_s))
        changes += self._revocations.look(view, at_s)
        changes += self._ownership.look(view, at_s)
        self._events.extend(self._moves.look(view, changes))
        self._trends.look(view, at_s)
        alerts = _with_unknown(deletion_alerts(view, self._alert_hours), self._frame.alerts, view)
        self._events.extend(_alert_events(self._frame.alerts, alerts, at_s))
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
            alerts=alerts,
            events=tuple(self._events),
            moves=self._moves.of(self._events),
        )
        return self._frame

    def failed(self, reason: str, at_s: float, *, is_missing: bool = False) -> Frame:
        """Return the latest frame, marked stale."""
        stale = self._frame.stale
        if stale is not None and stale.is_missing is not is_missing:
            stale = None
        if stale is None and is_missing:
            self._add_event(EventKind.GROUP_MISSING, reason, at_s)
        elif stale is None:
            self._add_event(EventKind.NOT_READABLE, f"not readable: {reason}", at_s)
        self._frame = replace(
            self._frame,
            at_s=at_s,
            stale=Staleness(reason, at_s if stale is None else stale.since_s, is_missing),
            events=tuple(self._events),
            moves=self._moves.of(self._events),
        )
        return self._frame

    def _add_event(self, kind: EventKind, text: str, at_s: float) -> None:
        self._events.append(GroupEvent(at_s=at_s, kind=kind, text=text))


def deletion_alerts(view: GroupView, alert_hours: float = ALERT_HOURS) -> tuple[DeletionAlert, ...]:
    """Return the alerts of a group's partitions, in their order."""
    found = (
        deletion_alert(each.topic, each.partition, each.time, alert_hours)
        for each in view.partitions
    )
    return tuple(each for each in found if each is not None)


def _with_unknown(
    alerts: Sequence[DeletionAlert], before: Sequence[DeletionAlert], view: GroupView
) -> tuple[DeletionAlert, ...]:
    """Return the alerts, with the previous ones of partitions that were not readable this time."""
    unknown = {(e.topic, e.partition) for e in view.partitions if e.time.is_unknown}
    kept = [each for each in before if (each.topic, each.partition) in unknown]
    known = {(alert.topic, alert.partition) for alert in alerts}
    return (*alerts, *(each for each in kept if (each.topic, each.partition) not in known))


def _alert_events(
    before: Sequence[DeletionAlert], after: Sequence[DeletionAlert], at_s: float
) -> Iterator[GroupEvent]:
    """Yield one event for all alerts of a kind that began, and one for all that ended."""
    known = {(each.topic, each.partition, each.kind) for each in before}
    now = {(each.topic, each.partition, each.kind) for each in after}
    for kind in AlertKind:
        began = [e for e in after if e.kind is kind and (e.topic, e.partition, e.kind) not in known]
        if began:
            more = f" (and {len(began) - 1:,} more partitions)" if len(began) > 1 else ""
            partitions = tuple(TopicPartition(each.topic, each.partition) for each in began)
            yield GroupEvent(
                at_s=at_s,
                kind=EventKind.DELETION_ALERT,
                text=began[0].text + more,
                partitions=partitions,
            )
    ended = tuple(
        TopicPartition(each.topic, each.partition)
        for each in before
        if (each.topic, each.partition, each.kind) not in now
    )
    if ended:
        yield GroupEvent(
            at_s=at_s,
            kind=EventKind.DELETION_ALERT_ENDED,
            text=f"alert ended: {partition_ranges(ended)}",
            partitions=ended,
        )


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since 1970 that ignores changes of the system clock."""
    ahead_s = time.time() - time.monotonic()
    return lambda: round(ahead_s + time.monotonic(), 3)


class GroupWatch:
    """Polls one group over the same connections; for one thread.

    Args:
        observer: Reads the group; closed with the watch.
        now: The clock of the frames, in seconds since 1970.
    """

    def __init__(
        self,
        observer: GroupObserver,
        group_id: str,
        now: Callable[[], float] | None = None,
        alert_hours: float = ALERT_HOURS,
    ) -> None:
        self._observer = observer
        self._group_id = group_id
        self._now = now or steady_clock()
        self._history = GroupHistory(group_id, alert_hours)

    def close(self) -> None:
        """Close all connections."""
        self._observer.close()

    def look(self) -> Frame:
        """Read the group and return a frame; after a failure, the latest one, marked stale."""
        try:
            view = self._observer.view(self._group_id)
        except GroupNotFoundError as error:
            return self._history.failed(str(error), self._now(), is_missing=True)
        except SparkGroupsError as error:
            return self._history.failed(str(error), self._now())
        return self._history.seen(view, self._now())
