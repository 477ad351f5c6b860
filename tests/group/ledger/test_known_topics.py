"""Names of topic ids, and how many partitions topics had when the member came."""

from __future__ import annotations

import uuid

from spark_groups.group.ledger.known_topics import (
    MAX_TOPICS_REMEMBERED,
    InCheckpoint,
    TopicDirectory,
)
from spark_groups.group.ledger.plan_text import parse_plan_text, plan_text
from spark_groups.group.member.messages import TopicMetadata
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic, TopicIdPartition

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(topic_id: uuid.UUID = OLD, count: int = 3, name: str = "orders") -> TopicMetadata:
    return TopicMetadata(topic_id, name, count)


def test_first_count_stays_while_the_topic_grows() -> None:
    topics = TopicDirectory()
    assert topics.unknown([OLD]) == {OLD}
    assert topics.learn(topic()) is None
    assert topics.learn(topic(count=5)) is None
    assert (topics.first_count(OLD), topics.partition_count(OLD)) == (3, 5)
    assert (topics.name(OLD), topics.name(NEW)) == ("orders", None)
    assert topics.unknown([OLD, NEW]) == {NEW}


def test_partition_that_a_broker_does_not_know_yet_counts() -> None:
    topics = TopicDirectory()
    topics.note_partitions([TopicIdPartition(OLD, 4), TopicIdPartition(OLD, 1)])
    topics.learn(topic())
    assert (topics.first_count(OLD), topics.partition_count(OLD)) == (3, 5)
    topics.learn(topic(count=6))
    assert topics.partition_count(OLD) == 6


def test_topic_that_was_absent_had_no_partitions() -> None:
    topics = TopicDirectory()
    topics.saw_absent(["orders"])
    assert topics.learn(topic()) is None
    assert topics.first_count(OLD) == 0


def test_topic_that_is_known_is_not_absent() -> None:
    topics = TopicDirectory()
    topics.learn(topic())
    topics.saw_absent(["orders"])
    topics.learn(topic())
    assert topics.first_count(OLD) == 3


def test_topic_learnt_after_the_initial_topics_was_created_since() -> None:
    topics = TopicDirectory()
    topics.learn(topic())
    topics.end_initial_topics()
    topics.learn(topic(NEW, name="bills"))
    assert (topics.first_count(OLD), topics.first_count(NEW)) == (3, 0)


def test_topic_created_again_tells_its_old_id_once_and_begins_with_nothing() -> None:
    topics = TopicDirectory()
    topics.learn(topic())
    assert topics.learn(topic(NEW)) == OLD
    assert topics.learn(topic(NEW)) is None
    assert (topics.first_count(OLD), topics.first_count(NEW)) == (3, 0)
    assert topics.name(OLD) == "orders", "its owned partitions keep their name"


def test_topic_created_again_between_two_runs() -> None:
    topics = TopicDirectory()
    topics.remember([PlanTopic(OLD, "orders")], of_this_group=True)
    assert topics.learn(topic(NEW)) == OLD
    assert topics.first_count(NEW) == 0


def test_topic_that_the_checkpoint_lacks_appeared_while_the_query_did_not_run() -> None:
    topics = TopicDirectory()
    topics.remember([PlanTopic(OLD, "bills")], of_this_group=True)
    topics.learn(topic(NEW))
    topics.learn(topic(OLD, name="bills"))
    assert (topics.first_count(NEW), topics.first_count(OLD)) == (0, 3)
    assert topics.in_checkpoint(NEW) is InCheckpoint.LACKED
    assert topics.in_checkpoint(OLD) is not InCheckpoint.LACKED


def test_topic_that_appears_while_the_query_runs_did_not_appear_unseen() -> None:
    topics = TopicDirectory()
    topics.remember([PlanTopic(OLD, "bills")], of_this_group=True)
    topics.end_initial_topics()
    topics.learn(topic(NEW))
    assert topics.first_count(NEW) == 0
    assert topics.in_checkpoint(NEW) is not InCheckpoint.LACKED


def test_topic_of_a_checkpoint_that_names_no_topic_appeared_since() -> None:
    """The first run of a pattern that matched nothing, under AvailableNow."""
    topics = TopicDirectory()
    topics.remember([], of_this_group=True)
    topics.learn(topic())
    assert topics.has_checkpoint
    assert topics.first_count(OLD) == 0
    assert topics.in_checkpoint(OLD) is InCheckpoint.LACKED


def test_topics_that_existed_when_the_query_began_are_named_until_they_are_read() -> None:
    """A run that is killed before it reads a topic must not make it look new."""
    topics = TopicDirectory()
    topics.learn(topic())
    topics.learn(topic(NEW, count=1, name="bills"))
    unread = PlanTopic(OLD, "orders", 3, is_read=False)
    assert topics.unread() == (unread, PlanTopic(NEW, "bills", 1, is_read=False))
    topics.note_read([NEW])
    assert topics.unread() == (unread,)
    restarted = TopicDirectory()
    restarted.remember([unread], of_this_group=True)
    restarted.learn(topic(count=5))
    assert restarted.first_count(OLD) == 3
    assert restarted.unread() == (unread,)
    assert restarted.in_checkpoint(OLD) is InCheckpoint.UNREAD


def test_a_plan_names_no_topic_as_unread_that_it_reads_even_if_it_cannot_remember_all() -> None:
    """Such a plan could not be read again: the query would fail, and no restart would help."""
    topics = TopicDirectory()
    ids = [uuid.UUID(int=number) for number in range(1, MAX_TOPICS_REMEMBERED + 501)]
    for each in ids:
        topics.learn(topic(each, name=f"t{each.int}"))
    topics.note_read(reversed(ids))
    ranges = tuple(OffsetRange(each, f"t{each.int}", 0, 0, 1) for each in ids)
    plan = BatchPlan("g", "m1", 1, ranges, (*topics.read(), *topics.unread()))
    assert parse_plan_text(plan_text(plan)) == plan


def test_topics_that_appear_later_or_are_created_again_are_not_named_as_unread() -> None:
    topics = TopicDirectory()
    topics.learn(topic())
    topics.end_initial_topics()
    topics.learn(topic(uuid.UUID(int=3), name="bills"))
    topics.learn(topic(NEW))
    assert topics.unread() == ()


def test_same_topic_in_two_runs() -> None:
    topics = TopicDirectory()
    topics.remember([PlanTopic(OLD, "orders")], of_this_group=True)
    assert topics.learn(topic()) is None
    assert topics.first_count(OLD) == 3


def test_of_two_counts_the_smaller_is_kept() -> None:
    topics = TopicDirectory()
    topics.learn(topic())
    assert topics.known_count(OLD) is None
    assert [topics.note_count(OLD, each) for each in (3, 2, 5)] == [3, 2, 2]
    topics.note_read([OLD])
    assert topics.read() == (PlanTopic(OLD, "orders", 2),)


def test_topics_of_the_checkpoint_are_those_that_were_read() -> None:
    topics = TopicDirectory()
    topics.remember([PlanTopic(OLD, "orders")], of_this_group=True)
    assert topics.read() == (PlanTopic(OLD, "orders"),)
