"""Whether a run tried what it was asked to try: only then does its result count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from workshop.chaos.faults.network_schedule import ELSEWHERE, NETWORK_FAULTS
from workshop.chaos.faults.schedule import (
    FURTHER_BROKER_FAULTS,
    MACHINE_FAULTS,
    BrokerFaultKind,
    FaultClass,
    ResetFaultKind,
    RetentionFaultKind,
)
from workshop.chaos.results.account import Evidence


def _names(kinds: Iterable[Enum], *parts: FaultClass) -> frozenset[str]:
    further = (FURTHER_BROKER_FAULTS[part][0] for part in parts)
    return frozenset(each.value for each in (*kinds, *further))


KINDS: Final[Mapping[FaultClass, frozenset[str]]] = {
    FaultClass.NETWORK: _names(NETWORK_FAULTS, FaultClass.NETWORK),
    FaultClass.DISK: _names(MACHINE_FAULTS[FaultClass.DISK], FaultClass.DISK),
    FaultClass.CLOCK: _names(MACHINE_FAULTS[FaultClass.CLOCK]),
    FaultClass.RETENTION: _names(RetentionFaultKind),
    FaultClass.RESETS: _names(ResetFaultKind),
    FaultClass.CLUSTER: _names(ELSEWHERE),
}
"""The kinds of faults of each class, as a report names them."""
BROKERS: Final = _names(BrokerFaultKind)


def shortfalls(
    evidence: Evidence,
    *,
    members: Collection[str],
    asked: Iterable[FaultClass],
    brokers: int,
    done: Mapping[str, int],
) -> list[str]:
    """Return what a run did not try, in words; empty: its result counts.

    Args:
        evidence: All that is known.
        members: The names of all members.
        asked: The classes of faults that were asked for.
        brokers: How many brokers there were; several have faults.
        done: How many faults of each kind were carried out.
    """
    found = [] if sum(evidence.ends.values()) else ["no record was produced"]
    if len(members) <= len(evidence.ends):
        # Otherwise, some members have no partition.
        wrote = {execution.run.member for execution in evidence.facts.executions.values()}
        found += [
            f"{member} wrote nothing: it had no batch" for member in members if member not in wrote
        ]
    expected = {f"--faults {each.value}": KINDS[each] for each in asked}
    if brokers > 1:
        expected[f"--brokers {brokers}"] = BROKERS
    return found + [
        f"no fault took effect that {option} asked for"
        for option, kinds in expected.items()
        if not any(done.get(kind) for kind in kinds)
    ]
