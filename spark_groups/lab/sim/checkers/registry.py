"""All promises, in the order in which they are looked at."""

from __future__ import annotations

from typing import Final

from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.checkers.clean_hand_over import CleanHandOver
from spark_groups.lab.sim.checkers.comes_to_rest import ComesToRest
from spark_groups.lab.sim.checkers.commit_epochs import CommitEpochs
from spark_groups.lab.sim.checkers.commit_ownership import CommitOwnership
from spark_groups.lab.sim.checkers.committed_never_back import CommittedNeverBack
from spark_groups.lab.sim.checkers.full_heartbeats import FullHeartbeats
from spark_groups.lab.sim.checkers.keeps_reading import KeepsReading
from spark_groups.lab.sim.checkers.legal_target import LegalTarget
from spark_groups.lab.sim.checkers.loss_is_told import LossIsTold
from spark_groups.lab.sim.checkers.member_epochs import MemberEpochs
from spark_groups.lab.sim.checkers.named_starts import NamedStarts
from spark_groups.lab.sim.checkers.no_final_failure import NoFinalFailure
from spark_groups.lab.sim.checkers.no_gap import NoGap
from spark_groups.lab.sim.checkers.only_assigned import OnlyAssigned
from spark_groups.lab.sim.checkers.patience import Patience
from spark_groups.lab.sim.checkers.read_once import ReadOnce
from spark_groups.lab.sim.checkers.reads_available import ReadsAvailable
from spark_groups.lab.sim.checkers.request_pace import RequestPace
from spark_groups.lab.sim.checkers.resets_hold import ResetsHold
from spark_groups.lab.sim.checkers.same_rows import SameRows
from spark_groups.lab.sim.checkers.single_owner import SingleOwner
from spark_groups.lab.sim.checkers.stable_group import StableGroup
from spark_groups.lab.sim.checkers.starts import Starts
from spark_groups.lab.sim.checkers.trigger_delay import TriggerDelay
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
    """Return one checker of each kind for a run.

    Args:
        scene: The run.
        history: What happened so far.
    """
    return [each(scene, history) for each in CHECKERS]
