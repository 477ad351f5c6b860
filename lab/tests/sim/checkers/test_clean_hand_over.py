"""Released partitions are finished and committed, or reported as uncommitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_lab.sim import facts
from group_lab.sim.checkers.checker import BrokenInvariantError
from group_lab.sim.checkers.ownership import CleanHandOver
from group_lab.sim.coordination import AcceptedOffset
from group_lab.sim.history import History
from group_lab.sim.swarm import Swarm
from lab.tests.sim.scenes import Facts, world
from spark_groups.group.ledger.events import PartitionsGivenUp
from spark_groups.group.member.events import PartitionsRevoked
from spark_groups.group.member.member_states import MemberState
from spark_groups.types import Assignment, BatchPlan


class Scripted:
    """A checker, and facts about a query that has planned a batch."""

    def __init__(self) -> None:
        seen = Facts(facts.Triggered)
        found = world(Swarm(queries=1, partitions=1, from_latest=0), "kafka-4.3", 1, seen)
        found.queries[0].start()
        found.scene.schedule.run_until(10.0)
        planned = [fact for fact in seen.seen if isinstance(fact, facts.Triggered) and fact.plan]
        self.triggered = next(fact for fact in planned if fact.plan and fact.plan.ranges)
        self.history = History()
        self.listeners = CleanHandOver(found.scene, self.history).listeners()
        self.triggered.client.parts.member.state = MemberState.ACKNOWLEDGING
        self.read(self.plan)

    @property
    def plan(self) -> BatchPlan:
        assert self.triggered.plan is not None
        return self.triggered.plan

    def read(self, plan: BatchPlan) -> None:
        self.listeners[facts.Read](facts.Read("q1", plan, {}))

    def replay(self) -> BatchPlan:
        """Run the batch as one that an earlier run of the query had planned."""
        replayed = replace(self.plan, member_id="q1.0")
        self.read(replayed)
        return replayed

    def release(self) -> None:
        gone = Assignment(self.plan.partitions())
        event = PartitionsRevoked(0.0, self.plan.member_id, 1, gone)
        self.listeners[facts.Happened](facts.Happened("q1.1", event))

    def finish(self, plan: BatchPlan | None = None) -> None:
        self.listeners[facts.Finished](facts.Finished("q1", plan or self.plan, {}))

    def commit(self, committed_offset: int | None = None) -> None:
        (each,) = self.plan.ranges
        by = self.plan.member_id
        reached = each.until_offset if committed_offset is None else committed_offset
        offset = AcceptedOffset(0.0, by, each.key, reached, each.from_offset, by)
        self.listeners[facts.Committed](facts.Committed(offset))


def test_a_partition_is_not_released_while_a_batch_reads_it() -> None:
    scripted = Scripted()
    with pytest.raises(BrokenInvariantError, match="while a batch reads it"):
        scripted.release()


def test_finished_offsets_are_committed_before() -> None:
    scripted = Scripted()
    scripted.finish()
    with pytest.raises(BrokenInvariantError, match="not committed"):
        scripted.release()


def test_a_partition_is_not_released_while_a_replayed_batch_reads_it() -> None:
    scripted = Scripted()
    scripted.replay()
    with pytest.raises(BrokenInvariantError, match="while a batch reads it"):
        scripted.release()


def test_a_replayed_batch_is_committed_before() -> None:
    scripted = Scripted()
    (each,) = scripted.plan.ranges
    scripted.commit(each.from_offset)
    scripted.finish(scripted.replay())
    with pytest.raises(BrokenInvariantError, match="replayed up to"):
        scripted.release()


def test_a_later_commit_overrules_a_replayed_batch() -> None:
    scripted = Scripted()
    (each,) = scripted.plan.ranges
    scripted.finish(scripted.replay())
    scripted.commit(each.from_offset + 1)
    scripted.release()


def test_a_committed_partition_may_be_released() -> None:
    scripted = Scripted()
    scripted.finish()
    scripted.commit()
    scripted.release()


def test_a_member_out_of_time_reports_uncommitted_partitions() -> None:
    scripted = Scripted()
    uncommitted = PartitionsGivenUp(0.0, tuple(scripted.plan.partitions()))
    scripted.history.listeners()[facts.Happened](facts.Happened("q1.1", uncommitted))
    scripted.release()
