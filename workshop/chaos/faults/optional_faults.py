"""The faults that `--faults` names: drawn, carried out when they are due, and ended."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from workshop.chaos.faults.machine import TABLES, Disks, MachineFaults
from workshop.chaos.faults.resets import AtHand, Resets
from workshop.chaos.faults.retention import SHORT_LIVED, Retention
from workshop.chaos.faults.schedule import (
    FaultClass,
    MachineFault,
    Overtaking,
    QueryTraits,
    RetentionFaultKind,
    Standstill,
    draw_machine_faults,
    draw_overtakings,
    draw_standstills,
)
from workshop.chaos.members.ensemble import Member, Outcome
from workshop.chaos.results.facts import Deletion, Trouble
from workshop.chaos.setting import Files

OF_NETWORK: Final = frozenset({FaultClass.NETWORK, FaultClass.CLUSTER})
"""The classes whose faults are those of links."""
AGAIN_S: Final = 1.0
"""How many seconds later a fault is tried again, if its class had no effect in the whole time."""
LATER: Final = ("crickets", "drones", "emmets", "fleas")
"""Topics to which members subscribe, and that appear while no member runs."""

Due = MachineFault | Overtaking | Standstill


def part_of(fault: Due) -> FaultClass:
    """Return the class of a fault.

    Args:
        fault: The fault.
    """
    match fault:
        case Overtaking():
            return FaultClass.RETENTION
        case Standstill():
            return FaultClass.RESETS
        case _:
            return fault.kind.part


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
        self._chances = {class_: random.Random(f"{seed}-{class_.value}") for class_ in classes}
        self._duration_s = duration_s
        self._disks = disks
        self._retention = retention
        self._machine: MachineFaults | None = None
        self._resets: Resets | None = None
        self._due: list[Due] = []
        self._last: dict[FaultClass, Due] = {}
        """The last fault of each class that was due."""

    @property
    def short_lived(self) -> Mapping[str, int]:
        """The topics that have deletions, with their numbers of partitions."""
        return SHORT_LIVED if FaultClass.RETENTION in self._chances else {}

    @property
    def later(self) -> tuple[str, ...]:
        """The topics that appear while no member runs."""
        return LATER if FaultClass.RESETS in self._chances else ()

    @property
    def stood_s(self) -> float:
        """For how long there was no fault because no member ran, in seconds."""
        return self._resets.stood_s if self._resets else 0.0

    @property
    def is_busy(self) -> bool:
        """Whether records are being deleted."""
        return self._retention.is_busy

    @property
    def problems(self) -> tuple[str, ...]:
        """What ended the thread that deletes records, and what did not end between runs."""
        return (*self._retention.problems, *(self._resets.problems if self._resets else ()))

    @property
    def has_effect(self) -> bool:
        """Whether a fault of each class here was carried out, or lasts."""
        return all(map(self._has_effect, set(self._chances) - OF_NETWORK))

    @property
    def outcomes(self) -> dict[tuple[Enum, Outcome], int]:
        """How many faults of each kind had which outcome."""
        found: dict[tuple[Enum, Outcome], int] = dict(self._retention.outcomes.items())
        if self._machine is not None:
            found.update(self._machine.outcomes.items())
        if self._resets is not None:
            found.update(self._resets.outcomes.items())
        return found

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The faults of the machine and the work between runs, as they were carried out."""
        machine = self._machine.troubles if self._machine else ()
        return (*machine, *(self._resets.troubles if self._resets else ()))

    @property
    def deletions(self) -> tuple[Deletion, ...]:
        """The deletions of unread records."""
        return tuple(self._retention.deletions)

    def prepare(self, files: Files) -> None:
        """Put the tables on their disk, before they are made."""
        self._disks.add(TABLES, files.tables)

    def begin(
        self, at_hand: AtHand, members: Mapping[str, Member], queries: Iterable[QueryTraits]
    ) -> None:
        """Draw the faults, before the members start.

        Args:
            at_hand: What an operator has at hand between two runs.
            members: The members, by name.
            queries: The queries among them.
        """
        traits = {query.name: query for query in queries}
        names = tuple(traits)
        self._machine = MachineFaults(
            self._disks,
            at_hand.files,
            members,
            names,
            is_running=lambda name: members[name].is_running,
        )
        self._due += draw_machine_faults(
            self._chances,
            duration_s=self._duration_s,
            queries=names,
            clocks=tuple(name for name, trait in traits.items() if trait.reader == "fast"),
        )
        if chance := self._chances.get(FaultClass.RETENTION):
            self._due += draw_overtakings(chance, duration_s=self._duration_s)
        if chance := self._chances.get(FaultClass.RESETS):
            self._due += draw_standstills(chance, duration_s=self._duration_s)
            self._resets = Resets(at_hand, chance)
        self._due.sort(key=lambda each: each.at_s)

    def carry_out(self, since_s: float) -> None:
        """Begin the faults that are due.

        Args:
            since_s: For how many seconds there have been faults.
        """
        assert self._machine is not None
        while self._due and self._due[0].at_s <= since_s:
            fault = self._due.pop(0)
            match fault:
                case Overtaking():
                    self._retention.carry_out(fault)
                case Standstill():
                    assert self._resets is not None
                    self._machine.settle()
                    self._resets.carry_out(fault)
                case _:
                    self._machine.carry_out(fault)
            self._last[part_of(fault)] = fault
        for part, fault in self._last.items():
            is_due = since_s >= max(self._duration_s, fault.at_s + AGAIN_S)
            if is_due and not self.is_busy and not self._has_effect(part):
                # What it was to hit was down, or everything was read: it is tried once more.
                self._due.append(replace(fault, at_s=since_s))

    def _has_effect(self, part: FaultClass) -> bool:
        assert self._machine is not None
        if part is FaultClass.RETENTION:
            return self._retention.outcomes[RetentionFaultKind.OVERTAKE, Outcome.DONE] > 0
        if part is FaultClass.RESETS:
            assert self._resets is not None
            return any(how is Outcome.DONE for _, how in self._resets.outcomes)
        return self._machine.has_effect(part)

    def tick(self) -> None:
        """End the faults that have lasted long enough."""
        if self._machine is not None:
            self._machine.tick()

    def settle(self) -> None:
        """End all faults."""
        if self._machine is not None:
            self._machine.settle()
        self._retention.settle()
