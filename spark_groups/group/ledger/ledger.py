"""The partitions that this member may read and commit.

A *tenure* is one unbroken time of owning a partition. A plan remembers the tenure of each
partition, and its offsets are committed only while that tenure lasts. Member epochs cannot replace
tenures: they change while a partition is kept.

The offsets of a partition that this query finished but has not committed are a *finished run*. When
the partition returns after a loss or a restart, and its committed offset is the very commit on
which one of the run's batches stands, by offset and by mark (`marks`), the run is
*inherited*: reading continues at its end. Otherwise the committed offset wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from spark_groups.group.ledger.commits import PendingCommit
from spark_groups.group.ledger.events import PartitionsStarted
from spark_groups.group.ledger.marks import NO_MARK, mark_at_end, mark_of_position
from spark_groups.group.member.messages import NO_LEADER_EPOCH, NO_OFFSET
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    NO_PARTITIONS,
    Assignment,
    BatchPlan,
    OffsetRange,
    TopicId,
    TopicIdPartition,
)
from spark_groups.values import dataclass

VOID: Final = -1
"""In place of a tenure, for reads that a truncation made invalid: they are never inherited."""
FINISHED_KEPT: Final = 16
"""How many finished batches are remembered, for late proofs."""
NO_LEADER_EPOCHS: Final[Mapping[TopicIdPartition, int]] = MappingProxyType({})
"""No leader epochs."""


MAX_BOUNDARIES: Final = 16
"""How many commit points of a finished run are kept; forgetting one only costs reading again."""


class Phase(Enum):
    """The steps from assignment to planning."""

    FETCHING = "its committed offset is asked for"
    LISTING = "nothing is committed: its starting offset is being looked up"
    COMMITTING_START = "where it starts is being committed"
    TRUNCATED = "its log was truncated: where it continues is being committed"
    VALIDATING = "its leader changed: the new one is asked whether its log reaches the position"
    READY = "may be planned"
    HELD = "its topic is internal to Kafka and matched a pattern: it is never read"


BEFORE_START: Final = (Phase.FETCHING, Phase.LISTING, Phase.COMMITTING_START)
"""The starting position is unknown or not committed."""


class StartLookup(NamedTuple):
    """How the starting offset of a partition is looked up.

    Args:
        timestamp_ms: The timestamp in ListOffsets.
        wanted_offset: The offset named by `startingOffsets`, or up to which the query has read.
        mark: If the query has read up to it: the mark of the commit of that offset, which is made
            again; None: `startingOffsets` names it.
        then_timestamp_ms: After the log end: the timestamp to list next, if any.
        else_at: The log end and its leader epoch, where the partition starts if no record has the
            timestamp or a later one; None: the query fails then.
    """

    timestamp_ms: int
    wanted_offset: int | None = None
    mark: str | None = None
    then_timestamp_ms: int | None = None
    else_at: tuple[int, int] | None = None


AT_BEGINNING: Final = StartLookup(EARLIEST_TIMESTAMP)
"""Looks up the beginning of the log."""


@dataclass(slots=True)
class OwnedPartition:
    """An owned partition.

    Args:
        assigned_epoch: The member epoch of the assignment.
        position: Next offset to plan.
        mark: The mark of the commit of the position, sent or not; NO_MARK: another client's.
        committed_offset: The last known one.
        known_count: Partitions of the topic when the group began to read it.
        lookup: While LISTING: how its starting offset is looked up.
        warning: While starting: the warning that is due once that offset is committed, if any.
        leader_epoch: A leader epoch whose log reached `reached_offset`.
        reached_offset: The highest offset, up to the position, that the log of `leader_epoch` is
            known to have reached.
        current_leader_epoch: While VALIDATING: the leader epoch that must confirm the position.
        listed_end: The log end, as last listed under `leader_epoch` or `current_leader_epoch`;
            NO_OFFSET until then.
        topic_gone: True if the last broker asked did not know the topic.
    """

    tenure: int
    assigned_epoch: int
    phase: Phase = Phase.FETCHING
    position: int = NO_OFFSET
    mark: str = NO_MARK
    committed_offset: int = NO_OFFSET
    known_count: int = 0
    lookup: StartLookup = AT_BEGINNING
    warning: type[PartitionsStarted] | None = None
    leader_epoch: int = NO_LEADER_EPOCH
    reached_offset: int = NO_OFFSET
    current_leader_epoch: int = NO_LEADER_EPOCH
    listed_end: int = NO_OFFSET
    topic_gone: bool = False

    def stand_at(self, position: int, leader_epoch: int, mark: str) -> None:
        """Move to a position that the log of a leader epoch has reached.

        Args:
            mark: The mark of the commit of that position.
        """
        self.position = self.reached_offset = position
        self.leader_epoch = leader_epoch
        self.mark = mark
        self.listed_end = NO_OFFSET

    def stands_at_batch_start_of(self, run: FinishedRun) -> bool:
        """Return whether the committed offset is the commit on which a batch of `run` stands.

        Another commit may have the same offset, because an operator set it or another member
        finished the batch before: then reading must continue there.
        """
        is_committed = self.committed_offset == self.position and self.mark != NO_MARK
        return is_committed and Boundary(self.position, self.mark) in run.boundaries[:-1]

    def can_inherit(self, run: FinishedRun) -> bool:
        """Return whether a finished run may be inherited now, as far as leader epochs decide.

        The leader must have confirmed the committed offset. That is not needed if the offset's
        leader epoch is unknown, or if the run's end has a known one.
        """
        is_confirmed = self.listed_end != NO_OFFSET
        return is_confirmed or self.leader_epoch == NO_LEADER_EPOCH or run.leader_epoch >= 0

    def inherit(self, run: FinishedRun) -> None:
        """Move to the end of a finished run, with a leader epoch if one is known to reach it."""
        end = run.boundaries[-1]
        if run.leader_epoch != NO_LEADER_EPOCH:
            self.stand_at(end.offset, run.leader_epoch, end.mark)
        elif end.offset <= self.listed_end:
            self.stand_at(end.offset, self.leader_epoch, end.mark)
        else:
            self.position, self.mark = end


class Boundary(NamedTuple):
    """An offset at which a batch begins or ends, and the mark of its commit."""

    offset: int
    mark: str


@dataclass(slots=True)
class FinishedRun:
    """Offsets of a partition that this query finished and that are not known to be committed.

    Args:
        boundaries: Where each batch began, and where the last one ended.
        leader_epoch: A leader epoch whose log reached the end, or NO_LEADER_EPOCH.
    """

    topic: str
    boundaries: list[Boundary]
    leader_epoch: int

    @property
    def until_offset(self) -> int:
        return self.boundaries[-1].offset

    def extend(self, start: Boundary, end: Boundary, leader_epoch: int) -> None:
        """Add a batch that continues the run, or begin a new run with it."""
        if self.boundaries[-1] == start:
            self.boundaries.append(end)
            del self.boundaries[1 : len(self.boundaries) - MAX_BOUNDARIES + 1]
        else:
            self.boundaries = [start, end]
        self.leader_epoch = leader_epoch


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """What follows from a finished batch.

    Args:
        lost: Ranges whose partitions were lost meanwhile: not committed unless inherited later.
    """

    commits: tuple[PendingCommit, ...] = ()
    lost: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The outcome for finished runs whose partitions are owned again.

    Args:
        taken: Ranges whose end is the new position.
        overruled: Ranges whose partition has another committed offset.
        commits: Offsets to commit for `taken`.
    """

    taken: tuple[OffsetRange, ...] = ()
    overruled: tuple[OffsetRange, ...] = ()
    commits: tuple[PendingCommit, ...] = ()


NOTHING_INHERITED: Final = Inheritance()


class _PlannedAt(NamedTuple):
    """The tenure of a planned partition, and the leader epoch under which its end was listed."""

    tenure: int
    leader_epoch: int


class Ledger:
    """Ownership, positions and batches of one member.

    Args:
        run_id: Differs between the runs of all queries.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.owned: dict[TopicIdPartition, OwnedPartition] = {}
        """Changed only by `assign` and `drop`."""
        self.in_flight: BatchPlan | None = None
        """The batch that Spark runs, until it is proven finished."""
        self._committing: dict[TopicIdPartition, FinishedRun] = {}
        """Finished runs whose commit is in flight in the current tenure."""
        self._undecided: dict[TopicIdPartition, FinishedRun] = {}
        """All others: they will be inherited or overruled."""
        self._topic_ids: frozenset[TopicId] | None = frozenset()
        """Cached; None after a change."""
        self._tenures = 0
        self._planned: BatchPlan | None = None
        self._boundaries: tuple[tuple[OffsetRange, Boundary, Boundary], ...] = ()
        """Those of `_planned`: their marks are hashes, computed once."""
        self._planned_at: dict[TopicIdPartition, _PlannedAt] = {}
        self._finished: deque[BatchPlan] = deque(maxlen=FINISHED_KEPT)

    def assign(self, partitions: Assignment, member_epoch: int) -> None:
        """Begin a tenure of each partition."""
        self.drop(partitions)
        self._tenures += 1
        for key in partitions:
            self.owned[key] = OwnedPartition(self._tenures, member_epoch)

    def drop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """End the tenure of each partition."""
        self._topic_ids = None
        for key in partitions:
            self.owned.pop(key, None)
            self.release_run(key)

    def topic_ids(self) -> frozenset[TopicId]:
        """Return the topics of the owned partitions."""
        if self._topic_ids is None:
            self._topic_ids = frozenset(key.topic_id for key in self.owned)
        return self._topic_ids

    @property
    def last_tenure(self) -> int:
        """The number of the latest tenure: later ones have larger numbers."""
        return self._tenures

    def tenure(self, key: TopicIdPartition) -> int | None:
        """Return the tenure of a partition, None while it is not owned."""
        owned = self.owned.get(key)
        return owned.tenure if owned else None

    def in_phase(self, phase: Phase) -> list[TopicIdPartition]:
        """Return the partitions in one phase."""
        return [key for key, owned in self.owned.items() if owned.phase is phase]

    def note_topics(self, *, there: Collection[TopicId], gone: Collection[TopicId]) -> None:
        """Note which topics the last broker knew; a lagging broker may learn of them later."""
        for key, owned in self.owned.items():
            if key.topic_id in there or key.topic_id in gone:
                owned.topic_gone = key.topic_id in gone

    def unready(self) -> frozenset[TopicIdPartition]:
        """Return the owned partitions that may not be planned now, but will be."""
        done = (Phase.READY, Phase.HELD)
        return frozenset(k for k, owned in self.owned.items() if owned.phase not in done)

    def unstarted(self) -> frozenset[TopicIdPartition]:
        """Return the partitions whose starting position is unknown or not committed."""
        return frozenset(k for k, owned in self.owned.items() if owned.phase in BEFORE_START)

    def move_back(self, key: TopicIdPartition, position: int, leader_epoch: int) -> None:
        """Go back, in a new tenure, to where the log was truncated; reads beyond it are void.

        The partition is planned once that position is committed: who has written the rows somewhere
        must be able to learn that other records may stand at their offsets now.
        """
        self._tenures += 1
        self._committing.pop(key, None)
        self._undecided.pop(key, None)
        self._planned_at[key] = _PlannedAt(VOID, NO_LEADER_EPOCH)
        self.owned[key].tenure = self._tenures
        self.start_at(key, position, leader_epoch, Phase.TRUNCATED)

    def start_at(
        self,
        key: TopicIdPartition,
        position: int,
        leader_epoch: int,
        phase: Phase,
        mark: str = NO_MARK,
    ) -> None:
        """Go to a position whose commit is pending.

        Args:
            leader_epoch: A leader epoch whose log reached it, or NO_LEADER_EPOCH.
            phase: The phase until it is committed.
            mark: The mark of a commit that was deleted and is made again; else it has a new one.
        """
        owned = self.owned[key]
        owned.phase = phase
        mark = mark or mark_of_position(self._run_id, owned.tenure, key, position)
        owned.stand_at(position, leader_epoch, mark)

    def commit_of_position(self, key: TopicIdPartition, member_epoch: int) -> PendingCommit:
        """Return a commit of the position of an owned partition."""
        owned = self.owned[key]
        known = owned.leader_epoch if owned.reached_offset == owned.position else NO_LEADER_EPOCH
        place = (owned.position, owned.known_count, known)
        is_truncated = owned.phase is Phase.TRUNCATED
        return PendingCommit(
            key, owned.tenure, member_epoch, *place, is_truncated=is_truncated, mark=owned.mark
        )

    def undecided(self) -> frozenset[TopicIdPartition]:
        """Return the ready partitions with undecided finished runs."""
        if not self._undecided:
            return frozenset()
        return frozenset(
            key
            for key in self._undecided
            if (owned := self.owned.get(key)) and owned.phase is Phase.READY
        )

    def positions(self, assigned: Assignment) -> dict[TopicIdPartition, int]:
        """Return the position of every assigned partition that may be planned."""
        usable = assigned.partitions
        return {
            key: owned.position
            for key, owned in self.owned.items()
            if owned.phase is Phase.READY and key in usable
        }

    def checkpointed(self, key: TopicIdPartition) -> Boundary | None:
        """Return how far the query had read a partition, None if its checkpoint lacks it."""
        run = self._run(key)
        if run is not None:
            return run.boundaries[-1]
        for each, mark in self.in_flight.marked_ranges() if self.in_flight else ():
            if each.key == key:
                return Boundary(each.from_offset, mark)
        return None

    def record(
        self, plan: BatchPlan, leader_epochs: Mapping[TopicIdPartition, int] = NO_LEADER_EPOCHS
    ) -> None:
        """Hand a plan to Spark: positions move to the ends of its ranges."""
        self.in_flight = self._planned = plan
        self._boundaries = tuple(_with_boundaries(plan))
        self._planned_at = {}
        for each, _, end in self._boundaries:
            key = each.key
            owned = self.owned[key]
            leader_epoch = leader_epochs.get(key, NO_LEADER_EPOCH)
            if leader_epoch == NO_LEADER_EPOCH:
                owned.position, owned.mark = end
            else:
                owned.stand_at(end.offset, leader_epoch, end.mark)
            self._planned_at[key] = _PlannedAt(owned.tenure, leader_epoch)

    def release_run(self, key: TopicIdPartition) -> None:
        """Note that the commit of a finished run was dropped: the run may be inherited."""
        run = self._committing.pop(key, None)
        if run is not None:
            self._undecided[key] = run

    def replay(self, plan: BatchPlan) -> None:
        """Note that Spark runs an old plan again: its partitions are being read."""
        if plan != self._planned and plan not in self._finished:
            self.in_flight = plan

    def forget_finished(self, plan: BatchPlan) -> None:
        """Forget the finished ranges of an earlier run's plan: they are known to be committed."""
        for offset_range in plan.ranges:
            self._undecided.pop(offset_range.key, None)

    def finish(self, plan: BatchPlan) -> FinishedBatch:
        """Note that a batch is proven finished; idempotent.

        A query proves its last batch again when it ends (`spark.control.shutdown`).
        """
        if plan in self._finished and plan != self.in_flight:
            return FinishedBatch()
        self._finished.append(plan)
        if plan == self.in_flight:
            self.in_flight = None
        if plan != self._planned:
            for each, start, end in _with_boundaries(plan):
                self._note_run(each, start, end, self._undecided, NO_LEADER_EPOCH)
            return FinishedBatch()
        commits, lost = [], []
        for each, start, end in self._boundaries:
            key = each.key
            owned = self.owned.get(key)
            tenure, leader_epoch = self._planned_at[key]
            if owned and owned.tenure == tenure:
                # If its position is being fetched again, that offset must not undo this read.
                is_known = owned.phase not in BEFORE_START
                runs = self._committing if is_known else self._undecided
                self._note_run(each, start, end, runs, leader_epoch)
                if owned.position <= end.offset:
                    owned.position, owned.mark = end
                reached = (end.offset, owned.known_count, leader_epoch)
                commits.append(
                    PendingCommit(key, tenure, plan.member_epoch, *reached, mark=end.mark)
                )
                continue
            lost.append(each)
            if tenure != VOID:
                self._note_run(each, start, end, self._undecided, leader_epoch)
        return FinishedBatch(tuple(commits), tuple(lost))

    def committed(self, commit: PendingCommit) -> None:
        """Note an accepted commit: runs up to it are finished for good."""
        run = self._committing.get(commit.key)
        if run is None or self.tenure(commit.key) != commit.tenure:
            return
        run.boundaries = [
            boundary for boundary in run.boundaries if boundary.offset >= commit.committed_offset
        ]
        if len(run.boundaries) < 2:
            del self._committing[commit.key]

    def undecided_runs(self) -> frozenset[TopicIdPartition]:
        """Return the partitions with a finished run that is neither committed nor overruled."""
        return frozenset(self._undecided)

    def deciding(self) -> frozenset[TopicIdPartition]:
        """Return the owned partitions whose finished run is soon committed or overruled.

        That of a partition which a batch reads must wait for the end of the batch.
        """
        if not self._undecided:
            return frozenset()
        return frozenset(
            key
            for key in self._undecided.keys() - self._reading()
            if (owned := self.owned.get(key))
            and not (owned.topic_gone or owned.phase is Phase.HELD)
        )

    def uncommitted(self, key: TopicIdPartition) -> OffsetRange | None:
        """Return the finished range of a partition that is not known to be committed."""
        run = self._run(key)
        if run is None:
            return None
        first, until = run.boundaries[0].offset, run.until_offset
        return OffsetRange(key.topic_id, run.topic, key.partition, first, until)

    def inherit(self, member_epoch: int) -> Inheritance:
        """Inherit or overrule the finished runs whose partitions are owned again and ready.

        The leader first confirms the committed offset, if the offset's leader epoch is known. In
        that case the end of a run is committed only with a leader epoch whose log reached it:
        without one, the commit would hide a truncation.
        """
        if not self._undecided:
            return NOTHING_INHERITED
        reading = self._reading()
        taken, overruled, commits = [], [], []
        for key, run in list(self._undecided.items()):
            owned = self.owned.get(key)
            if owned is None or owned.phase is not Phase.READY:
                continue
            if key in reading or not owned.can_inherit(run):
                continue
            whole = self.uncommitted(key)
            assert whole is not None
            if owned.stands_at_batch_start_of(run):
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

    def delaying_revocation(
        self,
        revoking: Assignment,
        pending: frozenset[TopicIdPartition],
        *,
        commits_start_first: bool,
    ) -> Assignment:
        """Return the partitions that delay the acknowledgement of a revocation.

        Undecided finished runs delay it too.

        Args:
            revoking: The partitions to revoke; they are released as a whole.
            pending: Partitions with a commit in flight.
            commits_start_first: True if the starting position must be committed before the release:
                otherwise "latest" would skip what arrives during a hand-over.
        """
        if not revoking:
            return NO_PARTITIONS
        blocked = pending | self._reading() | self.deciding()
        if commits_start_first:
            blocked |= {key for key in self.unstarted() if not self.owned[key].topic_gone}
        return revoking & Assignment(frozenset(blocked))

    def _reading(self) -> frozenset[TopicIdPartition]:
        """Return the partitions of the batch in flight."""
        return self.in_flight.partitions() if self.in_flight else frozenset()

    def _run(self, key: TopicIdPartition) -> FinishedRun | None:
        return self._committing.get(key) or self._undecided.get(key)

    def _note_run(
        self,
        each: OffsetRange,
        start: Boundary,
        end: Boundary,
        runs: dict[TopicIdPartition, FinishedRun],
        leader_epoch: int,
    ) -> None:
        run = self._committing.pop(each.key, None) or self._undecided.pop(each.key, None)
        if run is None:
            run = FinishedRun(each.topic, [start, end], leader_epoch)
        else:
            run.extend(start, end, leader_epoch)
        runs[each.key] = run


def _with_boundaries(plan: BatchPlan) -> Iterator[tuple[OffsetRange, Boundary, Boundary]]:
    """Yield each range of a plan with its start and its end."""
    for each, mark in plan.marked_ranges():
        end = Boundary(each.until_offset, mark_at_end(plan, each, mark))
        yield each, Boundary(each.from_offset, mark), end
