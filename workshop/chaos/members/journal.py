"""The notes of a process, and points where orders make it die, freeze or slow down."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Final

from spark_groups.types import OffsetRange
from workshop.chaos.faults.clocks import wall_s
from workshop.chaos.faults.schedule import Point
from workshop.chaos.results.facts import Note, Partition, RunKey

JOURNALS: Final = "*.jsonl"


def lines_of(directory: Path) -> list[str]:
    """Return the lines of all journals, file by file.

    Args:
        directory: The directory of the journals.
    """
    return [
        line
        for path in sorted(directory.glob(JOURNALS))
        for line in path.read_text(encoding="ascii").splitlines()
    ]


class Journal:
    """Appends notes to a file: each in one write, so that a process that is killed loses none.

    Args:
        directory: Where the file lies, named after the member.
        run: Whose notes they are.
    """

    def __init__(self, directory: Path, run: RunKey) -> None:
        self._run = run
        path = directory / f"{run.member}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: Note, at_s: float | None = None, **fields: Any) -> None:
        """Append a note.

        Args:
            what: What it says.
            at_s: When it happened, in seconds of the wall clock; None is now.
            fields: What else there is to say.
        """
        note = {
            "at_s": wall_s() if at_s is None else at_s,
            "member": self._run.member,
            "run": self._run.number,
            "what": what.value,
            **fields,
        }
        # The line may follow one that was cut off.
        os.write(self._descriptor, b"\n" + json.dumps(note).encode("ascii") + b"\n")

    def note_reads(
        self, batch: int, plan: str, ranges: Iterable[OffsetRange], *, is_replay: bool
    ) -> None:
        """Append a note about a batch that begins to read.

        Args:
            batch: Its number.
            plan: What names its plan.
            ranges: What it reads.
            is_replay: Whether Spark runs an old batch again.
        """
        read = [(e.topic, e.partition, e.from_offset, e.until_offset) for e in ranges]
        self.note(Note.READS, batch=batch, plan=plan, replay=is_replay, ranges=read)

    def note_partitions(self, what: Note, partitions: Iterable[Partition], **fields: Any) -> None:
        """Append a note about partitions, if there are any."""
        if named := sorted(partitions):
            self.note(what, partitions=named, **fields)


class Action(Enum):
    """What an order has a process do at a point."""

    KILL = "kill"
    STAND_STILL = "stand still"
    BE_SLOW = "be slow"


class Orders:
    """The order that a process carries out when it comes to a point; there is one at a time.

    Args:
        path: The file that holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def give(self, action: Action, point: Point, takes_s: float = 0.0) -> None:
        """Give an order, in place of one that was not carried out.

        Args:
            action: What to do.
            point: Where.
            takes_s: For how long, in seconds.
        """
        new = self._path.with_suffix(".new")
        order = {"action": action.value, "point": point.name, "takes_s": takes_s}
        new.write_text(json.dumps(order), encoding="ascii")
        new.replace(self._path)

    def withdraw(self) -> bool:
        """Withdraw the order; return whether one was not yet carried out."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    def is_given(self) -> bool:
        """Return whether an order was not yet carried out."""
        return self._path.exists()

    def take(self, point: Point) -> tuple[Action, float] | None:
        """Return the order for a point; the caller carries it out."""
        try:
            order = json.loads(self._path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None
        if order["point"] != point.name or not self.withdraw():
            return None
        return Action(order["action"]), float(order["takes_s"])


def _to_this_process(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


class Points:
    """The points of a batch, as a process passes them.

    Args:
        journal: Where it notes its actions.
        orders: The orders.
        is_ending: Returns whether the process ends; a batch then stops.
        send: Sends a signal to all that the order is for.
    """

    def __init__(
        self,
        journal: Journal,
        orders: Orders,
        is_ending: Callable[[], bool] = lambda: False,
        send: Callable[[signal.Signals], object] = _to_this_process,
    ) -> None:
        self._journal = journal
        self._orders = orders
        self._is_ending = is_ending
        self._send = send
        self._lock = threading.Lock()

    def reach(self, point: Point) -> None:
        """Carry out the order, in the main thread of a batch.

        Args:
            point: Where the batch is.
        """
        if self._is_ending():
            # Spark interrupts a batch when its query is stopped: it never gets any further.
            threading.Event().wait()
        order = self.observe(point)
        if order is not None:
            time.sleep(order)

    def observe(self, point: Point) -> float | None:
        """Die or stand still if that is ordered; in any thread.

        Args:
            point: The point just reached.

        Returns:
            How long to be slow, in seconds; None if there is no such order.
        """
        with self._lock:
            order = self._orders.take(point)
        if order is None:
            return None
        action, takes_s = order
        if action is Action.KILL:
            self._journal.note(Note.CRASHES, point=point.value)
            self._send(signal.SIGKILL)
        if action is Action.STAND_STILL:
            self._journal.note(Note.FROZE, point=point.value)
            self._send(signal.SIGSTOP)
        if action is not Action.BE_SLOW:
            return None
        self._journal.note(Note.SLOWED, takes_s=takes_s)
        return takes_s
