"""Notes about the member of a query: its plans, its partitions, and late heartbeats."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from spark_groups.group.ledger.events import (
    BatchFinished,
    BatchPlanned,
    OffsetsCommitted,
    PartitionsGivenUp,
)
from spark_groups.group.ledger.plan_text import plan_as_json, plan_from_json
from spark_groups.group.member.events import (
    Event,
    NameOf,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from spark_groups.runtime.driver import GroupDriver
from spark_groups.runtime.engine import suspension_clock
from workshop.chaos.faults.clocks import wall_s
from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.journal import Journal, Points
from workshop.chaos.results.facts import Note, Partition

LATE_S: Final = 1.0
"""The delay of a heartbeat, in seconds, from which on the journal notes it."""
SAMPLE_S: Final = 0.5
_NOTED: Final = {
    PartitionsAssigned: Note.ASSIGNED,
    PartitionsRevoked: Note.REVOKED,
    PartitionsLost: Note.LOST,
    PartitionsGivenUp: Note.GIVEN_UP,
}
_POINTS: Final = {
    BatchFinished: Point.KAFKA_COMMIT_SENT,
    OffsetsCommitted: Point.KAFKA_COMMIT_ACCEPTED,
}
"""The events after which an order may kill the member."""

Offset = Mapping[str, Any]


def digest(offset: Offset) -> str:
    """Return what names a plan in notes.

    Args:
        offset: The plan, as in the offset log.
    """
    return hashlib.sha256(json.dumps(offset).encode()).hexdigest()[:16]


class MemberNotes:
    """Observes a member, in the process that it lives in.

    Args:
        journal: Where it notes what it sees.
        points: Where an order may kill it.
        session_s: The group's session timeout, in seconds.
    """

    def __init__(self, journal: Journal, points: Points, session_s: float) -> None:
        self._journal = journal
        self._silent_s = session_s / 2
        self._points = points
        self._planned_s = wall_s()
        """When the last batch was planned, in seconds of the wall clock."""

    def watch(self, driver: GroupDriver) -> None:
        """Begin.

        Args:
            driver: The member's.
        """
        driver.observe(self._observe)
        threading.Thread(
            target=self._sample, args=(driver,), name="chaos-sample", daemon=True
        ).start()

    def note_plan(self, number: int, start: Offset, end: Offset) -> None:
        """Note the last batch that was planned.

        Args:
            number: Its number.
            start: Where it begins.
            end: Where it ends.
        """
        plan = plan_from_json(end) if end != start else None
        partitions = (
            [(offset_range.topic, offset_range.partition) for offset_range in plan.ranges]
            if plan
            else []
        )
        self._journal.note(
            Note.PLANNED, self._planned_s, batch=number, plan=digest(end), partitions=partitions
        )

    def note_left(self, driver: GroupDriver) -> None:
        """Note that the member has left in good order, and which commits were not answered.

        Args:
            driver: The member's, which has left.
        """
        named = (each.rpartition("-") for each in driver.snapshot().uncommitted)
        unanswered = [(topic, int(index)) for topic, _, index in named]
        self._journal.note(Note.LEFT, partitions=unanswered)

    def _observe(self, event: Event, name_of: NameOf) -> None:
        """Note an event; the caller has the member's lock, so this must not wait."""
        kind = type(event)
        if kind is BatchPlanned:
            # The process may be stopped before it notes the plan.
            self._planned_s = wall_s() - (suspension_clock() - event.at)
        if isinstance(event, BatchFinished):
            self._journal.note(Note.PROVEN, plan=digest(plan_as_json(event.plan)))
        if kind in _NOTED:
            named = _names(getattr(event, "partitions", ()), name_of)
            reason = getattr(event, "reason", "")
            self._journal.note_partitions(_NOTED[kind], named, reason=reason)
        if kind in _POINTS:
            self._points.observe(_POINTS[kind])

    def _sample(self, driver: GroupDriver) -> None:
        """Note each time that a heartbeat becomes overdue, and how long none was accepted."""
        was_late, noted_s, looked_s = False, 0.0, time.monotonic()
        while True:
            member = driver.snapshot()
            overdue_s = member.heartbeat_overdue_s or 0.0
            if overdue_s >= LATE_S and not was_late:
                self._journal.note(Note.LATE, overdue_s=overdue_s)
            was_late = overdue_s >= LATE_S
            # A process without processor time sends nothing, and does not look either.
            stalled_s = time.monotonic() - looked_s - SAMPLE_S
            looked_s = time.monotonic()
            silent_s = max(member.last_heartbeat_age_s or 0.0, stalled_s)
            noted_s = min(noted_s, silent_s)
            if silent_s >= noted_s + self._silent_s:
                self._journal.note(Note.SILENT, silent_s=silent_s)
                noted_s = silent_s
            time.sleep(SAMPLE_S)


def _names(keys: Iterable[Any], name_of: NameOf) -> list[Partition]:
    return [(name_of(key.topic_id) or str(key.topic_id), key.partition) for key in keys]
