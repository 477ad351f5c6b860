"""Looking at the list of groups again and again, whatever the brokers answer.

A list is one request to each broker; the members and the lag of a group are several. So a look
reads them of a few groups only, in turn, and keeps what it read of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol

from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.observation.frames import Staleness, steady_clock
from spark_groups.observation.plain_values import View
from spark_groups.observation.reading import GroupReading
from spark_groups.observation.views import view_group
from spark_groups.ops.connecting import Brokers
from spark_groups.ops.groups_cli import DESCRIBED_TYPES, GroupListView, GroupRow, view_groups

DETAILS_EACH_LOOK: Final = 5
"""Of how many groups a look reads members and lag."""
DETAILS_PAUSE_S: Final = 5.0
"""How old they are at least before they are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    """What the list of groups does not say of one.

    Args:
        read_at_s: When it was read, in seconds.
        lag: The sum of all lags that are known; None if none is.
    """

    read_at_s: float
    members: int
    lag: int | None
    unknown_lag_partitions: int


@dataclass(frozen=True, slots=True)
class StateAge:
    """Since when a group is in its state, as far as one looked.

    Args:
        since_s: When it was first seen in it, in seconds.
        began_earlier: Whether it may have been in it longer: nobody saw it begin.
    """

    group_state: str
    since_s: float
    began_earlier: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListFrame(View):
    """The groups of a cluster at one moment.

    Args:
        at_s: When one looked, in seconds.
        view: The groups as they were last listed; None: they never were.
        seen_at_s: When that was, in seconds.
        stale: Why that is not of now; None: it is.
        ages: For each group, since when it is in its state.
        details: What was read of groups, each at its time; none of a group whose turn has not come.
    """

    at_s: float
    view: GroupListView | None = None
    seen_at_s: float | None = None
    stale: Staleness | None = None
    ages: Mapping[str, StateAge] = field(default_factory=dict)
    details: Mapping[str, GroupDetails] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the frame as plain values; `groups` is what `groups --json` shows, and more."""
        return {
            "at_s": self.at_s,
            "seen_at_s": self.seen_at_s,
            "stale": None if self.stale is None else asdict(self.stale),
            "groups": None if self.view is None else [self._row(each) for each in self.view.groups],
        }

    def _row(self, group: GroupRow) -> dict[str, Any]:
        age, details = self.ages.get(group.group_id), self.details.get(group.group_id)
        return {
            **asdict(group),
            "state_since_s": age and age.since_s,
            "state_began_earlier": age and age.began_earlier,
            "details": details and asdict(details),
        }


class ReadsGroups(Protocol):
    """What reads one group."""

    def observe(self, group_id: str, *, timeout_s: float | None = None) -> GroupReading:
        """Read a group within a time."""

    def close(self) -> None:
        """Close all connections."""


class GroupListWatch:
    """Lists the groups of a cluster, each time over connections of its own.

    Args:
        now: The clock of the frames, in seconds; by default since 1970.
        observer: Reads the details of groups; closed with the watch. By default one of the brokers.
        monotonic: The clock of the deadline that a look has, in seconds.
    """

    def __init__(
        self,
        brokers: Brokers,
        now: Callable[[], float] | None = None,
        observer: ReadsGroups | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._now = now or steady_clock()
        self._monotonic = monotonic
        self._observer: ReadsGroups = observer or brokers.observer()
        self._tried_at_s: dict[str, float] = {}
        self._frame = GroupListFrame(at_s=0.0)

    def close(self) -> None:
        """Close all connections."""
        self._observer.close()

    def look(self) -> GroupListFrame:
        """List the groups; where that fails, return the last good list, marked stale."""
        deadline_s = self._monotonic() + self._brokers.timeout_s
        try:
            with self._brokers.cluster() as cluster:
                view = view_groups(cluster.list_groups())
        except SparkGroupsError as error:
            at_s, stale = self._now(), self._frame.stale
            since_s = at_s if stale is None else stale.since_s
            self._frame = replace(self._frame, at_s=at_s, stale=Staleness(str(error), since_s))
            return self._frame
        at_s = self._now()
        ages = {each.group_id: self._age(each, at_s) for each in view.groups}
        details = self._read_details(view, at_s, deadline_s)
        self._frame = GroupListFrame(
            at_s=at_s, view=view, seen_at_s=at_s, ages=ages, details=details
        )
        return self._frame

    def _age(self, group: GroupRow, at_s: float) -> StateAge:
        before = self._frame.ages.get(group.group_id)
        if before is not None and before.group_state == group.group_state:
            return before
        # What was not in an earlier list, or was in another state, has changed since then.
        return StateAge(group.group_state, at_s, began_earlier=self._frame.view is None)

    def _read_details(
        self, view: GroupListView, at_s: float, deadline_s: float
    ) -> dict[str, GroupDetails]:
        """Read the groups whose turn it is, as far as there is time, and keep what is known."""
        shown = [e.group_id for e in view.groups if e.group_type in DESCRIBED_TYPES.values()]
        known = {each: self._frame.details[each] for each in shown if each in self._frame.details}
        tried = self._tried_at_s = {each: self._tried_at_s.get(each, -inf) for each in shown}
        due = sorted(
            (each for each in shown if at_s - tried[each] >= DETAILS_PAUSE_S), key=tried.__getitem__
        )
        for group_id in due[:DETAILS_EACH_LOOK]:
            left_s = deadline_s - self._monotonic()
            if left_s <= 0:
                break
            tried[group_id] = at_s
            try:
                totals = view_group(self._observer.observe(group_id, timeout_s=left_s)).totals
            except BrokerUnreachableError:
                # The time is over; the next look begins with another group.
                break
            except SparkGroupsError:
                continue
            known[group_id] = GroupDetails(
                read_at_s=at_s,
                members=totals.members,
                lag=totals.lag,
                unknown_lag_partitions=totals.unknown_lag_partitions,
            )
        return known
