"""When it is believed that a topic does not exist."""

from __future__ import annotations

import uuid

from spark_groups.client.absent import ASK_AGAIN_S, BELIEVED_S, AbsentTopics
from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import MetadataRequest, MetadataResponse, TopicMetadata

BOTH = MetadataRequest(topic_names=frozenset({"orders", "bills"}))
ORDERS = TopicMetadata(uuid.UUID(int=1), "orders", 1)
BILLS = TopicMetadata(uuid.UUID(int=2), "bills", 1)


def watched() -> AbsentTopics:
    topics = AbsentTopics()
    topics.is_wanted = True
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS,)), 1.0)
    return topics


def test_absence_is_asked_about_again_before_it_is_believed() -> None:
    topics = watched()
    assert (bool(topics.in_doubt), topics.missing) == (True, ())
    assert topics.to_ask(1.0) is None
    assert topics.due_at() == 1.0 + ASK_AGAIN_S
    request = topics.to_ask(1.0 + ASK_AGAIN_S)
    assert request == MetadataRequest(topic_names=frozenset({"bills"}))
    topics.handle_metadata(request, MetadataResponse(), 1.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (False, ("bills",))
    assert topics.due_at() is None


def test_topic_that_was_just_created_is_found() -> None:
    topics = watched()
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 3.0)
    # The group may not have given its partitions to anybody yet.
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ())
    assert topics.due_at() == 3.0 + ASK_AGAIN_S
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 3.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing, topics.due_at()) == (False, (), None)


def test_topic_that_was_found_and_is_absent_again_is_in_doubt_from_then_on() -> None:
    topics = watched()
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 2.0)
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS,)), 3.0)
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS,)), 1.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (True, ())
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS,)), 3.0 + BELIEVED_S)
    assert topics.missing == ("bills",)


def test_topic_whose_leader_is_not_there_yet_is_not_absent() -> None:
    topics = watched()
    failed = MetadataResponse(
        topics=(ORDERS,), errors={"bills": int(ErrorCode.LEADER_NOT_AVAILABLE)}
    )
    topics.handle_metadata(BOTH, failed, 1.0 + BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (True, ())
    topics.handle_metadata(BOTH, failed, 1.0 + 2 * BELIEVED_S)
    assert (bool(topics.in_doubt), topics.missing) == (False, ())


def test_an_error_says_nothing_about_absence() -> None:
    topics = AbsentTopics()
    topics.is_wanted = True
    failed = MetadataResponse(errors={"bills": int(ErrorCode.LEADER_NOT_AVAILABLE)})
    topics.handle_metadata(MetadataRequest(topic_names=frozenset({"bills"})), failed, 1.0)
    assert not bool(topics.in_doubt)


def test_query_that_stays_asks_nothing() -> None:
    topics = AbsentTopics()
    topics.handle_metadata(BOTH, MetadataResponse(), 1.0)
    assert (topics.to_ask(99.0), topics.due_at(), bool(topics.in_doubt)) == (None, None, False)


def test_time_without_an_answer_does_not_make_a_topic_absent() -> None:
    topics = watched()
    # Asked for something else, brokers say nothing of the topic.
    others = MetadataRequest(topic_names=frozenset({"orders"}))
    topics.handle_metadata(others, MetadataResponse(topics=(ORDERS,)), 2.0 + BELIEVED_S)
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ())


def test_topic_that_an_answer_to_another_question_shows_is_there() -> None:
    topics = watched()
    by_id = MetadataRequest(topic_ids=frozenset({BILLS.topic_id}))
    topics.handle_metadata(by_id, MetadataResponse(topics=(BILLS,)), 2.0 + BELIEVED_S)
    assert (topics.in_doubt, topics.missing) == ({"bills"}, ())
    topics.handle_metadata(BOTH, MetadataResponse(topics=(ORDERS, BILLS)), 3.0 + 2 * BELIEVED_S)
    assert not topics.in_doubt
