"""One partition while it is owned, and what is finished of one and not committed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_groups.protocol.messages import NO_LEADER_EPOCH, NO_OFFSET
from spark_groups.types import OffsetRange

MAX_BOUNDARIES: Final = 16
"""How many commit points of a finished run are kept; to forget one costs re-reading, no more."""


class Phase(Enum):
    """How far an assigned partition is on its way to being planned."""

    FETCHING = "its committed offset is asked for"
    LISTING = "nothing is committed: where it starts is asked for"
    SETTLING = "where it starts is being committed"
    VALIDATING = "its leader changed: whether the log still reaches its position is asked"
    READY = "may be planned"


BEFORE_START: Final = (Phase.FETCHING, Phase.LISTING, Phase.SETTLING)
"""Where it is not known, or not committed, where a partition starts."""


@dataclass(slots=True)
class OwnedPartition:
    """One partition while it is owned.

    Args:
        tenure: Which unbroken time of ownership this is.
        assigned_epoch: The member epoch at which it was assigned.
        phase: How far it is.
        position: Next offset to plan, NO_OFFSET until it is known.
        committed_offset: The last offset known to be committed, NO_OFFSET if there is none.
        is_query_commit: Whether a query committed that, and not an operator or another consumer.
        known_count: Partitions of the topic when the group began to read it.
        starting_timestamp: While LISTING: which offset is asked for.
        wanted_offset: While LISTING: the first offset that `startingOffsets` names, if it does.
        leader_epoch: A leader epoch whose log is known to have reached `reached_offset`;
            NO_LEADER_EPOCH if none is.
        reached_offset: The position, or an offset before it where that is all that is known.
        current_leader_epoch: While VALIDATING: the leader epoch that has to confirm it.
        listed_end: The log end that was listed under `leader_epoch`, or under the one that has to
            confirm it; NO_OFFSET until the leader of the moment was heard.
        topic_gone: True if nobody knew its topic when it was last asked about.
    """

    tenure: int
    assigned_epoch: int
    phase: Phase = Phase.FETCHING
    position: int = NO_OFFSET
    committed_offset: int = NO_OFFSET
    is_query_commit: bool = False
    known_count: int = 0
    starting_timestamp: int = 0
    wanted_offset: int | None = None
    leader_epoch: int = NO_LEADER_EPOCH
    reached_offset: int = NO_OFFSET
    current_leader_epoch: int = NO_LEADER_EPOCH
    listed_end: int = NO_OFFSET
    topic_gone: bool = False

    def stand_at(self, position: int, leader_epoch: int) -> None:
        """Move to a position that the log of a leader epoch has reached."""
        self.position = self.reached_offset = position
        self.leader_epoch = leader_epoch
        self.listed_end = NO_OFFSET

    def is_where_commits_were_lost(self, run: FinishedRun) -> bool:
        """Tell whether a query has committed where a batch of a finished run began.

        An operator who sets an offset, or another consumer that commits, wants to go on from there.
        """
        is_untouched = self.is_query_commit and self.committed_offset == self.position
        return is_untouched and self.position in run.boundaries[:-1]

    def can_inherit(self, run: FinishedRun) -> bool:
        """Tell whether a finished run may be settled: what is committed was confirmed."""
        is_heard = self.listed_end != NO_OFFSET
        return is_heard or self.leader_epoch == NO_LEADER_EPOCH or run.leader_epoch >= 0

    def inherit(self, run: FinishedRun) -> None:
        """Move to the end of a finished run, with a leader epoch if one is known to reach it."""
        if run.leader_epoch != NO_LEADER_EPOCH:
            self.stand_at(run.until_offset, run.leader_epoch)
        elif run.until_offset <= self.listed_end:
            self.stand_at(run.until_offset, self.leader_epoch)
        else:
            self.position = run.until_offset


@dataclass(slots=True)
class FinishedRun:
    """What this query has finished of a partition and is not known to be committed.

    Args:
        topic: Name of the topic.
        boundaries: Where each batch began, and where the last one ended: any of them but the last
            may be the committed offset of the query, if the commits that followed were lost.
        leader_epoch: A leader epoch whose log reached its end, NO_LEADER_EPOCH if not known: the
            plan in the checkpoint does not tell.
    """

    topic: str
    boundaries: list[int]
    leader_epoch: int

    @property
    def until_offset(self) -> int:
        return self.boundaries[-1]

    def extend(self, each: OffsetRange, leader_epoch: int) -> None:
        """Add a batch that goes on where the last one ended, or begin anew with it."""
        if self.until_offset == each.from_offset:
            self.boundaries.append(each.until_offset)
            del self.boundaries[1 : len(self.boundaries) - MAX_BOUNDARIES + 1]
        else:
            self.boundaries = [each.from_offset, each.until_offset]
        self.leader_epoch = leader_epoch
