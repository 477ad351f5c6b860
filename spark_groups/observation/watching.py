"""Looking at a group again and again: one frame at each look, whatever the brokers answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_groups.errors import GroupNotFoundError, SparkGroupsError
from spark_groups.observation.frames import Frame, GroupHistory
from spark_groups.observation.observe import GroupObserver


def steady_clock() -> Callable[[], float]:
    """Return a clock of seconds since 1970 that goes on evenly, also where the system's is set."""
    ahead_s = time.time() - time.monotonic()
    return lambda: round(ahead_s + time.monotonic(), 3)


class GroupWatch:
    """Looks at one group over the same connections; used by one thread.

    Args:
        observer: Reads the group; closed with the watch.
        group_id: The group.
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
