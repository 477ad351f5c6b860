"""All promises, in the order in which they are looked at."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.checkers.commits import (
    CommitEpochs,
    CommitOwnership,
    CommittedNeverBack,
    ResetsHold,
)
from spark_groups.lab.sim.checkers.failures import (
    FullHeartbeats,
    LossIsTold,
    NoFinalFailure,
    RequestPace,
)
from spark_groups.lab.sim.checkers.group_state import (
    LegalTarget,
    MemberEpochs,
    Patience,
    StableGroup,
)
from spark_groups.lab.sim.checkers.ownership import CleanHandOver, OnlyAssigned, SingleOwner
from spark_groups.lab.sim.checkers.progress import (
    ComesToRest,
    KeepsReading,
    ReadsAvailable,
    TriggerDelay,
)
from spark_groups.lab.sim.checkers.records import NamedStarts, NoGap, ReadOnce, SameRows, Starts
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Scene

CHECKERS: Final[tuple[type[Checker], ...]] = (
    Patience,
    ComesToRest,
    LegalTarget,
    MemberEpochs,
    SingleOwner,
    StableGroup,
    CleanHandOver,
    OnlyAssigned,
    CommitOwnership,
    CommitEpochs,
    CommittedNeverBack,
    NoGap,
    ReadOnce,
    ResetsHold,
    SameRows,
    KeepsReading,
    ReadsAvailable,
    TriggerDelay,
    Starts,
    NamedStarts,
    LossIsTold,
    NoFinalFailure,
    FullHeartbeats,
    RequestPace,
)
"""What comes after ComesToRest presupposes that a run that is over came to rest."""


def all_checkers(scene: Scene, history: History) -> list[Checker]:
    """Return one checker of each kind for a run."""
    return [each(scene, history) for each in CHECKERS]
