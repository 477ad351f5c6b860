"""The notes of a Spark application's runner, and the points of a batch that it passes."""

from __future__ import annotations

from typing import Any

from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.application_session import send_to_all
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.journal import Journal, Orders, Points
from workshop.chaos.members.member_notes import MemberNotes
from workshop.chaos.results.facts import Note, RunKey
from workshop.chaos.setting import Files


class RunnerNotes:
    """Notes the plans and the end of a runner, and passes points of its batches.

    Args:
        files: The files of the chaos run.
        key: The member and the number of this run.
        session_s: The group's session timeout, in seconds.
    """

    def __init__(self, files: Files, key: RunKey, session_s: float) -> None:
        self._journal = Journal(files.journals, key)
        self._points = Points(self._journal, Orders(files.orders(key.member)), send=send_to_all)
        self._checkpoint = Checkpoint(files.checkpoint(key.member))
        self._finished = self._checkpoint.last_committed()
        self.of_member = MemberNotes(self._journal, self._points, session_s)

    def before_plan(self) -> None:
        """Pass the point after commits/N, if Spark has written it since the last call."""
        finished = self._checkpoint.last_committed()
        if finished != self._finished:
            self._finished = finished
            self._points.reach(Point.AFTER_COMMIT_LOG)

    def note_plan(self, first: dict[str, Any], end: dict[str, Any]) -> None:
        """Note a plan, unless it is the last one, and pass the point before offsets/N.

        Args:
            first: The offset before the first plan.
            end: The plan.
        """
        last = self._checkpoint.last_planned()
        start = (None if last is None else self._checkpoint.offset(last)) or first
        if end != start:
            self.of_member.note_plan(0 if last is None else last + 1, start, end)
            self._points.reach(Point.BEFORE_OFFSET_LOG)

    def note_end(self) -> None:
        """Note that the member leaves."""
        self._journal.note(Note.LEAVES)
