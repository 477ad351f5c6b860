"""A Spark member on this machine, watched through the snapshots that its runner publishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spark_groups.runtime.snapshots import read_snapshots

LOOK_S: Final = 0.25


class MemberWatch:
    """Reads the snapshots of a group's only member on this machine until it is closed.

    Args:
        group_id: The group.
    """

    def __init__(self, group_id: str) -> None:
        self.look_s = LOOK_S
        """Seconds between two snapshots; less than the heartbeat interval."""
        self.first_seen_at: float | None = None
        """When the member had a client for the first time, on the monotonic clock."""
        self.view: Mapping[str, Any] = {}
        """The last snapshot."""
        self.at_most_s: list[float] = []
        """How late one of several heartbeats between two snapshots was at most: of these only the
        sum of their intervals is known."""
        self._group_id = group_id
        self._late_s: list[tuple[float, float]] = []
        self._before = (0, 0.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> MemberWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def is_stable(self) -> bool:
        """Whether it is a member and has everything of its assignment."""
        return self.view.get("state") == "STABLE"

    def late_s(self, since: float, until: float) -> Iterator[float]:
        """Yield how late each heartbeat was that was sent between two moments.

        That is how much later than one interval after the one before; 0 if it was not later.
        Heartbeats in `at_most_s` are not among them.
        """
        yield from (late for at, late in list(self._late_s) if since <= at <= until)

    def _run(self) -> None:
        while not self._over.wait(self.look_s):
            asked_at = time.monotonic()
            found = [each for each in read_snapshots(self._group_id) if "tally" in each]
            if found:
                # The snapshot was taken between the question and the answer.
                self._note(found[0], (asked_at + time.monotonic()) / 2)

    def _note(self, view: Mapping[str, Any], at: float) -> None:
        self.first_seen_at = self.first_seen_at or at
        self.view = view
        age_s = view["last_heartbeat_age_s"]
        if age_s is None:
            return
        count, sent_at = view["tally"]["counts"]["heartbeat"], at - age_s
        before, before_at = self._before
        if count == before:
            return
        self._before = (count, sent_at)
        if before:
            late_s = sent_at - before_at - view["heartbeat_interval_ms"] / 1000
            if late_s > 0 and count > before + 1:
                self.at_most_s.append(late_s)
            else:
                self._late_s += [(sent_at, max(0.0, late_s))] * (count - before)
