"""Faults of the machine of members: full disks under checkpoints and tables, clocks that jump."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from workshop.chaos.faults.clocks import set_clock
from workshop.chaos.faults.disks import SmallDisk, have_own_mounts
from workshop.chaos.faults.schedule import FaultClass, MachineFault, MachineFaultKind
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.results.facts import Trouble
from workshop.chaos.setting import Files

TABLES: Final = "tables"
"""The name of the disk of all tables; that of a checkpoint is its member."""


class Disks:
    """The small disks of a run, by name; its directories stay what they are if none are wanted.

    Args:
        parts: The parts of the machine that have faults.
    """

    def __init__(self, parts: Collection[FaultClass]) -> None:
        self._is_wanted = FaultClass.DISK in parts
        self._disks: dict[str, SmallDisk] = {}
        self._released = ExitStack()

    def __enter__(self) -> Disks:
        if self._is_wanted:
            have_own_mounts()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.close()

    def __getitem__(self, name: str) -> SmallDisk:
        return self._disks[name]

    def add(self, name: str, directory: Path) -> None:
        """Put a directory on a disk of its own, if disks have faults.

        Args:
            name: The name of the disk.
            directory: The directory, with nothing in it.
        """
        if self._is_wanted:
            self._disks[name] = disk = SmallDisk(directory)
            self._released.callback(disk.release)

    def of_brokers(self, directory: Path, nodes: Iterable[int]) -> dict[int, Path] | None:
        """Return the directories of brokers, each on a disk; None: disks have no faults.

        Args:
            directory: Where they are.
            nodes: The node ids.
        """
        if not self._is_wanted:
            return None
        directories = {node: directory / f"broker-{node}" for node in nodes}
        for node, each in directories.items():
            self.add(broker_disk(node), each)
        return directories


def broker_disk(node: int) -> str:
    """Return the name of a broker's disk.

    Args:
        node: The node id.
    """
    return f"broker {node}"


class MachineFaults:
    """Carries out faults of the machine; several last at once, but one of a kind on a target.

    Args:
        disks: The disks, where those of checkpoints are added.
        files: The files of the run.
        members: All members.
        queries: Those with a checkpoint.
        is_running: Whether a member has a process.
    """

    def __init__(
        self,
        disks: Disks,
        files: Files,
        members: Iterable[str],
        queries: Iterable[str],
        *,
        is_running: Callable[[str], bool],
    ) -> None:
        self.outcomes: Counter[tuple[MachineFaultKind, Outcome]] = Counter()
        self.troubles: list[Trouble] = []
        self._disks = disks
        self._files = files
        self._members = tuple(members)
        self._is_running = is_running
        self._lasting: dict[tuple[MachineFaultKind, str], tuple[MachineFault, float]] = {}
        """What lasts, and since when, in seconds of the wall clock."""
        for name in queries:
            disks.add(name, files.checkpoint(name))
        for name in self._members:
            set_clock(files.clock(name), 0.0)

    def has_effect(self, part: FaultClass) -> bool:
        """Return whether a fault of a class was carried out, or lasts."""
        return any(trouble.part is part for trouble in self.troubles) or any(
            kind.part is part for kind, _ in self._lasting
        )

    def carry_out(self, fault: MachineFault) -> None:
        """Begin a fault that is due, unless its target is down or has such a fault already."""
        key = _key(fault)
        is_of_all = fault.kind is MachineFaultKind.TABLES_FULL
        if key in self._lasting or not (is_of_all or self._is_running(fault.target)):
            self.outcomes[fault.kind, Outcome.SKIPPED] += 1
            return
        self._lasting[key] = fault, time.time()
        if fault.kind is MachineFaultKind.JUMP:
            set_clock(self._files.clock(fault.target), fault.ahead_s)
        else:
            self._disks[key[1]].fill(fault.spare_bytes)

    def tick(self) -> None:
        """End the faults that have lasted long enough."""
        self._end(lambda fault, from_s: time.time() >= from_s + fault.takes_s)

    def settle(self) -> None:
        """End everything."""
        self._end(lambda *_: True)

    def _end(self, is_due: Callable[[MachineFault, float], bool]) -> None:
        for key, (fault, from_s) in list(self._lasting.items()):
            if not is_due(fault, from_s):
                continue
            del self._lasting[key]
            if fault.kind is MachineFaultKind.JUMP:
                set_clock(self._files.clock(fault.target), 0.0)
            else:
                self._disks[key[1]].make_room()
            is_of_all = fault.kind is MachineFaultKind.TABLES_FULL
            members = self._members if is_of_all else (fault.target,)
            found = Trouble(fault.kind.part, fault.kind.value, members, from_s, time.time())
            self.troubles.append(found)
            self.outcomes[fault.kind, Outcome.DONE] += 1


def _key(fault: MachineFault) -> tuple[MachineFaultKind, str]:
    is_of_all = fault.kind is MachineFaultKind.TABLES_FULL
    return fault.kind, TABLES if is_of_all else fault.target
