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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from spark_groups.offsets.commits import PendingCommit
from spark_groups.protocol.messages import NO_LEADER_EPOCH, NO_OFFSET
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
NOT_KNOWN: Final[Mapping[TopicIdPartition, int]] = MappingProxyType({})
"""No leader epoch of any partition."""
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

    def can_inherit(self, run: FinishedRun) -> bool:
        """Tell whether a finished run may be settled: what is committed was confirmed."""
        heard = self.listed_end != NO_OFFSET or self.leader_epoch == NO_LEADER_EPOCH
        return heard or run.leader_epoch != NO_LEADER_EPOCH

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
            may be the committed offset.
        tenure: The tenure in which its commit is under way, None if it is not.
        leader_epoch: A leader epoch whose log reached its end, NO_LEADER_EPOCH if not known: the
            plan in the checkpoint does not tell.
    """

    topic: str
    boundaries: list[int]
    tenure: int | None
    leader_epoch: int

    @property
    def until_offset(self) -> int:
        return self.boundaries[-1]

    def extend(self, each: OffsetRange, tenure: int | None, leader_epoch: int) -> None:
        """Add a batch that goes on where the last one ended, or begin anew with it."""
        if self.until_offset == each.from_offset:
            self.boundaries.append(each.until_offset)
            del self.boundaries[1 : len(self.boundaries) - MAX_BOUNDARIES + 1]
        else:
            self.boundaries = [each.from_offset, each.until_offset]
        self.tenure, self.leader_epoch = tenure, leader_epoch


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
        self._planned_epochs: dict[TopicIdPartition, int] = {}
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
        """Return the partitions that may not be planned yet, or not at the moment."""
        return frozenset(k for k, owned in self.owned.items() if owned.phase is not Phase.READY)

    def unstarted(self) -> frozenset[TopicIdPartition]:
        """Return the partitions of which it is not known and committed where they start."""
        return frozenset(k for k, owned in self.owned.items() if owned.phase in BEFORE_START)

    def commit_of_position(self, key: TopicIdPartition, member_epoch: int) -> PendingCommit:
        """Return the commit that says where an owned partition stands, whatever was read of it."""
        owned = self.owned[key]
        is_reached = owned.reached_offset == owned.position
        leader_epoch = owned.leader_epoch if is_reached else NO_LEADER_EPOCH
        return PendingCommit(
            key, owned.tenure, member_epoch, owned.position, owned.known_count, leader_epoch
        )

    def undecided(self) -> frozenset[TopicIdPartition]:
        """Return partitions that are ready, but have finished runs that are not settled yet."""
        return frozenset(
            key
            for key, run in self._runs.items()
            if (owned := self.owned.get(key))
            and owned.phase is Phase.READY
            and owned.tenure != run.tenure
        )

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

    def record(
        self, plan: BatchPlan, leader_epochs: Mapping[TopicIdPartition, int] = NOT_KNOWN
    ) -> None:
        """Hand a plan of this member to Spark: positions move to the ends of its ranges.

        Args:
            plan: The plan.
            leader_epochs: Under which leader epoch the ends were listed that it was made of; the
                log of that epoch reaches every offset of the plan.
        """
        self.in_flight = self._planned = plan
        self._planned_tenures = {}
        self._planned_epochs = {}
        for each in plan.ranges:
            owned = self.owned[each.key]
            leader_epoch = leader_epochs.get(each.key, NO_LEADER_EPOCH)
            if leader_epoch == NO_LEADER_EPOCH:
                owned.position = each.until_offset
            else:
                owned.stand_at(each.until_offset, leader_epoch)
            self._planned_tenures[each.key] = owned.tenure
            self._planned_epochs[each.key] = leader_epoch

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

        A query that ends proves its last batch again (see `spark.shutdown`).
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
            leader_epoch = self._planned_epochs[each.key] if planned_here else NO_LEADER_EPOCH
            if planned_here and owned and owned.tenure == self._planned_tenures[each.key]:
                self._note_run(each, owned.tenure, leader_epoch)
                # It may have been looked up anew while the batch ran.
                owned.position = max(owned.position, each.until_offset)
                reached = (each.until_offset, owned.known_count, leader_epoch)
                commits.append(PendingCommit(each.key, owned.tenure, plan.member_epoch, *reached))
                continue
            self._note_run(each, None, leader_epoch)
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

        What is committed must be confirmed by the leader of the moment first, where that can be:
        the commit of an inherited end may have to go without a leader epoch, and would hide it.

        Args:
            member_epoch: The member's epoch now; what the runs are committed under.
        """
        reading = self.in_flight.partitions() if self.in_flight else frozenset()
        taken, overruled, commits = [], [], []
        for key in list(self._runs):
            owned, run = self.owned.get(key), self._runs[key]
            if owned is None or owned.tenure == run.tenure or owned.phase is not Phase.READY:
                continue
            if key in reading or not owned.can_inherit(run):
                continue
            whole = self.uncommitted(key)
            assert whole is not None
            if owned.committed_offset == owned.position and owned.position in run.boundaries[:-1]:
                owned.inherit(run)
                run.tenure = owned.tenure
                taken.append(whole)
                commits.append(self.commit_of_position(key, member_epoch))
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
            blocked |= {key for key in self.unstarted() if not self.owned[key].topic_gone}
        return revoking & Assignment(frozenset(blocked))

    def _note_run(self, each: OffsetRange, tenure: int | None, leader_epoch: int) -> None:
        run = self._runs.get(each.key)
        if run is None:
            boundaries = [each.from_offset, each.until_offset]
            self._runs[each.key] = FinishedRun(each.topic, boundaries, tenure, leader_epoch)
        else:
            run.extend(each, tenure, leader_epoch)
