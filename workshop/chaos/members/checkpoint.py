"""Spark's checkpoint on disk, as far as a source sees it: the offset log and the commit log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from spark_groups.group.ledger.plan_text import plan_from_json
from spark_groups.types import BatchPlan

KEPT: Final = 100
"""How many batches are kept, as by spark.sql.streaming.minBatchesToRetain."""


class ChangedPlanError(Exception):
    """offsets/N is there already and holds another plan."""


class Checkpoint:
    """The offset log and the commit log of a query.

    Args:
        directory: Where they lie.
    """

    def __init__(self, directory: Path) -> None:
        self._offsets = directory / "offsets"
        self._commits = directory / "commits"
        for log in (self._offsets, self._commits):
            log.mkdir(parents=True, exist_ok=True)

    def last_planned(self) -> int | None:
        """Return the number of the last batch in the offset log, None if there is none."""
        return _last(self._offsets)

    def last_committed(self) -> int | None:
        """Return the number of the last batch in the commit log, None if there is none."""
        return _last(self._commits)

    def offset(self, batch: int) -> dict[str, Any] | None:
        """Return where a batch ended; None if it is not in the offset log.

        Args:
            batch: Its number.
        """
        try:
            text = (self._offsets / str(batch)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        # What Spark writes has a version and metadata before it.
        offset: dict[str, Any] = json.loads(text.splitlines()[-1])
        return offset

    def last_plan(self) -> BatchPlan | None:
        """Return the last plan in the offset log; None: nothing was planned yet."""
        last = self.last_planned()
        return plan_from_json(self.offset(last)) if last is not None else None

    def finished_s(self) -> dict[int, float]:
        """Return when batches were written to the commit log, in seconds of the wall clock."""
        found = (path for path in self._commits.iterdir() if path.name.isdigit())
        return {int(path.name): path.stat().st_mtime for path in found}

    def go_back(self, batch: int, *, is_finished: bool) -> None:
        """Become what a copy was that was made after a batch: later entries are not in it.

        Args:
            batch: The last batch of the copy.
            is_finished: Whether the copy has its entry in the commit log.
        """
        for log, last in ((self._offsets, batch), (self._commits, batch - (not is_finished))):
            for path in log.iterdir():
                # Hadoop keeps the checksum of N in .N.crc.
                number = path.name.strip(".").removesuffix(".crc")
                if number.isdigit() and int(number) > last:
                    path.unlink()

    def copy_from(self, other: Path) -> None:
        """Become a copy of another checkpoint.

        Args:
            other: Its directory.
        """
        for log in (self._offsets, self._commits):
            shutil.rmtree(log)
        shutil.copytree(other, self._offsets.parent, dirs_exist_ok=True)

    def plan(self, batch: int, text: str) -> None:
        """Write offsets/N, before the batch is run.

        Args:
            batch: Its number.
            text: Where it ends.

        Raises:
            ChangedPlanError: The file is there already, with another text.
        """
        path = self._offsets / str(batch)
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ChangedPlanError(f"offsets/{batch} holds another plan already")
        _write(path, text)

    def finish(self, batch: int) -> None:
        """Write commits/N after the batch, and delete old entries.

        Args:
            batch: Its number.
        """
        _write(self._commits / str(batch), "{}")
        for log in (self._offsets, self._commits):
            (log / str(batch - KEPT)).unlink(missing_ok=True)


def _last(log: Path) -> int | None:
    return max((int(path.name) for path in log.iterdir() if path.name.isdigit()), default=None)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, as Spark does."""
    new = path.with_name(f".{path.name}.tmp")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
