"""What this member may read and commit, partition by partition.

A *tenure* is one unbroken time of owning a partition: a plan remembers the tenure of each of its
partitions, and what it finished is committed only while that tenure lasts. Member epochs cannot
serve for this, they move on while a partition is kept.

The ledger also says when a revocation may be acknowledged, and keeps what this query has finished
until it is committed. When a partition comes back after a loss, or after a restart, and its
committed offset is one at which such a *finished run* began, the run is *inherited*: its end is the
position. In every other case the committed offset wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_groups.offsets.commits import PendingCommit
from spark_groups.protocol.messages import NO_OFFSET
from spark_groups.types import (
    NO_PARTITIONS,
    Assignment,
    BatchPlan,
    OffsetRange,
    TopicId,
    TopicIdPartition,
)

FINISHED_KEPT: Final = 16
"""How many finished batches are remembered, for proofs that come late."""
MAX_BOUNDARIES: Final = 16
"""How many commit points of a finished run are kept; to forget one costs re-reading, no more."""


class Phase(Enum):
    """How far an assigned partition is on its way to being planned."""

    FETCHING = "its committed offset is asked for"
    LISTING = "nothing is committed: where it starts is asked for"
    SETTLING = "where it starts is being committed"
    READY = "may be planned"


@dataclass(slots=True)
class OwnedPartition:
    """One partition while it is owned.

    Args:
        tenure: Which unbroken time of ownership this is.
        assigned_epoch: The member epoch at which it was assigned.
        phase: How far it is.
        position: Next offset to plan, NO_OFFSET until it is known.
        committed_offset: The last offset known to be committed, NO_OFFSET if there is none.
        known_count: Partitions of the topic when the group began to read it.
        starting_timestamp: While LISTING: which offset is asked for.
        topic_gone: True if nobody knew its topic when it was last asked about.
    """

    tenure: int
    assigned_epoch: int
    phase: Phase = Phase.FETCHING
    position: int = NO_OFFSET
    committed_offset: int = NO_OFFSET
    known_count: int = 0
    starting_timestamp: int = 0
    topic_gone: bool = False


@dataclass(slots=True)
class FinishedRun:
    """What this query has finished of a partition and is not known to be committed.

    Args:
        topic: Name of the topic.
        boundaries: Where each batch began, and where the last one ended: any of them but the last
            may be the committed offset.
        tenure: The tenure in which its commit is under way, None if it is not.
    """

    topic: str
    boundaries: list[int]
    tenure: int | None

    @property
    def until_offset(self) -> int:
        return self.boundaries[-1]

    def extend(self, each: OffsetRange, tenure: int | None) -> None:
        """Add a batch that goes on where the last one ended, or begin anew with it."""
        if self.until_offset == each.from_offset:
            self.boundaries.append(each.until_offset)
            del self.boundaries[1 : len(self.boundaries) - MAX_BOUNDARIES + 1]
        else:
            self.boundaries = [each.from_offset, each.until_offset]
        self.tenure = tenure


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """What is to be done about a batch that is proven finished.

    Args:
        commits: Offsets to commit.
        lost: Ranges that were read, but whose partitions were lost meanwhile: never committed
            unless they come back untouched.
    """

    commits: tuple[PendingCommit, ...] = ()
    lost: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What became of inherited ranges whose partitions are owned now.

    Args:
        taken: Ranges that nobody else committed past: their end is the new position.
        overruled: Ranges whose partition has another committed offset: that one wins.
        commits: Offsets to commit for `taken`.
    """

    taken: tuple[OffsetRange, ...] = ()
    overruled: tuple[OffsetRange, ...] = ()
    commits: tuple[PendingCommit, ...] = ()


class Ledger:
    """Ownership, positions and batches of one member."""

    def __init__(self) -> None:
        self.owned: dict[TopicIdPartition, OwnedPartition] = {}
        self.in_flight: BatchPlan | None = None
        """The batch that Spark was handed and has not been proven to finish."""
        self._runs: dict[TopicIdPartition, FinishedRun] = {}
        self._tenures = 0
        self._planned: BatchPlan | None = None
        self._planned_tenures: dict[TopicIdPartition, int] = {}
        self._finished: deque[BatchPlan] = deque(maxlen=FINISHED_KEPT)

    def assign(self, partitions: Assignment, member_epoch: int) -> None:
        """Begin a tenure of each partition."""
        self._tenures += 1
        for key in partitions:
            self.owned[key] = OwnedPartition(self._tenures, member_epoch)

    def drop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """End the tenure of each partition, whatever is unfinished."""
        for key in partitions:
            self.owned.pop(key, None)

    def tenure(self, key: TopicIdPartition) -> int | None:
        """Return the tenure of a partition, None while it is not owned."""
        owned = self.owned.get(key)
        return owned.tenure if owned else None

    def in_phase(self, phase: Phase) -> list[TopicIdPartition]:
        """Return the partitions that are in one phase."""
        return [key for key, owned in self.owned.items() if owned.phase is phase]

    def note_topics_gone(self, topic_ids: frozenset[TopicId]) -> None:
        """Note that nobody knows these topics."""
        for key, owned in self.owned.items():
            owned.topic_gone = owned.topic_gone or key.topic_id in topic_ids

    def unready(self) -> frozenset[TopicIdPartition]:
        """Return the partitions that may not be planned yet."""
        return frozenset(k for k, owned in self.owned.items() if owned.phase is not Phase.READY)

    def positions(self, assigned: Assignment) -> dict[TopicIdPartition, int]:
        """Return the position of every partition that may be planned.

        Args:
            assigned: What the coordinator says may be used; a partition to revoke is not in it.
        """
        return {
            key: owned.position
            for key, owned in self.owned.items()
            if owned.phase is Phase.READY and key in assigned
        }

    def checkpointed_offset(self, key: TopicIdPartition) -> int | None:
        """Return how far this query's own checkpoint has read a partition, if it says so."""
        if key in self._runs:
            return self._runs[key].until_offset
        for each in self.in_flight.ranges if self.in_flight else ():
            if each.key == key:
                return each.from_offset
        return None

    def record(self, plan: BatchPlan) -> None:
        """Hand a plan of this member to Spark: positions move to the ends of its ranges."""
        self.in_flight = self._planned = plan
        self._planned_tenures = {}
        for each in plan.ranges:
            owned = self.owned[each.key]
            owned.position = each.until_offset
            self._planned_tenures[each.key] = owned.tenure

    def release_run(self, key: TopicIdPartition) -> None:
        """Take it that the commit of a finished run was dropped: the run may be inherited anew."""
        run = self._runs.get(key)
        if run is not None:
            run.tenure = None

    def replay(self, plan: BatchPlan) -> None:
        """Take it that Spark runs an old plan again: its partitions are read, whoever owns them."""
        if plan != self._planned and plan not in self._finished:
            self.in_flight = plan

    def finish(self, plan: BatchPlan) -> FinishedBatch:
        """Take it as proven that a batch is finished; a second time nothing happens.

        A query that ends proves its last batch again (see `spark.drain`).
        """
        if plan in self._finished and plan != self.in_flight:
            return FinishedBatch()
        self._finished.append(plan)
        if plan == self.in_flight:
            self.in_flight = None
        planned_here = plan == self._planned
        commits, lost = [], []
        for each in plan.ranges:
            owned = self.owned.get(each.key)
            if planned_here and owned and owned.tenure == self._planned_tenures[each.key]:
                self._note_run(each, owned.tenure)
                # It may have been looked up anew while the batch ran.
                owned.position = max(owned.position, each.until_offset)
                commits.append(self._commit(each.key, owned, plan.member_epoch, each.until_offset))
                continue
            self._note_run(each, None)
            if planned_here:
                lost.append(each)
        return FinishedBatch(tuple(commits), tuple(lost))

    def settled(self, commit: PendingCommit) -> None:
        """Take it that a commit was accepted: what it covers is finished for good."""
        run = self._runs.get(commit.key)
        if run is None or run.tenure != commit.tenure:
            return
        run.boundaries = [each for each in run.boundaries if each >= commit.committed_offset]
        if len(run.boundaries) < 2:
            del self._runs[commit.key]

    def uncommitted(self, key: TopicIdPartition) -> OffsetRange | None:
        """Return what was finished of a partition and is not known to be committed."""
        run = self._runs.get(key)
        if run is None:
            return None
        first, until = run.boundaries[0], run.until_offset
        return OffsetRange(key.topic_id, run.topic, key.partition, first, until)

    def inherit(self, member_epoch: int) -> Inheritance:
        """Settle the finished runs whose partitions came back and are ready.

        Args:
            member_epoch: The member's epoch now; what the runs are committed under.
        """
        reading = self.in_flight.partitions() if self.in_flight else frozenset()
        taken, overruled, commits = [], [], []
        for key in list(self._runs):
            owned, run = self.owned.get(key), self._runs[key]
            if owned is None or owned.tenure == run.tenure or owned.phase is not Phase.READY:
                continue
            if key in reading:
                continue
            whole = self.uncommitted(key)
            assert whole is not None
            if owned.committed_offset == owned.position and owned.position in run.boundaries[:-1]:
                owned.position = run.until_offset
                run.tenure = owned.tenure
                taken.append(whole)
                commits.append(self._commit(key, owned, member_epoch, run.until_offset))
                continue
            del self._runs[key]
            if owned.committed_offset != run.until_offset:
                overruled.append(whole)
        return Inheritance(tuple(taken), tuple(overruled), tuple(commits))

    def contested(
        self,
        revoking: Assignment,
        pending: frozenset[TopicIdPartition],
        *,
        settle_first: bool,
    ) -> Assignment:
        """Return the partitions that keep a revocation from being acknowledged.

        Args:
            revoking: What is to be revoked; it is released as a whole or not at all.
            pending: Partitions with a commit under way.
            settle_first: True if a partition must not be given up before where it starts is
                committed: otherwise "latest" loses what arrives during a hand-over. A topic that
                is gone has nothing to lose.
        """
        if not revoking:
            return NO_PARTITIONS
        blocked = set(pending)
        if self.in_flight is not None:
            blocked |= self.in_flight.partitions()
        if settle_first:
            blocked |= {key for key in self.unready() if not self.owned[key].topic_gone}
        return revoking & Assignment(frozenset(blocked))

    def _note_run(self, each: OffsetRange, tenure: int | None) -> None:
        run = self._runs.get(each.key)
        if run is None:
            boundaries = [each.from_offset, each.until_offset]
            self._runs[each.key] = FinishedRun(each.topic, boundaries, tenure)
        else:
            run.extend(each, tenure)

    def _commit(
        self, key: TopicIdPartition, owned: OwnedPartition, member_epoch: int, until_offset: int
    ) -> PendingCommit:
        return PendingCommit(key, owned.tenure, member_epoch, until_offset, owned.known_count)
