"""The diary of a member of `make bench-handover`, and how long partitions were not read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Event:
    """A line of a member's diary.

    Args:
        what: `joining`, `rows` or `left`.
        at_s: When, in seconds of the wall clock.
        partitions: The partitions it concerns.
    """

    what: str
    at_s: float
    partitions: tuple[int, ...]


class Diary:
    """Writes down what happens, for the benchmark to read while it happens.

    Args:
        directory: Where `events.jsonl` lies; a restarted member continues it.
    """

    def __init__(self, directory: Path) -> None:
        self._file = (directory / "events.jsonl").open("a", encoding="ascii")

    def note(self, what: str, partitions: Iterable[int] = ()) -> None:
        """Append an event that happens now."""
        event = {"what": what, "at_s": time.time(), "partitions": sorted(partitions)}
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()


def read_diary(directory: Path) -> list[Event]:
    """Return the events of a diary so far."""
    path = directory / "events.jsonl"
    if not path.exists():
        return []
    # The last line may be half written, also by a process that was killed.
    events = []
    for line in path.read_text(encoding="ascii").split("\n"):
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        events.append(Event(found["what"], found["at_s"], tuple(found["partitions"])))
    return events


def pauses(
    events: Iterable[Event], partitions: Iterable[int], from_s: float, until_s: float
) -> dict[int, float]:
    """Return for each partition the longest time that no member read it, in seconds.

    A pause counts if a part of it lies between the two moments.

    Args:
        events: The diaries of all members.
        partitions: Which partitions.
        from_s: The first moment, in seconds of the wall clock.
        until_s: The last one.
    """
    times: dict[int, list[float]] = {each: [] for each in partitions}
    for event in events:
        if event.what == "rows":
            for partition in times.keys() & set(event.partitions):
                times[partition].append(event.at_s)
    return {
        partition: max(
            (
                later - earlier
                for earlier, later in pairwise(sorted(found))
                if later > from_s and earlier < until_s
            ),
            default=until_s - from_s,
        )
        for partition, found in times.items()
    }
