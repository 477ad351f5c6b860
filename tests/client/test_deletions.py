"""Topics that are given up are asked for once, and told when they are gone."""

from __future__ import annotations

from spark_groups.client import Lane
from spark_groups.offsets.events import TopicDeleted
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from tests.client.hands import ORDERS, TOPIC, Hands, accepted, all_of, committed, ends, parts


def given_up(hands: Hands) -> m.MetadataRequest:
    """Let a member that has read one of twelve rows give up its topic; return what it asks."""
    hands.own(0)
    plan = hands.client.plan(PlanLimit(max_offsets=1), ends({0: 12}), hands.now)
    assert plan is not None
    left = 12 - plan.ranges[0].until_offset
    assert left > 0
    hands.client.finish(plan, hands.now)
    hands.pump()
    hands.answer(Lane.OFFSETS, all_of(hands.until(m.OffsetCommitRequest)))
    hands.beat(accepted(3, parts()))
    request = hands.until(m.MetadataRequest)
    assert isinstance(request, m.MetadataRequest)
    assert request.topic_ids == {TOPIC}
    return request


def test_topic_that_is_gone_is_told_with_its_unread_rows() -> None:
    hands = Hands()
    given_up(hands)
    hands.answer(Lane.CLUSTER, m.MetadataResponse())
    (event,) = hands.find(TopicDeleted)
    assert isinstance(event, TopicDeleted)
    assert (event.name, event.topic_id) == ("orders", TOPIC)
    assert event.unread > 0


def test_question_without_an_answer_is_asked_again_and_one_with_an_answer_is_not() -> None:
    hands = Hands()
    given_up(hands)
    hands.fail(Lane.CLUSTER)
    hands.until(m.MetadataRequest)
    hands.answer(Lane.CLUSTER, m.MetadataResponse())
    hands.wait(5.0)
    assert Lane.CLUSTER not in hands.under_way
    assert len(hands.find(TopicDeleted)) == 1


def test_topic_that_only_moved_to_somebody_else_is_not_told() -> None:
    hands = Hands()
    given_up(hands)
    hands.answer(Lane.CLUSTER, m.MetadataResponse(topics=(ORDERS,)))
    assert hands.find(TopicDeleted) == []
    assert Lane.CLUSTER not in hands.under_way


def test_topic_is_asked_for_again_when_it_is_given_up_again() -> None:
    hands = Hands()
    given_up(hands)
    hands.answer(Lane.CLUSTER, m.MetadataResponse(topics=(ORDERS,)))
    hands.beat(accepted(3))
    hands.beat(accepted(4, parts(0)))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Lane.OFFSETS, committed({0: 6}))
    hands.beat(accepted(4, parts()))
    hands.until(m.MetadataRequest)
    hands.answer(Lane.CLUSTER, m.MetadataResponse())
    assert len(hands.find(TopicDeleted)) == 1


def test_nothing_is_asked_while_some_of_the_topic_is_left() -> None:
    hands = Hands()
    hands.own(0, 1)
    hands.beat(accepted(3, parts(0)))
    assert not isinstance(hands.request(Lane.CLUSTER), m.MetadataRequest)
