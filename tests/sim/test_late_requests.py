"""A request that comes late is a race only where its sender cannot know what it did."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.protocol import messages as m
from spark_groups.protocol.events import PartitionsAssigned, PartitionsRevoked
from spark_groups.sim import facts
from spark_groups.sim.coordination import AcceptedOffset
from spark_groups.sim.late_requests import LateRequests
from spark_groups.types import Assignment, TopicIdPartition

KEY = TopicIdPartition(uuid.UUID(int=1), 0)


def commit(committed_offset: int) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(
        group_id="g",
        member_id="m",
        member_epoch=1,
        offsets={KEY: m.OffsetAndMetadata(committed_offset)},
    )


class Told:
    """Late commits that are told what a test wants."""

    def __init__(self) -> None:
        self.late = LateRequests()
        self._listeners = self.late.listeners()

    def tell(self, fact: object) -> None:
        self._listeners[type(fact)](fact)

    def unanswered(self) -> None:
        self.tell(facts.Unanswered("q1.1", commit(10)))

    def repeated(self) -> None:
        self.tell(facts.Answered("q1.1", commit(10), m.OffsetCommitResponse(errors={KEY: 0})))

    def looked_up(self) -> None:
        asked = m.OffsetFetchRequest(group_id="g", member_id="m", partitions=frozenset({KEY}))
        shown = m.OffsetFetchResponse(offsets={KEY: m.OffsetAndMetadata(10)})
        self.tell(facts.Answered("q1.1", asked, shown))

    def accepted(
        self, committed_offset: int, before: int | None, at: float = 0.0
    ) -> AcceptedOffset:
        found = AcceptedOffset(at, "m", KEY, committed_offset, before, "m")
        self.tell(facts.Committed(found))
        return found

    def comes_late(self) -> AcceptedOffset:
        """The lost commit arrives, over one of a later batch."""
        self.tell(facts.CameLate(commit(10), 0.0))
        return self.accepted(10, 20)


@pytest.mark.parametrize(
    ("steps", "is_race"),
    [
        ([], False),
        (["unanswered"], False),
        (["unanswered", "repeated"], False),
        (["unanswered", "looked_up"], False),
        (["unanswered", "repeated", "looked_up"], True),
        (["unanswered", "repeated", "looked_up", "unanswered"], False),
    ],
)
def test_only_what_was_repeated_and_looked_up_is_a_race(steps: list[str], is_race: bool) -> None:
    told = Told()
    for step in steps:
        getattr(told, step)()
    offset = told.comes_late()
    assert told.late.is_late(offset)
    assert told.late.overtook(KEY, 10)
    assert told.late.is_race(KEY, 10) is is_race


def test_it_is_over_with_the_next_commit() -> None:
    told = Told()
    told.comes_late()
    later = told.accepted(30, 10)
    assert told.late.undoes_late(later)
    assert not told.late.overtook(KEY, 10)
    assert not told.late.undoes_late(told.accepted(40, 30))


def test_a_late_commit_that_changes_nothing_overtakes_nothing() -> None:
    told = Told()
    told.tell(facts.CameLate(commit(10), 0.0))
    told.accepted(10, 10)
    assert not told.late.overtook(KEY, 10)


def test_the_first_commit_of_a_partition_undoes_nothing() -> None:
    told = Told()
    assert not told.late.overtook(KEY, None)
    assert not told.late.undoes_late(told.accepted(10, None))


def test_the_repeat_of_a_commit_that_came_late_is_not_late_itself() -> None:
    told = Told()
    told.comes_late()
    repeat = told.accepted(10, 20, at=1.0)
    assert not told.late.is_late(repeat)
    assert not told.late.overtook(KEY, 10)


def revoked() -> facts.Happened:
    event = PartitionsRevoked(0.0, "m", 1, Assignment(frozenset({KEY})))
    return facts.Happened("q1.1", event)


def test_what_a_late_heartbeat_took_is_excused_until_its_member_gives_it_up() -> None:
    told = Told()
    told.tell(facts.Misheard("m", frozenset({KEY})))
    assert told.late.is_misheard("m", KEY)
    offset = told.accepted(10, 20)
    assert told.late.is_late(offset)
    assert told.late.is_race(KEY, 10), "its commit takes the offset of the new owner back"
    told.tell(revoked())
    assert not told.late.is_misheard("m", KEY)
    assert not told.late.is_late(told.accepted(30, 10))


def test_what_was_not_looked_up_is_doubted_until_the_partition_is_assigned_anew() -> None:
    told = Told()
    told.unanswered()
    told.repeated()
    assert told.late.is_doubted("m", KEY)
    told.looked_up()
    assert not told.late.is_doubted("m", KEY)
    told.unanswered()
    event = PartitionsAssigned(0.0, "m", 2, Assignment(frozenset({KEY})))
    told.tell(facts.Happened("q1.1", event))
    assert not told.late.is_doubted("m", KEY)


def test_a_commit_of_the_tenure_before_is_not_doubted_when_its_answer_is_missed_later() -> None:
    told = Told()
    partitions = Assignment(frozenset({KEY}))
    told.tell(facts.Happened("q1.1", PartitionsAssigned(0.0, "m", 2, partitions)))
    told.unanswered()
    assert not told.late.is_doubted("m", KEY), "the coordinator refuses epoch 1"
    told.tell(facts.Happened("q1.1", PartitionsAssigned(0.0, "m", 1, partitions)))
    told.unanswered()
    assert told.late.is_doubted("m", KEY)


def test_what_a_late_join_gave_is_untold_until_the_member_is_assigned_it() -> None:
    told = Told()
    told.tell(facts.Misheard("m", frozenset(), frozenset({KEY})))
    assert told.late.is_untold("m", KEY)
    assert not told.late.is_untold(None, KEY)
    assert not told.late.is_misheard("m", KEY)
    event = PartitionsAssigned(0.0, "m", 2, Assignment(frozenset({KEY})))
    told.tell(facts.Happened("c1", event))
    assert not told.late.is_untold("m", KEY)
