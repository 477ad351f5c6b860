"""Looking at the list of groups again and again, whatever the brokers answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from spark_groups.errors import SparkGroupsError
from spark_groups.observation.frames import Staleness
from spark_groups.observation.watching import steady_clock
from spark_groups.ops.connecting import Brokers
from spark_groups.ops.group_list import GroupListView, view_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListFrame:
    """The groups of a cluster at one moment.

    Args:
        at_s: When one looked, in seconds.
        view: The groups as they were last listed; None: they never were.
        seen_at_s: When that was, in seconds.
        stale: Why that is not of now; None: it is.
    """

    at_s: float
    view: GroupListView | None = None
    seen_at_s: float | None = None
    stale: Staleness | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the frame as plain values; `groups` is what `groups --json` shows."""
        return {
            "at_s": self.at_s,
            "seen_at_s": self.seen_at_s,
            "stale": None if self.stale is None else asdict(self.stale),
            "groups": None if self.view is None else self.view.to_json()["groups"],
        }


class GroupListWatch:
    """Lists the groups of a cluster, each time over connections of its own.

    Args:
        brokers: The cluster.
        now: The clock of the frames, in seconds; by default since 1970.
    """

    def __init__(self, brokers: Brokers, now: Callable[[], float] | None = None) -> None:
        self._brokers = brokers
        self._now = now or steady_clock()
        self._frame = GroupListFrame(at_s=0.0)

    def look(self) -> GroupListFrame:
        """List the groups; where that fails, return the last good list, marked stale."""
        try:
            with self._brokers.cluster() as cluster:
                view = view_groups(cluster.list_groups())
        except SparkGroupsError as error:
            at_s, stale = self._now(), self._frame.stale
            since_s = at_s if stale is None else stale.since_s
            self._frame = replace(self._frame, at_s=at_s, stale=Staleness(str(error), since_s))
        else:
            at_s = self._now()
            self._frame = GroupListFrame(at_s=at_s, view=view, seen_at_s=at_s)
        return self._frame
