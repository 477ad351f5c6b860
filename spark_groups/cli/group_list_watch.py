"""Polling the list of groups, with members and lag of each group.

Listing takes one request per broker; members and lag take several per group. Each poll therefore
reads them for a few groups in turn, and keeps earlier results for the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol

from spark_groups.cli.connecting import Brokers
from spark_groups.cli.groups_cli import DESCRIBED_TYPES, GroupListView, GroupRow, view_groups
from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.observation.frames import Staleness, steady_clock
from spark_groups.observation.plain_values import View
from spark_groups.observation.reading import GroupReading
from spark_groups.observation.views import GroupView, view_group

DETAILS_EACH_LOOK: Final = 5
"""How many groups each poll reads in detail."""
DETAILS_PAUSE_S: Final = 5.0
"""The minimum age of details before they are read again."""
TOPICS_SHOWN: Final = 10
"""How many topics of a group are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    """Members and lag of a group.

    Args:
        read_at_s: Seconds since 1970.
        lag: The sum of all known lags; None if none is known.
        topics: The names of its first topics, sorted.
        topic_count: How many topics have an assigned partition or a committed offset.
    """

    read_at_s: float
    members: int
    lag: int | None
    unknown_lag_partitions: int
    topics: tuple[str, ...] = ()
    topic_count: int = 0


@dataclass(frozen=True, slots=True)
class StateAge:
    """How long a group has been in its state.

    Args:
        since_s: When the state was first observed, in seconds since 1970.
        began_earlier: Whether the state may be older: the first poll already showed it.
    """

    group_state: str
    since_s: float
    began_earlier: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListFrame(View):
    """The groups of a cluster at one moment.

    Args:
        at_s: The time of the poll, in seconds since 1970.
        view: The latest list; None: no list succeeded yet.
        seen_at_s: The time of the latest list.
        stale: Why the latest list is outdated; None: it is current.
        cluster_id: The cluster's id; None: unknown.
        brokers: Its live brokers as host:port (id).
        ages: By group id.
        details: By group id, for the groups read so far.
    """

    at_s: float
    view: GroupListView | None = None
    seen_at_s: float | None = None
    stale: Staleness | None = None
    cluster_id: str | None = None
    brokers: tuple[str, ...] = ()
    ages: Mapping[str, StateAge] = field(default_factory=dict)
    details: Mapping[str, GroupDetails] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the frame as JSON has it; rows extend those of `groups --json`."""
        return {
            "at_s": self.at_s,
            "seen_at_s": self.seen_at_s,
            "stale": None if self.stale is None else asdict(self.stale),
            "cluster_id": self.cluster_id,
            "brokers": list(self.brokers),
            "groups": None
            if self.view is None
            else [self._row(group) for group in self.view.groups],
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
    """Reads one group: `GroupObserver`."""

    def observe(self, group_id: str, *, timeout_s: float | None = None) -> GroupReading:
        """Read a group within a timeout."""

    def close(self) -> None:
        """Close all connections."""


class GroupListWatch:
    """Lists the groups of a cluster, over new connections for each poll.

    Args:
        now: The clock of the frames, in seconds since 1970.
        observer: Reads details of groups; closed with the watch.
        monotonic: The clock of a poll's deadline, in seconds.
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
        """List the groups; after a failure, return the latest list, marked stale."""
        deadline_s = self._monotonic() + self._brokers.timeout_s
        try:
            with self._brokers.cluster() as cluster:
                view = view_groups(cluster.list_groups())
                nodes = cluster.nodes()
        except SparkGroupsError as error:
            at_s, stale = self._now(), self._frame.stale
            since_s = at_s if stale is None else stale.since_s
            self._frame = replace(self._frame, at_s=at_s, stale=Staleness(str(error), since_s))
            return self._frame
        at_s = self._now()
        ages = {group.group_id: self._age(group, at_s) for group in view.groups}
        details = self._read_details(view, at_s, deadline_s)
        self._frame = GroupListFrame(
            at_s=at_s,
            view=view,
            seen_at_s=at_s,
            cluster_id=self._brokers.cluster_id,
            brokers=tuple(map(str, nodes)),
            ages=ages,
            details=details,
        )
        return self._frame

    def _age(self, group: GroupRow, at_s: float) -> StateAge:
        before = self._frame.ages.get(group.group_id)
        if before is not None and before.group_state == group.group_state:
            return before
        # A group that is new, or had another state, has changed since the previous list.
        return StateAge(group.group_state, at_s, began_earlier=self._frame.view is None)

    def _read_details(
        self, view: GroupListView, at_s: float, deadline_s: float
    ) -> dict[str, GroupDetails]:
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
                found = view_group(self._observer.observe(group_id, timeout_s=left_s))
            except BrokerUnreachableError:
                # The timeout is used up; the next poll starts with another group.
                break
            except SparkGroupsError:
                continue
            known[group_id] = _details(found, at_s)
        return known


def _details(view: GroupView, at_s: float) -> GroupDetails:
    topics = sorted({each.topic for each in view.partitions})
    return GroupDetails(
        read_at_s=at_s,
        members=view.totals.members,
        lag=view.totals.lag,
        unknown_lag_partitions=view.totals.unknown_lag_partitions,
        topics=tuple(topics[:TOPICS_SHOWN]),
        topic_count=len(topics),
    )
