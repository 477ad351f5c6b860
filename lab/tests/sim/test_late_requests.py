"""A request that comes late is a race only where its sender cannot know what it did."""

from __future__ import annotations

import uuid

import pytest

from group_lab.sim import facts
from group_lab.sim.coordination import AcceptedOffset
from group_lab.sim.late_requests import LateRequests
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import PartitionsAssigned, PartitionsRevoked
from spark_groups.types import Assignment, TopicIdPartition
from tests.answers import fetch_answer

KEY = TopicIdPartition(uuid.UUID(int=1), 0)


def commit(committed_offset: int) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(
        group_id="g",
        member_id="m",
        member_epoch=1,
        offsets={KEY: m.OffsetAndMetadata(committed_offset)},
    )


class Given:
    """Late requests that receive facts from a test."""

    def __init__(self) -> None:
        self.late = LateRequests()
        self._listeners = self.late.listeners()

    def publish(self, fact: object) -> None:
        self._listeners[type(fact)](fact)

    def unanswered(self) -> None:
        self.publish(facts.Unanswered("q1.1", commit(10)))

    def repeated(self) -> None:
        self.publish(facts.Answered("q1.1", commit(10), m.OffsetCommitResponse(errors={KEY: 0})))

    def looked_up(self) -> None:
        asked = m.OffsetFetchRequest(group_id="g", member_id="m", partitions=frozenset({KEY}))
        shown = fetch_answer(offsets={KEY: m.OffsetAndMetadata(10)})
        self.publish(facts.Answered("q1.1", asked, shown))

    def accepted(
        self, committed_offset: int, before: int | None, at: float = 0.0
    ) -> AcceptedOffset:
        found = AcceptedOffset(at, "m", KEY, committed_offset, before, "m")
        self.publish(facts.Committed(found))
        return found

    def comes_late(self) -> AcceptedOffset:
        """The lost commit arrives, over one of a later batch."""
        self.publish(facts.CameLate(commit(10), 0.0))
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
def test_a_late_commit_is_a_race_only_after_a_repetition_and_a_look_up(
    steps: list[str], is_race: bool
) -> None:
    given = Given()
    for step in steps:
        getattr(given, step)()
    offset = given.comes_late()
    assert given.late.is_late(offset)
    assert given.late.overtook(KEY, 10)
    assert given.late.is_race(KEY, 10) is is_race


def test_it_is_over_with_the_next_commit() -> None:
    given = Given()
    given.comes_late()
    later = given.accepted(30, 10)
    assert given.late.undoes_late(later)
    assert not given.late.overtook(KEY, 10)
    assert not given.late.undoes_late(given.accepted(40, 30))


def test_a_commit_under_way_when_a_consumer_released_the_partition_is_late_until_its_next() -> None:
    given = Given()
    given.publish(facts.ReleasedWhileCommitting("m", frozenset({KEY})))
    assert given.late.is_late(given.accepted(10, 0))
    given.publish(facts.Consumed("c1", "m", {KEY: (10, 20)}, {}, 1.0))
    assert not given.late.is_late(given.accepted(20, 10))


def test_a_late_commit_that_changes_nothing_overtakes_nothing() -> None:
    given = Given()
    given.publish(facts.CameLate(commit(10), 0.0))
    given.accepted(10, 10)
    assert not given.late.overtook(KEY, 10)


def test_the_first_commit_of_a_partition_undoes_nothing() -> None:
    given = Given()
    assert not given.late.overtook(KEY, None)
    assert not given.late.undoes_late(given.accepted(10, None))


def test_the_repeat_of_a_commit_that_came_late_is_not_late_itself() -> None:
    given = Given()
    given.comes_late()
    repeat = given.accepted(10, 20, at=1.0)
    assert not given.late.is_late(repeat)
    assert not given.late.overtook(KEY, 10)


def revoked() -> facts.Happened:
    event = PartitionsRevoked(0.0, "m", 1, Assignment(frozenset({KEY})))
    return facts.Happened("q1.1", event)


def test_what_a_late_heartbeat_took_is_excused_until_its_member_gives_it_up() -> None:
    given = Given()
    given.publish(facts.ChangedByLateHeartbeat("m", frozenset({KEY})))
    assert given.late.is_taken_unaware("m", KEY)
    offset = given.accepted(10, 20)
    assert given.late.is_late(offset)
    assert given.late.is_race(KEY, 10), "its commit takes the offset of the new owner back"
    given.publish(revoked())
    assert not given.late.is_taken_unaware("m", KEY)
    assert not given.late.is_late(given.accepted(30, 10))


def test_unanswered_commit_is_doubted_until_a_lookup_or_a_new_assignment() -> None:
    given = Given()
    given.unanswered()
    given.repeated()
    assert given.late.is_doubted("m", KEY)
    given.looked_up()
    assert not given.late.is_doubted("m", KEY)
    given.unanswered()
    event = PartitionsAssigned(0.0, "m", 2, Assignment(frozenset({KEY})))
    given.publish(facts.Happened("q1.1", event))
    assert not given.late.is_doubted("m", KEY)


def test_a_commit_of_the_tenure_before_is_not_doubted_when_its_answer_is_missed_later() -> None:
    given = Given()
    partitions = Assignment(frozenset({KEY}))
    given.publish(facts.Happened("q1.1", PartitionsAssigned(0.0, "m", 2, partitions)))
    given.unanswered()
    assert not given.late.is_doubted("m", KEY), "the coordinator refuses epoch 1"
    given.publish(facts.Happened("q1.1", PartitionsAssigned(0.0, "m", 1, partitions)))
    given.unanswered()
    assert given.late.is_doubted("m", KEY)


def test_partitions_of_a_late_join_are_unreported_until_the_member_is_assigned_them() -> None:
    given = Given()
    given.publish(facts.ChangedByLateHeartbeat("m", frozenset(), frozenset({KEY})))
    assert given.late.is_given_unaware("m", KEY)
    assert not given.late.is_given_unaware(None, KEY)
    assert not given.late.is_taken_unaware("m", KEY)
    event = PartitionsAssigned(0.0, "m", 2, Assignment(frozenset({KEY})))
    given.publish(facts.Happened("c1", event))
    assert not given.late.is_given_unaware("m", KEY)
