"""What a member of benchmarks/handover.py writes down, for the benchmark to read meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path


class Diary:
    """Writes down what happens, for the benchmark to read while it happens.

    Args:
        directory: Where `events.jsonl` lies.
    """

    def __init__(self, directory: Path) -> None:
        self._file = (directory / "events.jsonl").open("a", encoding="ascii")

    def note(self, what: str, partitions: Iterable[int] = (), at_s: float | None = None) -> None:
        """Append an event.

        Args:
            what: Its name.
            partitions: The partitions it concerns.
            at_s: When, in seconds of the wall clock; None is now.
        """
        at_s = time.time() if at_s is None else at_s
        event = {"what": what, "at_s": at_s, "partitions": sorted(partitions)}
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
