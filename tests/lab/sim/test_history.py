"""What happened so far, as checkers ask for it."""

from __future__ import annotations

import uuid

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.coordination import AcceptedOffset
from spark_groups.lab.sim.history import History
from spark_groups.types import BatchPlan, OffsetRange, TopicIdPartition

TOPIC = uuid.UUID(int=1)
KEY = TopicIdPartition(TOPIC, 0)


class Told:
    """A history that is told facts by hand."""

    def __init__(self) -> None:
        self.history = History()

    def tell(self, fact: object) -> None:
        self.history.listeners()[type(fact)](fact)

    def finish(self, from_offset: int, until_offset: int) -> None:
        ranges = (OffsetRange(TOPIC, "orders", 0, from_offset, until_offset),)
        records = {KEY: list(range(from_offset, until_offset))}
        self.tell(facts.Finished("q1", BatchPlan("g", "m1", 1, ranges), records))

    def commit(self, committed_offset: int, before: int | None = None) -> None:
        self.tell(facts.Committed(AcceptedOffset(0.0, "m1", KEY, committed_offset, before, "m1")))


def test_finished_batches_reach_as_far_as_they_touch_each_other() -> None:
    told = Told()
    told.commit(10)
    assert told.history.reached(KEY) == 10
    told.finish(10, 20)
    told.finish(30, 40)
    assert told.history.reached(KEY) == 20
    told.finish(15, 30)
    assert told.history.reached(KEY) == 40
    assert told.history.first == told.history.lowest == {KEY: 10}


def test_what_retention_dropped_need_not_be_read() -> None:
    told = Told()
    told.commit(0)
    told.finish(25, 30)
    assert told.history.reached(KEY) == 0
    told.tell(facts.Aged(KEY, 25))
    assert told.history.reached(KEY) == 30


def test_ranges_that_overlap_are_read_again() -> None:
    told = Told()
    for from_offset, until_offset in ((0, 5), (5, 9), (20, 30), (9, 20)):
        told.finish(from_offset, until_offset)
    assert told.history.read_again == 0
    told.finish(19, 21)
    assert told.history.read_again == 1
    assert told.history.read[KEY] == set(range(30))


def test_a_log_that_was_cut_lets_positions_go_back_to_the_cut() -> None:
    told = Told()
    told.commit(10)
    assert told.history.floor(KEY, 50) == 50
    told.tell(facts.Cut(KEY, 30))
    told.tell(facts.Cut(KEY, 40))
    assert (told.history.floor(KEY, 50), told.history.floor(KEY, 20)) == (30, 20)
    told.tell(facts.Cut(KEY, 5))
    assert told.history.lowest[KEY] == 5


def test_only_what_grows_beside_a_group_that_reads_was_added() -> None:
    told = Told()
    told.tell(facts.Grown(TopicIdPartition(TOPIC, 1)))
    assert told.history.added == set()
    told.commit(10)
    told.tell(facts.Grown(TopicIdPartition(TOPIC, 2)))
    assert told.history.added == {TopicIdPartition(TOPIC, 2)}


def test_plain_consumers_have_read_what_they_are_about_to_commit() -> None:
    told = Told()
    told.commit(0)
    told.tell(facts.Consumed("c1", "c1.1", KEY, 0, 7, range(7)))
    assert told.history.reached(KEY) == 7
    assert told.history.read[KEY] == set(range(7))
