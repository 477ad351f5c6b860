"""What a driver tells the runners of its queries when it means to stop: plan nothing more.

A query that is stopped in the middle of a batch loses that batch, and one that is stopped between
two batches has not yet been told that the last one is finished: Spark says so only in the next
trigger. So the driver leaves two notes for its runners, in a directory that only this user can
read, named after the pid of the JVM that both belong to:

    drain      plan nothing more; the batch that runs may end
    finished   texts of plans that Spark has committed, as a JSON list

A runner looks for the first before it plans and for the second before it leaves the group. Notes
that are older than the runner are another process's, whose pid was used again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark_groups.kafka.private_directory import make_private

_DRAIN: Final = "drain"
_FINISHED: Final = "finished"
_CLOCK_STEP_S: Final = 0.1
"""File systems stamp files with the time of the last tick, a little in the past."""


class DrainNotes:
    """The notes between a driver and the runners of its JVM.

    Args:
        jvm_pid: The JVM's pid: a runner's parent, a driver's gateway.
        directory: Where notes lie; None is this user's own directory for temporary files.
        not_before_s: Older notes are not for us, in seconds of the wall clock; None is now.
    """

    def __init__(
        self, jvm_pid: int, *, directory: Path | None = None, not_before_s: float | None = None
    ) -> None:
        base = directory or Path(tempfile.gettempdir(), f"spark-groups-drain-{os.getuid()}")
        self._base = base
        self._notes = base / str(jvm_pid)
        self._not_before_s = time.time() if not_before_s is None else not_before_s

    def request(self) -> None:
        """Ask the runners to plan nothing more.

        Raises:
            OSError: The directory cannot be made, or is somebody else's.
        """
        make_private(self._base)
        make_private(self._notes)
        (self._notes / _FINISHED).unlink(missing_ok=True)
        (self._notes / _DRAIN).write_text("", encoding="utf-8")

    def announce(self, plan_texts: Sequence[str]) -> None:
        """Tell the runners which plans are finished: Spark has committed their batches.

        Args:
            plan_texts: The plans exactly as they stand in Spark's checkpoint.

        Raises:
            OSError: It cannot be written.
        """
        beside = self._notes / f".{_FINISHED}"
        beside.write_text(json.dumps(list(plan_texts)), encoding="utf-8")
        beside.replace(self._notes / _FINISHED)

    def is_requested(self) -> bool:
        """Whether the driver asked for an end: then nothing more is planned."""
        return self._is_ours(self._notes / _DRAIN)

    def finished(self) -> tuple[str, ...]:
        """Return the texts of plans that the driver knows to be finished."""
        note = self._notes / _FINISHED
        if not self._is_ours(note):
            return ()
        try:
            texts = json.loads(note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ()
        return tuple(text for text in texts if isinstance(text, str))

    def clear(self) -> None:
        """Take the notes away."""
        shutil.rmtree(self._notes, ignore_errors=True)
        with contextlib.suppress(OSError):
            # Only the last one out succeeds.
            self._base.rmdir()

    def _is_ours(self, note: Path) -> bool:
        try:
            found = note.stat()
        except OSError:
            return False
        is_recent = found.st_mtime >= self._not_before_s - _CLOCK_STEP_S
        return is_recent and found.st_uid == os.getuid()
