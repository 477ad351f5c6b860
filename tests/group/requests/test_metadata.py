"""Topics that do not exist, for all brokers know, and topics that were deleted."""

from __future__ import annotations

import uuid

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import TopicDeleted
from spark_groups.group.member import messages as m
from spark_groups.group.member.messages import MetadataRequest, MetadataResponse, TopicMetadata
from spark_groups.group.requests.channels import Channel
from spark_groups.group.requests.metadata import ASK_AGAIN_S, BELIEVED_S, AbsentTopics
from tests.group.harness import (
    ORDERS,
    TOPIC,
    ClientHarness,
    accepted,
    all_of,
    committed,
    ends,
    parts,
)

BOTH = MetadataRequest(topic_names=frozenset({"orders", "bills"}))
BILLS = TopicMetadata(uuid.UUID(int=2), "bills", 1)


def watched() -> AbsentTopics:
    topics = AbsentTopics()
    topics.is_wanted = True
    topics.learn(BOTH, MetadataResponse(topics=(ORDERS,)), 1.0)
    return topics


def answered(topics: AbsentTopics, sent_at: float, *there: TopicMetadata) -> None:
    """Have brokers answer the next request at once."""
    request = topics.next_request(sent_at)
    assert request is not None
    topics.learn(request, MetadataResponse(topics=there), sent_at)


def test_absence_is_asked_about_again_before_it_is_believed() -> None:
    topics = watched()
    assert (bool(topics.in_doubt), topics.missing) == (True, ())
    assert topics.next_request(1.0) is None
    assert topics.due_at() == 1.0 + ASK_AGAIN_S
    request = topics.next_request(1.0 + BELIEVED_S)
    assert request == MetadataRequest(topic_names=frozenset({"bills"}))
    topics.learn(request, MetadataResponse(), 1.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (False, ("bills",))


def test_response_that_arrives_late_is_as_old_as_its_request() -> None:
    topics = watched()
    request = topics.next_request(1.0 + ASK_AGAIN_S)
    assert request is not None
    topics.learn(request, MetadataResponse(), 1.0 + 2 * BELIEVED_S)
    assert topics.missing == ()
    answered(topics, 2.0 + 2 * BELIEVED_S)
    assert topics.missing == ("bills",)


def test_lookup_at_the_beginning_that_is_repeated_proves_absence() -> None:
    harness = ClientHarness()
    harness.client.parts.available_now.prepare()
    failed = MetadataResponse(errors={"bills": int(ErrorCode.LEADER_NOT_AVAILABLE)})
    for _ in range(10):
        request = harness.until(m.MetadataRequest)
        assert isinstance(request, m.MetadataRequest)
        assert request.topic_names == {"orders"}
        harness.answer(Channel.CLUSTER, failed)
        harness.wait(1.0)
    assert harness.client.parts.absent.missing == ("orders",)


def test_missing_topic_that_is_created_during_a_long_batch_is_found() -> None:
    topics = watched()
    answered(topics, 1.0 + BELIEVED_S)
    assert topics.missing == ("bills",)
    answered(topics, 500.0)
    assert topics.missing == ("bills",)
    answered(topics, 600.0, BILLS)
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ()), "the group has yet to assign it"


def test_topic_that_was_just_created_is_found() -> None:
    topics = watched()
    topics.learn(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 3.0)
    # The group may not have given its partitions to anybody yet.
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ())
    assert topics.due_at() == 3.0 + ASK_AGAIN_S
    topics.learn(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 3.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing, topics.due_at()) == (False, (), None)


def test_topic_that_was_found_and_is_absent_again_is_in_doubt_from_then_on() -> None:
    topics = watched()
    topics.learn(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 2.0)
    topics.learn(BOTH, MetadataResponse(topics=(ORDERS,)), 3.0)
    answered(topics, 1.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (True, ())
    answered(topics, 3.0 + BELIEVED_S)
    assert topics.missing == ("bills",)


def test_topic_whose_leader_is_not_there_yet_is_not_absent() -> None:
    topics = watched()
    failed = MetadataResponse(
        topics=(ORDERS,), errors={"bills": int(ErrorCode.LEADER_NOT_AVAILABLE)}
    )
    topics.learn(BOTH, failed, 1.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (True, ())
    topics.learn(BOTH, failed, 1.0 + 2 * BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (False, ())


def test_an_error_says_nothing_about_absence() -> None:
    topics = AbsentTopics()
    topics.is_wanted = True
    failed = MetadataResponse(errors={"bills": int(ErrorCode.LEADER_NOT_AVAILABLE)})
    topics.learn(MetadataRequest(topic_names=frozenset({"bills"})), failed, 1.0)
    assert not bool(topics.in_doubt)


def test_query_that_stays_asks_nothing() -> None:
    topics = AbsentTopics()
    topics.learn(BOTH, MetadataResponse(), 1.0)
    assert (topics.next_request(99.0), topics.due_at(), bool(topics.in_doubt)) == (
        None,
        None,
        False,
    )


def test_time_without_an_answer_does_not_make_a_topic_absent() -> None:
    topics = watched()
    # Asked for something else, brokers say nothing of the topic.
    others = MetadataRequest(topic_names=frozenset({"orders"}))
    topics.learn(others, MetadataResponse(topics=(ORDERS,)), 2.0 + BELIEVED_S)
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ())


def test_topic_that_an_answer_to_another_question_shows_is_there() -> None:
    topics = watched()
    by_id = MetadataRequest(topic_ids=frozenset({BILLS.topic_id}))
    topics.learn(by_id, MetadataResponse(topics=(BILLS,)), 2.0 + BELIEVED_S)
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ())
    topics.learn(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 3.0 + 2 * BELIEVED_S)
    assert not topics.in_doubt


def given_up(harness: ClientHarness) -> m.MetadataRequest:
    """Let a member that has read one of twelve rows give up its topic; return what it asks."""
    harness.own(0)
    plan = harness.client.plan(PlanLimit(max_offsets=1), ends({0: 12}), harness.now)
    assert plan is not None
    left = 12 - plan.ranges[0].until_offset
    assert left > 0
    harness.client.finish(plan, harness.now)
    harness.pump()
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    harness.beat(accepted(3, parts()))
    request = harness.until(m.MetadataRequest)
    assert isinstance(request, m.MetadataRequest)
    assert request.topic_ids == {TOPIC}
    return request


def test_deleted_topic_is_reported_with_its_unread_rows() -> None:
    harness = ClientHarness()
    given_up(harness)
    harness.answer(Channel.CLUSTER, m.MetadataResponse())
    (event,) = harness.find(TopicDeleted)
    assert isinstance(event, TopicDeleted)
    assert (event.name, event.topic_id) == ("orders", TOPIC)
    assert event.unread.known > 0


def test_question_without_an_answer_is_asked_again_and_one_with_an_answer_is_not() -> None:
    harness = ClientHarness()
    given_up(harness)
    harness.fail(Channel.CLUSTER)
    harness.until(m.MetadataRequest)
    harness.answer(Channel.CLUSTER, m.MetadataResponse())
    harness.wait(5.0)
    assert Channel.CLUSTER not in harness.under_way
    assert len(harness.find(TopicDeleted)) == 1


def test_topic_that_only_moved_to_another_member_is_not_reported() -> None:
    harness = ClientHarness()
    given_up(harness)
    harness.answer(Channel.CLUSTER, m.MetadataResponse(topics=(ORDERS,)))
    assert harness.find(TopicDeleted) == []
    assert Channel.CLUSTER not in harness.under_way


def test_topic_is_asked_for_again_when_it_is_given_up_again() -> None:
    harness = ClientHarness()
    given_up(harness)
    harness.answer(Channel.CLUSTER, m.MetadataResponse(topics=(ORDERS,)))
    harness.beat(accepted(3))
    harness.beat(accepted(4, parts(0)))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 6}))
    harness.beat(accepted(4, parts()))
    harness.until(m.MetadataRequest)
    harness.answer(Channel.CLUSTER, m.MetadataResponse())
    assert len(harness.find(TopicDeleted)) == 1


def test_nothing_is_asked_while_some_of_the_topic_is_left() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    harness.beat(accepted(3, parts(0)))
    assert not isinstance(harness.request(Channel.CLUSTER), m.MetadataRequest)
