"""All checkers, in the order in which they run."""

from __future__ import annotations

from typing import Final

from group_lab.sim.checkers.checker import Checker
from group_lab.sim.checkers.commits import (
    CommitEpochs,
    CommitOwnership,
    CommitsNeverGoBack,
    ResetsRespected,
)
from group_lab.sim.checkers.failures import (
    FullHeartbeats,
    LossIsReported,
    NoFinalFailure,
    RequestRate,
)
from group_lab.sim.checkers.group_state import (
    ComputationIsDue,
    LegalTarget,
    MemberEpochs,
    StableGroup,
    TimeoutsEnforced,
)
from group_lab.sim.checkers.ownership import CleanHandOver, OnlyAssigned, SingleOwner
from group_lab.sim.checkers.progress import (
    AvailableNowBounds,
    GroupSettles,
    KeepsReading,
    TriggerDelay,
)
from group_lab.sim.checkers.records import (
    NoGap,
    ReadOnce,
    SameRows,
    StartingOffsetsUsed,
    StartsCommitted,
)
from group_lab.sim.checkers.tables import ExactlyOnce
from group_lab.sim.history import History
from group_lab.sim.scene import Scene

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
    ExactlyOnce,
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
    return [checker(scene, history) for checker in CHECKERS]
