"""A Spark member on this machine, watched through the snapshots that its runner publishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spark_groups.runtime.snapshot_sockets import read_snapshots

LOOK_S: Final = 0.25
ROUNDED_S: Final = 0.001
"""How much two ages of a snapshot differ from the truth together: they have three decimals."""


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
        self.changed_at = 0.0
        """When it last became stable with another assignment, or sent the heartbeat that was
        answered with its member epoch, on the monotonic clock."""
        self._group_id = group_id
        self._late_s: list[tuple[float, float]] = []
        self._before = (0, 0.0, 0.0)
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

    @property
    def member_epoch(self) -> int:
        """Its member epoch; 0: it is not a member."""
        return int(self.view.get("member_epoch", 0))

    def late_s(self, since: float, until: float) -> Iterator[float]:
        """Yield how late each heartbeat was that was sent between two moments.

        That is how much later than one interval after the one before. Heartbeats that were sent
        earlier, because they acknowledge or expect an assignment, are not among them, nor are those
        in `at_most_s`.
        """
        yield from (late for at, late in list(self._late_s) if since <= at <= until)

    def _run(self) -> None:
        while not self._over.wait(self.look_s):
            asked_at = time.monotonic()
            found = [each for each in read_snapshots(self._group_id) if "tally" in each]
            if found:
                # The snapshot was taken between the question and the answer.
                error_s = (time.monotonic() - asked_at) / 2
                self._note(found[0], asked_at + error_s, error_s)

    def _note(self, view: Mapping[str, Any], at: float, error_s: float = 0.0) -> None:
        """Note a snapshot.

        Args:
            view: The snapshot.
            at: When it was taken, on the monotonic clock.
            error_s: How much earlier or later that may have been.
        """
        self.first_seen_at = self.first_seen_at or at
        before_epoch = self.member_epoch
        self.view = view
        age_s = view["last_heartbeat_age_s"]
        if age_s is None:
            return
        self._note_lateness(view, at - age_s, error_s)
        rebalance_age_s = view["tally"]["last_rebalance_age_s"]
        if rebalance_age_s is not None:
            self.changed_at = max(self.changed_at, at - rebalance_age_s)
        if self.member_epoch != before_epoch:
            self.changed_at = max(self.changed_at, at - age_s)

    def _note_lateness(self, view: Mapping[str, Any], sent_at: float, error_s: float) -> None:
        count = view["tally"]["counts"]["heartbeat"]
        before, before_at, before_error_s = self._before
        if count == before:
            return
        self._before = (count, sent_at, error_s)
        if not before:
            return
        late_s = sent_at - before_at - view["heartbeat_interval_ms"] / 1000
        if count == before + 1 and late_s >= -(error_s + before_error_s + ROUNDED_S):
            self._late_s.append((sent_at, max(0.0, late_s)))
        elif late_s > 0:
            self.at_most_s.append(late_s)
