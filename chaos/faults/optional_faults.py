"""The faults that `--faults` names: drawn, carried out when they are due, and ended."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from chaos.faults.machine import TABLES, Disks, MachineFaults
from chaos.faults.retention import SHORT_LIVED, Retention
from chaos.faults.schedule import (
    FaultClass,
    MachineFault,
    Overtaking,
    QueryTraits,
    draw_machine_faults,
    draw_overtakings,
)
from chaos.members.ensemble import Member, Outcome
from chaos.results.facts import Deletion, Trouble
from chaos.setting import Files


class OptionalFaults:
    """All faults of these classes; each class is drawn from chances of its own.

    Args:
        seed: The seed of the run.
        classes: The classes that the run has.
        duration_s: How long faults are due, in seconds.
        disks: The disks that become full.
        retention: What deletes records.
    """

    def __init__(
        self,
        seed: int,
        classes: Collection[FaultClass],
        *,
        duration_s: float,
        disks: Disks,
        retention: Retention,
    ) -> None:
        self._chances = {each: random.Random(f"{seed}-{each.value}") for each in classes}
        self._duration_s = duration_s
        self._disks = disks
        self._retention = retention
        self._machine: MachineFaults | None = None
        self._due: list[MachineFault | Overtaking] = []

    @property
    def short_lived(self) -> Mapping[str, int]:
        """The topics that have deletions, with their numbers of partitions."""
        return SHORT_LIVED if FaultClass.RETENTION in self._chances else {}

    @property
    def is_busy(self) -> bool:
        """Whether records are being deleted."""
        return self._retention.is_busy

    @property
    def outcomes(self) -> dict[tuple[Enum, Outcome], int]:
        """How many faults of each kind had which outcome."""
        found: dict[tuple[Enum, Outcome], int] = dict(self._retention.outcomes.items())
        if self._machine is not None:
            found.update(self._machine.outcomes.items())
        return found

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The faults of the machine, as they were carried out."""
        return tuple(self._machine.troubles) if self._machine else ()

    @property
    def deletions(self) -> tuple[Deletion, ...]:
        """The deletions of unread records."""
        return tuple(self._retention.deletions)

    def prepare(self, files: Files) -> None:
        """Put the tables on their disk, before they are made."""
        self._disks.add(TABLES, files.tables)

    def begin(
        self, files: Files, members: Mapping[str, Member], queries: Iterable[QueryTraits]
    ) -> None:
        """Draw the faults, before the members start.

        Args:
            files: The files of the run.
            members: The members, by name.
            queries: The queries among them.
        """
        traits = {each.name: each for each in queries}
        names = tuple(traits)
        self._machine = MachineFaults(
            self._disks,
            files,
            members,
            names,
            is_running=lambda name: members[name].is_running,
        )
        self._due += draw_machine_faults(
            self._chances,
            duration_s=self._duration_s,
            queries=names,
            clocks=tuple(name for name, each in traits.items() if each.reader == "fast"),
        )
        if chance := self._chances.get(FaultClass.RETENTION):
            self._due += draw_overtakings(chance, duration_s=self._duration_s)
        self._due.sort(key=lambda each: each.at_s)

    def carry_out(self, since_s: float) -> None:
        """Begin the faults that are due.

        Args:
            since_s: For how many seconds there have been faults.
        """
        assert self._machine is not None
        while self._due and self._due[0].at_s <= since_s:
            fault = self._due.pop(0)
            if isinstance(fault, Overtaking):
                self._retention.carry_out(fault)
            else:
                self._machine.carry_out(fault)

    def tick(self) -> None:
        """End the faults that have lasted long enough."""
        if self._machine is not None:
            self._machine.tick()

    def settle(self) -> None:
        """End all faults."""
        if self._machine is not None:
            self._machine.settle()
        self._retention.settle()
