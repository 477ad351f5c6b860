"""All checkers, in the order in which they run."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.checkers.commits import (
    CommitEpochs,
    CommitOwnership,
    CommitsNeverGoBack,
    ResetsRespected,
)
from spark_groups.lab.sim.checkers.failures import (
    FullHeartbeats,
    LossIsReported,
    NoFinalFailure,
    RequestRate,
)
from spark_groups.lab.sim.checkers.group_state import (
    ComputationIsDue,
    LegalTarget,
    MemberEpochs,
    StableGroup,
    TimeoutsEnforced,
)
from spark_groups.lab.sim.checkers.ownership import CleanHandOver, OnlyAssigned, SingleOwner
from spark_groups.lab.sim.checkers.progress import (
    AvailableNowBounds,
    GroupSettles,
    KeepsReading,
    TriggerDelay,
)
from spark_groups.lab.sim.checkers.records import (
    NoGap,
    ReadOnce,
    SameRows,
    StartingOffsetsUsed,
    StartsCommitted,
)
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Scene

CHECKERS: Final[tuple[type[Checker], ...]] = (
    TimeoutsEnforced,
    GroupSettles,
    LegalTarget,
    MemberEpochs,
    ComputationIsDue,
    SingleOwner,
    StableGroup,
    CleanHandOver,
    OnlyAssigned,
    CommitOwnership,
    CommitEpochs,
    CommitsNeverGoBack,
    ResetsRespected,
    NoGap,
    ReadOnce,
    SameRows,
    KeepsReading,
    AvailableNowBounds,
    TriggerDelay,
    StartsCommitted,
    StartingOffsetsUsed,
    LossIsReported,
    NoFinalFailure,
    FullHeartbeats,
    RequestRate,
)
"""Checkers after `GroupSettles` assume that a finished run has settled; `ResetsRespected` names the
cause of a gap that `NoGap` also finds."""


def all_checkers(scene: Scene, history: History) -> list[Checker]:
    """Return one checker of each kind for a run."""
    return [each(scene, history) for each in CHECKERS]
