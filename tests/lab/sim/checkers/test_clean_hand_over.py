"""What is given up is finished and committed, or said to be neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import BrokenInvariantError
from spark_groups.lab.sim.checkers.ownership import CleanHandOver
from spark_groups.lab.sim.coordination import AcceptedOffset
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.offsets.events import PartitionsGivenUp
from spark_groups.protocol.events import PartitionsRevoked
from spark_groups.protocol.membership import MemberState
from spark_groups.types import Assignment, BatchPlan
from tests.lab.sim.scenes import Facts, world


class Scripted:
    """A checker that is told what a test wants, about a query that has planned something."""

    def __init__(self) -> None:
        seen = Facts(facts.Triggered)
        found = world(Swarm(queries=1, partitions=1, from_latest=0), "kafka-4.3", 1, seen)
        found.queries[0].start()
        found.scene.schedule.run_until(10.0)
        planned = [fact for fact in seen.seen if isinstance(fact, facts.Triggered) and fact.plan]
        self.triggered = next(fact for fact in planned if fact.plan and fact.plan.ranges)
        self.history = History()
        self.listeners = CleanHandOver(found.scene, self.history).listeners()
        self.triggered.client.member.state = MemberState.ACKNOWLEDGING
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

    def give_up(self) -> None:
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


def test_what_a_batch_reads_is_not_given_up() -> None:
    scripted = Scripted()
    with pytest.raises(BrokenInvariantError, match="while a batch reads it"):
        scripted.give_up()


def test_what_is_finished_is_committed_before() -> None:
    scripted = Scripted()
    scripted.finish()
    with pytest.raises(BrokenInvariantError, match="not committed"):
        scripted.give_up()


def test_what_a_replayed_batch_reads_is_not_given_up() -> None:
    scripted = Scripted()
    scripted.replay()
    with pytest.raises(BrokenInvariantError, match="while a batch reads it"):
        scripted.give_up()


def test_what_a_replayed_batch_finished_is_committed_before() -> None:
    scripted = Scripted()
    (each,) = scripted.plan.ranges
    scripted.commit(each.from_offset)
    scripted.finish(scripted.replay())
    with pytest.raises(BrokenInvariantError, match="replayed up to"):
        scripted.give_up()


def test_what_others_have_committed_since_overrules_a_replayed_batch() -> None:
    scripted = Scripted()
    (each,) = scripted.plan.ranges
    scripted.finish(scripted.replay())
    scripted.commit(each.from_offset + 1)
    scripted.give_up()


def test_what_is_committed_may_go() -> None:
    scripted = Scripted()
    scripted.finish()
    scripted.commit()
    scripted.give_up()


def test_whoever_has_no_more_time_says_so() -> None:
    scripted = Scripted()
    given_up = PartitionsGivenUp(0.0, tuple(scripted.plan.partitions()))
    scripted.history.listeners()[facts.Happened](facts.Happened("q1.1", given_up))
    scripted.give_up()
