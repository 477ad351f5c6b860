"""What this member may read and commit, partition by partition.

A *tenure* is one unbroken time of owning a partition: a plan remembers the tenure of each of its
partitions, and what it finished is committed only while that tenure lasts. Member epochs cannot
serve for this, they move on while a partition is kept.

The ledger also says when a revocation may be acknowledged, and keeps what this query has finished
until it is committed. When a partition comes back after a loss, or after a restart, and a query has
committed an offset at which such a *finished run* began, the run is *inherited*: its end is the
position. In every other case the committed offset wins, also where somebody else committed the
same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

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
from spark_groups.values import dataclass

VOID: Final = -1
"""No tenure: what a batch has read of a log that was cut meanwhile is never taken over."""
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
        overruled: Ranges whose partition was committed otherwise: that wins.
        commits: Offsets to commit for `taken`.
    """

    taken: tuple[OffsetRange, ...] = ()
    overruled: tuple[OffsetRange, ...] = ()
    commits: tuple[PendingCommit, ...] = ()


NOTHING_INHERITED: Final = Inheritance()


class _PlannedAt(NamedTuple):
    """How the partition of a planned range stood: its tenure, and what its end was listed under."""

    tenure: int
    leader_epoch: int


class Ledger:
    """Ownership, positions and batches of one member."""

    def __init__(self) -> None:
        self.owned: dict[TopicIdPartition, OwnedPartition] = {}
        """Changed only by `assign` and `drop`."""
        self.in_flight: BatchPlan | None = None
        """The batch that Spark was handed and has not been proven to finish."""
        self._committing: dict[TopicIdPartition, FinishedRun] = {}
        """Finished runs whose commit is under way in the tenure that lasts."""
        self._undecided: dict[TopicIdPartition, FinishedRun] = {}
        """All others: they are inherited, or the committed offset overrules them."""
        self._topic_ids: frozenset[TopicId] | None = frozenset()
        """Counted anew when what is owned has changed; None until then."""
        self._tenures = 0
        self._planned: BatchPlan | None = None
        self._planned_at: dict[TopicIdPartition, _PlannedAt] = {}
        self._finished: deque[BatchPlan] = deque(maxlen=FINISHED_KEPT)

    def assign(self, partitions: Assignment, member_epoch: int) -> None:
        """Begin a tenure of each partition."""
        self.drop(partitions)
        self._tenures += 1
        for key in partitions:
            self.owned[key] = OwnedPartition(self._tenures, member_epoch)

    def drop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """End the tenure of each partition, whatever is unfinished."""
        self._topic_ids = None
        for key in partitions:
            self.owned.pop(key, None)
            self.release_run(key)

    def topic_ids(self) -> frozenset[TopicId]:
        """Return the topics of the partitions that are owned."""
        if self._topic_ids is None:
            self._topic_ids = frozenset(key.topic_id for key in self.owned)
        return self._topic_ids

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
        self._committing.pop(key, None)
        self._undecided.pop(key, None)
        self._planned_at[key] = _PlannedAt(VOID, NO_LEADER_EPOCH)
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
        if not self._undecided:
            return frozenset()
        return frozenset(
            key
            for key in self._undecided
            if (owned := self.owned.get(key)) and owned.phase is Phase.READY
        )

    def positions(self, assigned: Assignment) -> dict[TopicIdPartition, int]:
        """Return the position of every partition that may be planned.

        Args:
            assigned: What the coordinator says may be used; a partition to revoke is not in it.
        """
        usable = assigned.partitions
        return {
            key: owned.position
            for key, owned in self.owned.items()
            if owned.phase is Phase.READY and key in usable
        }

    def checkpointed_offset(self, key: TopicIdPartition) -> int | None:
        """Return how far this query's own checkpoint has read a partition, if it says so."""
        run = self._run(key)
        if run is not None:
            return run.until_offset
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
        self._planned_at = {}
        for each in plan.ranges:
            key = each.key
            owned = self.owned[key]
            leader_epoch = leader_epochs.get(key, NO_LEADER_EPOCH)
            if leader_epoch == NO_LEADER_EPOCH:
                owned.position = each.until_offset
            else:
                owned.stand_at(each.until_offset, leader_epoch)
            self._planned_at[key] = _PlannedAt(owned.tenure, leader_epoch)

    def release_run(self, key: TopicIdPartition) -> None:
        """Take it that the commit of a finished run was dropped: the run may be inherited anew."""
        run = self._committing.pop(key, None)
        if run is not None:
            self._undecided[key] = run

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
        if plan != self._planned:
            for each in plan.ranges:
                self._note_run(each.key, each, self._undecided, NO_LEADER_EPOCH)
            return FinishedBatch()
        commits, lost = [], []
        for each in plan.ranges:
            key = each.key
            owned = self.owned.get(key)
            tenure, leader_epoch = self._planned_at[key]
            if owned and owned.tenure == tenure:
                # It may be looked up anew: what is found then must not undo what was read.
                is_known = owned.phase not in BEFORE_START
                runs = self._committing if is_known else self._undecided
                self._note_run(key, each, runs, leader_epoch)
                owned.position = max(owned.position, each.until_offset)
                reached = (each.until_offset, owned.known_count, leader_epoch)
                commits.append(PendingCommit(key, tenure, plan.member_epoch, *reached))
                continue
            lost.append(each)
            if tenure != VOID:
                self._note_run(key, each, self._undecided, leader_epoch)
        return FinishedBatch(tuple(commits), tuple(lost))

    def settled(self, commit: PendingCommit) -> None:
        """Take it that a commit was accepted: what it covers is finished for good."""
        run = self._committing.get(commit.key)
        if run is None or self.tenure(commit.key) != commit.tenure:
            return
        run.boundaries = [each for each in run.boundaries if each >= commit.committed_offset]
        if len(run.boundaries) < 2:
            del self._committing[commit.key]

    def uncommitted(self, key: TopicIdPartition) -> OffsetRange | None:
        """Return what was finished of a partition and is not known to be committed."""
        run = self._run(key)
        if run is None:
            return None
        first, until = run.boundaries[0], run.until_offset
        return OffsetRange(key.topic_id, run.topic, key.partition, first, until)

    def inherit(self, member_epoch: int) -> Inheritance:
        """Settle the finished runs whose partitions came back and are ready.

        The leader of the moment must have confirmed what is committed, where that can be. An end
        that its log has not reached, or not yet, is committed when one has: a commit without a
        leader epoch would hide that the log was cut.

        Args:
            member_epoch: The member's epoch now; what the runs are committed under.
        """
        if not self._undecided:
            return NOTHING_INHERITED
        reading = self.in_flight.partitions() if self.in_flight else frozenset()
        taken, overruled, commits = [], [], []
        for key, run in list(self._undecided.items()):
            owned = self.owned.get(key)
            if owned is None or owned.phase is not Phase.READY:
                continue
            if key in reading or not owned.can_inherit(run):
                continue
            whole = self.uncommitted(key)
            assert whole is not None
            if owned.is_where_commits_were_lost(run):
                owned.inherit(run)
                self._committing[key] = self._undecided.pop(key)
                taken.append(whole)
                commit = self.commit_of_position(key, member_epoch)
                if commit.leader_epoch != NO_LEADER_EPOCH or owned.leader_epoch == NO_LEADER_EPOCH:
                    commits.append(commit)
                continue
            del self._undecided[key]
            if owned.committed_offset != run.until_offset:
                overruled.append(whole)
        if not (taken or overruled):
            return NOTHING_INHERITED
        return Inheritance(tuple(taken), tuple(overruled), tuple(commits))

    def contested(
        self,
        revoking: Assignment,
        pending: frozenset[TopicIdPartition],
        *,
        settle_first: bool,
    ) -> Assignment:
        """Return the partitions that keep a revocation from being acknowledged.

        Those with finished runs that are not settled yet are among them: as soon as it is known
        what is committed, and confirmed by the leader, the runs are committed or overruled.

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
        blocked |= {
            key
            for key in self._undecided
            if (owned := self.owned.get(key)) and not owned.topic_gone
        }
        if settle_first:
            blocked |= {key for key in self.unstarted() if not self.owned[key].topic_gone}
        return revoking & Assignment(frozenset(blocked))

    def _run(self, key: TopicIdPartition) -> FinishedRun | None:
        return self._committing.get(key) or self._undecided.get(key)

    def _note_run(
        self,
        key: TopicIdPartition,
        each: OffsetRange,
        runs: dict[TopicIdPartition, FinishedRun],
        leader_epoch: int,
    ) -> None:
        """Add a finished range to the run of its partition, which goes where it belongs now."""
        run = self._committing.pop(key, None) or self._undecided.pop(key, None)
        if run is None:
            run = FinishedRun(each.topic, [each.from_offset, each.until_offset], leader_epoch)
        else:
            run.extend(each, leader_epoch)
        runs[key] = run
