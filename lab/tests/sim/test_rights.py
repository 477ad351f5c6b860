"""The allowed part of a request, and requests to brokers without topic ids."""

from __future__ import annotations

import uuid

import pytest

from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from group_lab.sim.rights import GROUP_DENIED, TOPIC_DENIED, Rights, sent_by_name
from spark_groups.errors import ErrorCode
from spark_groups.group.batches.warm_up import READ_BIT
from spark_groups.group.member import messages as m
from spark_groups.types import TopicIdPartition
from tests.answers import fetch_answer, list_answer

OPEN, SECRET = (TopicImage(uuid.UUID(int=each), name, 1) for each, name in ((1, "a"), (2, "b")))
TOPICS = TopicsImage().with_topic(OPEN).with_topic(SECRET)
SEEN, UNSEEN = (TopicIdPartition(each.topic_id, 0) for each in (OPEN, SECRET))
BOTH = frozenset({SEEN, UNSEEN})
COMMIT = m.OffsetCommitRequest(
    group_id="g", member_id="m", member_epoch=1, offsets=dict.fromkeys(BOTH, m.OffsetAndMetadata(5))
)
JOIN = m.HeartbeatRequest(
    group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("a", "b")
)
BEAT = m.HeartbeatRequest(group_id="g", member_id="m", member_epoch=1)


@pytest.fixture
def rights() -> Rights:
    """Rights of which that on topic b is missing for ten seconds."""
    found = Rights()
    found.deny_topic("b", 10.0)
    return found


def test_nothing_is_refused_while_no_right_is_missing(rights: Rights) -> None:
    assert rights.authorize(COMMIT, TOPICS, 10.0) == (COMMIT, None, None)
    assert Rights().authorize(JOIN, TOPICS, 0.0) == (JOIN, None, None)


def test_description_has_the_authorized_operations_if_asked_for() -> None:
    for is_asked, expected in ((True, READ_BIT), (False, 0)):
        asked = m.DescribeGroupRequest(group_id="g", include_authorized_operations=is_asked)
        _, finish, _ = Rights().authorize(asked, TOPICS, 0.0)
        assert finish is not None
        described = finish(m.DescribeGroupResponse(group_id="g"))
        assert isinstance(described, m.DescribeGroupResponse)
        assert described.authorized_operations & READ_BIT == expected


def test_one_response_has_the_allowed_topic_and_the_denied_one(rights: Rights) -> None:
    request, finish, refusal = rights.authorize(COMMIT, TOPICS, 5.0)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (set(request.offsets), refusal) == ({SEEN}, None)
    assert finish is not None
    answer = finish(m.OffsetCommitResponse(errors={SEEN: 0}))
    assert answer == m.OffsetCommitResponse(errors={SEEN: 0, UNSEEN: TOPIC_DENIED})


def test_what_asks_for_nothing_else_is_refused_as_a_whole(rights: Rights) -> None:
    asked = m.ListOffsetsRequest(partitions=frozenset({UNSEEN}), timestamp_ms=-1)
    refusal = list_answer(errors={UNSEEN: TOPIC_DENIED})
    assert rights.authorize(asked, TOPICS, 5.0) == (None, None, refusal)


def test_a_topic_is_refused_by_name_and_left_out_by_id(rights: Rights) -> None:
    asked = m.MetadataRequest(
        topic_names=frozenset({"a", "b"}), topic_ids=frozenset({OPEN.topic_id, SECRET.topic_id})
    )
    request, finish, _ = rights.authorize(asked, TOPICS, 5.0)
    assert request == m.MetadataRequest(
        topic_names=frozenset({"a"}), topic_ids=frozenset({OPEN.topic_id})
    )
    assert finish is not None
    assert finish(m.MetadataResponse()) == m.MetadataResponse(errors={"b": TOPIC_DENIED})


def test_the_answer_does_not_depend_on_the_order_of_a_set() -> None:
    rights = Rights()
    names = [f"t{each}" for each in range(20)]
    for name in names:
        rights.deny_topic(name, 10.0)
    asked = m.MetadataRequest(topic_names=frozenset(names))
    _, finish, _ = rights.authorize(asked, TOPICS, 5.0)
    assert finish is not None
    answer = finish(m.MetadataResponse())
    assert isinstance(answer, m.MetadataResponse)
    assert list(answer.errors) == sorted(names)


def test_a_heartbeat_is_refused_that_names_the_topic(rights: Rights) -> None:
    assert rights.authorize(BEAT, TOPICS, 5.0)[0] == BEAT
    _, _, refusal = rights.authorize(JOIN, TOPICS, 5.0)
    assert isinstance(refusal, m.HeartbeatResponse)
    assert refusal.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "request_",
    [BEAT, COMMIT, m.DescribeGroupRequest(group_id="g")],
    ids=lambda each: type(each).__name__,
)
def test_without_the_right_on_the_group_every_request_of_it_is_refused(request_: m.Request) -> None:
    rights = Rights()
    rights.deny_group(10.0)
    allowed, _, refusal = rights.authorize(request_, TOPICS, 5.0)
    codes = (
        {*refusal.errors.values()}
        if isinstance(refusal, m.OffsetCommitResponse)
        else {getattr(refusal, "error_code", None)}
    )
    assert (allowed, codes) == (None, {GROUP_DENIED})
    assert rights.missed_since(9.0)
    assert not rights.missed_since(10.0)


def test_a_group_may_be_undescribed_and_all_else_allowed() -> None:
    rights = Rights()
    rights.may_not_describe = True
    described = rights.authorize(m.DescribeGroupRequest(group_id="g"), TOPICS, 0.0)
    assert isinstance(described[2], m.DescribeGroupResponse)
    assert described[2].error_code == TOPIC_DENIED
    assert rights.authorize(COMMIT, TOPICS, 0.0)[0] == COMMIT
    assert not rights.missed_since(-1.0), "a member can do without it"


HERE, GONE = (TopicIdPartition(uuid.UUID(int=number), 0) for number in (1, 2))
IMAGE = TopicsImage.of([TopicImage(HERE.topic_id, "orders", 1)])
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_ID)


def test_offsets_of_topics_that_are_gone_are_not_committed() -> None:
    offsets = dict.fromkeys((HERE, GONE), m.OffsetAndMetadata(5))
    request = m.OffsetCommitRequest(group_id="g", member_id="m", member_epoch=1, offsets=offsets)
    sent, whole = sent_by_name(request, IMAGE)
    assert isinstance(sent, m.OffsetCommitRequest)
    assert sent.offsets.keys() == {HERE}
    assert whole(m.OffsetCommitResponse(errors={HERE: 0})) == m.OffsetCommitResponse(
        errors={HERE: 0, GONE: UNKNOWN}
    )


def test_topics_that_are_gone_are_not_taken_for_never_read() -> None:
    request = m.OffsetFetchRequest(group_id="g", partitions=frozenset({HERE, GONE}))
    sent, whole = sent_by_name(request, IMAGE)
    assert sent == m.OffsetFetchRequest(group_id="g", partitions=frozenset({HERE}))
    found = whole(fetch_answer(offsets={HERE: m.OffsetAndMetadata(5)}))
    assert isinstance(found, m.OffsetFetchResponse)
    assert found == fetch_answer({HERE: m.OffsetAndMetadata(5)}, {GONE: UNKNOWN})


def test_other_requests_name_no_topics() -> None:
    request = m.DescribeGroupRequest(group_id="g")
    sent, whole = sent_by_name(request, IMAGE)
    assert sent is request
    assert whole(m.DescribeGroupResponse()) == m.DescribeGroupResponse()
