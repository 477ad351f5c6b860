"""What happened so far, as checkers ask for it."""

from __future__ import annotations

import uuid

from group_lab.sim import facts
from group_lab.sim.coordination import AcceptedOffset
from group_lab.sim.history import History
from spark_groups.types import BatchPlan, OffsetRange, TopicIdPartition

TOPIC = uuid.UUID(int=1)
KEY = TopicIdPartition(TOPIC, 0)


class Recorded:
    """A history that receives facts from a test."""

    def __init__(self) -> None:
        self.history = History()

    def publish(self, fact: object) -> None:
        self.history.listeners()[type(fact)](fact)

    def finish(self, from_offset: int, until_offset: int) -> None:
        ranges = (OffsetRange(TOPIC, "orders", 0, from_offset, until_offset),)
        records = {KEY: list(range(from_offset, until_offset))}
        self.publish(facts.Finished("q1", BatchPlan("g", "m1", 1, ranges), records))

    def commit(self, committed_offset: int, before: int | None = None) -> None:
        self.publish(
            facts.Committed(AcceptedOffset(0.0, "m1", KEY, committed_offset, before, "m1"))
        )


def test_finished_batches_reach_as_far_as_they_touch_each_other() -> None:
    record = Recorded()
    record.commit(10)
    assert record.history.reached(KEY) == 10
    record.finish(10, 20)
    record.finish(30, 40)
    assert record.history.reached(KEY) == 20
    record.finish(15, 30)
    assert record.history.reached(KEY) == 40
    assert record.history.first == record.history.lowest == {KEY: 10}


def test_what_retention_dropped_need_not_be_read() -> None:
    record = Recorded()
    record.commit(0)
    record.finish(25, 30)
    assert record.history.reached(KEY) == 0
    record.publish(facts.Aged(KEY, 25))
    assert record.history.reached(KEY) == 30


def test_ranges_that_overlap_are_read_again() -> None:
    record = Recorded()
    for from_offset, until_offset in ((0, 5), (5, 9), (20, 30), (9, 20)):
        record.finish(from_offset, until_offset)
    assert record.history.read_again == 0
    record.finish(19, 21)
    assert record.history.read_again == 1
    assert record.history.read[KEY] == set(range(30))


def test_a_log_that_was_cut_lets_positions_go_back_to_the_cut() -> None:
    record = Recorded()
    record.commit(10)
    assert record.history.floor(KEY, 50) == 50
    record.publish(facts.Cut(KEY, 30))
    record.publish(facts.Cut(KEY, 40))
    assert (record.history.floor(KEY, 50), record.history.floor(KEY, 20)) == (30, 20)
    record.publish(facts.Cut(KEY, 5))
    assert record.history.lowest[KEY] == 5


def test_only_what_grows_beside_a_group_that_reads_was_added() -> None:
    record = Recorded()
    record.publish(facts.Grown(TopicIdPartition(TOPIC, 1)))
    assert record.history.added == set()
    record.commit(10)
    record.publish(facts.Grown(TopicIdPartition(TOPIC, 2)))
    assert record.history.added == {TopicIdPartition(TOPIC, 2)}


def test_plain_consumers_have_read_what_they_are_about_to_commit() -> None:
    record = Recorded()
    record.commit(0)
    record.publish(facts.Consumed("c1", "c1.1", {KEY: (0, 7)}, {KEY: range(7)}, 0.0))
    assert record.history.reached(KEY) == 7
    assert record.history.read[KEY] == set(range(7))
