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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from spark_groups.offsets.commits import PendingCommit
from spark_groups.offsets.owned import BEFORE_START, FinishedRun, OwnedPartition, Phase
from spark_groups.protocol.messages import NO_LEADER_EPOCH
from spark_groups.types import (
    NO_PARTITIONS,
    Assignment,
    BatchPlan,
    OffsetRange,
    TopicId,
    TopicIdPartition,
)

VOID: Final = -1
"""No tenure: what a batch has read of a log that was cut meanwhile is never taken over."""
FINISHED_KEPT: Final = 16
"""How many finished batches are remembered, for proofs that come late."""
NOT_KNOWN: Final[Mapping[TopicIdPartition, int]] = MappingProxyType({})
"""No leader epoch of any partition."""


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

    def note_topics(self, *, there: Collection[TopicId], gone: Collection[TopicId]) -> None:
        """Note which topics a broker knows, and which not; one that lags behind may learn of them.

        Args:
            there: Topics that exist.
            gone: Topics that were asked about and not known.
        """
        for key, owned in self.owned.items():
            if key.topic_id in there or key.topic_id in gone:
                owned.topic_gone = key.topic_id in gone

    def unready(self) -> frozenset[TopicIdPartition]:
        """Return the partitions that may not be planned yet, or not at the moment."""
        return frozenset(k for k, owned in self.owned.items() if owned.phase is not Phase.READY)

    def unstarted(self) -> frozenset[TopicIdPartition]:
        """Return the partitions of which it is not known and committed where they start."""
        return frozenset(k for k, owned in self.owned.items() if owned.phase in BEFORE_START)

    def move_back(self, key: TopicIdPartition, position: int, leader_epoch: int) -> None:
        """Go on from where a log was cut, in a new tenure: what was read beyond it is void."""
        self._tenures += 1
        self._runs.pop(key, None)
        self._planned_tenures[key] = VOID
        owned = self.owned[key]
        owned.tenure, owned.phase = self._tenures, Phase.READY
        owned.stand_at(position, leader_epoch)

    def commit_of_position(self, key: TopicIdPartition, member_epoch: int) -> PendingCommit:
        """Return the commit that says where an owned partition stands, whatever was read of it."""
        owned = self.owned[key]
        known = owned.leader_epoch if owned.reached_offset == owned.position else NO_LEADER_EPOCH
        place = (owned.position, owned.known_count, known)
        return PendingCommit(key, owned.tenure, member_epoch, *place)

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
        """Hand a plan to Spark: positions move to the ends of its ranges.

        Args:
            plan: The plan.
            leader_epochs: Under which leader epoch each end was listed; its log reaches them.
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
                # It may be looked up anew: what is found then must not undo what was read.
                is_known = owned.phase not in BEFORE_START
                self._note_run(each, owned.tenure if is_known else None, leader_epoch)
                owned.position = max(owned.position, each.until_offset)
                reached = (each.until_offset, owned.known_count, leader_epoch)
                commits.append(PendingCommit(each.key, owned.tenure, plan.member_epoch, *reached))
                continue
            if planned_here:
                lost.append(each)
            if not planned_here or self._planned_tenures[each.key] != VOID:
                self._note_run(each, None, leader_epoch)
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

        The leader of the moment must have confirmed what is committed, where that can be: the
        commit of an inherited end may have to go without a leader epoch, and would hide it.

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
