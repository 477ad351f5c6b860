"""Requests and responses of the group across the wire, in both ways."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.messages import (
    DescribedMember,
    DescribeGroupRequest,
    DescribeGroupResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Node,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicMetadata,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.topic_metadata import ClusterMetadata, KnownTopic, Leader
from spark_groups.wire.translation import (
    TRANSLATIONS,
    assignment_of,
    fetch_all_to_wire,
    fetched_offsets,
)
from tests.answers import fetch_answer

FLIGHTS, PLANES, GONE = (uuid.UUID(int=each) for each in (1, 2, 3))
NAMES = ClusterMetadata(
    topics={
        topic_id: KnownTopic(TopicMetadata(topic_id, name, 2), {0: Leader(1, 0), 1: Leader(1, 0)})
        for topic_id, name in ((FLIGHTS, "flights"), (PLANES, "planes"))
    }
)
MEMBER = {"group_id": "g", "member_id": "m", "member_epoch": 5}
UNKNOWN_TOPIC_ID = ErrorCode.UNKNOWN_TOPIC_ID.value


def sent(request, metadata=None) -> dict:
    """Return what a broker would read."""
    translation = TRANSLATIONS[type(request)]
    message = translation.message if metadata is None else translation.message_by_name
    whole = encode(message.request, translation.to_wire(request, metadata))
    return decode(message.request, whole)


def answered(request, values: dict, metadata=None):
    """Return how a broker's answer is understood."""
    translation = TRANSLATIONS[type(request)]
    message = translation.message if metadata is None else translation.message_by_name
    whole = encode(message.response, {"throttle_time_ms": 0, **values})
    return translation.from_wire(decode(message.response, whole), request, metadata)


def partitions(*indexes: int, topic_id=FLIGHTS) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic_id, index) for index in indexes)


def test_a_first_heartbeat_says_everything() -> None:
    request = HeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=("a", "b"),
        subscribed_topic_regex="a.*",
        server_assignor="range",
        topic_partitions=NO_PARTITIONS,
    )
    assert sent(request) == {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": "i",
        "rack_id": "r",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ("a", "b"),
        "subscribed_topic_regex": "a.*",
        "server_assignor": "range",
        "topic_partitions": (),
    }


def test_a_later_heartbeat_leaves_out_what_did_not_change() -> None:
    values = sent(HeartbeatRequest(**MEMBER))
    assert values["topic_partitions"] is None
    assert values["subscribed_topic_names"] is None
    assert values["rebalance_timeout_ms"] == -1


def test_an_acknowledgement_names_the_owned_partitions() -> None:
    owned = Assignment.of({PLANES: [1, 0], FLIGHTS: [3]})
    assert sent(HeartbeatRequest(**MEMBER, topic_partitions=owned))["topic_partitions"] == (
        {"topic_id": FLIGHTS, "partitions": (3,)},
        {"topic_id": PLANES, "partitions": (0, 1)},
    )


HEARTBEAT_ANSWER = {
    "error_code": 0,
    "error_message": None,
    "member_id": "m",
    "member_epoch": 6,
    "heartbeat_interval_ms": 5000,
    "assignment": None,
}


@pytest.mark.parametrize(
    ("assignment", "understood"),
    [
        (None, None),
        ({"topic_partitions": ()}, NO_PARTITIONS),
        (
            {"topic_partitions": ({"topic_id": FLIGHTS, "partitions": (1, 0)},)},
            Assignment.of({FLIGHTS: [0, 1]}),
        ),
    ],
)
def test_an_unchanged_assignment_is_not_an_empty_one(assignment, understood) -> None:
    answer = answered(HeartbeatRequest(**MEMBER), {**HEARTBEAT_ANSWER, "assignment": assignment})
    assert answer == HeartbeatResponse(
        member_id="m", member_epoch=6, heartbeat_interval_ms=5000, assignment=understood
    )


def test_a_topic_named_twice_in_an_assignment_counts_once() -> None:
    each = {"topic_id": FLIGHTS, "partitions": (1, 1)}
    other = {"topic_id": FLIGHTS, "partitions": (2,)}
    assert assignment_of([each, other]) == Assignment.of({FLIGHTS: [1, 2]})


def test_negative_partition_indexes_are_refused() -> None:
    assignment = {"topic_partitions": ({"topic_id": FLIGHTS, "partitions": (-1,)},)}
    with pytest.raises(ProtocolError, match="negative partition"):
        answered(HeartbeatRequest(**MEMBER), {**HEARTBEAT_ANSWER, "assignment": assignment})


OFFSETS = {
    TopicIdPartition(FLIGHTS, 0): OffsetAndMetadata(10, "2"),
    TopicIdPartition(FLIGHTS, 1): OffsetAndMetadata(20, "2", 4),
    TopicIdPartition(PLANES, 0): OffsetAndMetadata(30),
}
COMMIT = OffsetCommitRequest(**MEMBER, instance_id="i", offsets=OFFSETS)


def test_a_commit_carries_the_epoch_and_topic_ids() -> None:
    values = sent(COMMIT)
    assert values["generation_id_or_member_epoch"] == 5
    assert (values["member_id"], values["group_instance_id"]) == ("m", "i")
    assert [each["topic_id"] for each in values["topics"]] == [FLIGHTS, PLANES]
    assert values["topics"][0]["partitions"][1] == {
        "partition_index": 1,
        "committed_offset": 20,
        "committed_leader_epoch": 4,
        "committed_metadata": "2",
    }


def test_a_commit_by_name_leaves_out_topics_that_are_gone() -> None:
    gone = TopicIdPartition(GONE, 0)
    request = OffsetCommitRequest(**MEMBER, offsets={**OFFSETS, gone: OffsetAndMetadata(1)})
    values = sent(request, NAMES)
    assert [each["name"] for each in values["topics"]] == ["flights", "planes"]
    answer = answered(
        request,
        {
            "topics": (
                {
                    "name": "flights",
                    "partitions": (
                        {"partition_index": 0, "error_code": 0},
                        {"partition_index": 1, "error_code": 113},
                    ),
                },
                {"name": "planes", "partitions": ({"partition_index": 0, "error_code": 0},)},
                {"name": "other", "partitions": ({"partition_index": 0, "error_code": 7},)},
            )
        },
        NAMES,
    )
    codes = [0, 113, 0, UNKNOWN_TOPIC_ID]
    assert answer == OffsetCommitResponse(errors=dict(zip(request.offsets, codes, strict=True)))


def test_a_topic_that_may_not_be_seen_is_not_reported_as_gone() -> None:
    denied = ClusterMetadata(id_errors={GONE: ErrorCode.TOPIC_AUTHORIZATION_FAILED.value})
    request = OffsetCommitRequest(
        **MEMBER, offsets={TopicIdPartition(GONE, 0): OffsetAndMetadata(1)}
    )
    assert sent(request, denied)["topics"] == ()
    assert list(answered(request, {"topics": ()}, denied).errors.values()) == [29]


def test_an_answer_without_a_partition_is_refused() -> None:
    with pytest.raises(ProtocolError, match="3 partitions are missing in the answer"):
        answered(COMMIT, {"topics": ()})


def fetched(index: int, committed: int, error_code: int = 0, metadata: str | None = "") -> dict:
    return {
        "partition_index": index,
        "committed_offset": committed,
        "committed_leader_epoch": -1,
        "metadata": metadata,
        "error_code": error_code,
    }


FETCH = OffsetFetchRequest(**MEMBER, partitions=partitions(0, 1, 2))


def test_a_fetch_is_always_stable_and_fenced() -> None:
    values = sent(FETCH)
    assert values["require_stable"] is True
    (group,) = values["groups"]
    assert (group["group_id"], group["member_id"], group["member_epoch"]) == ("g", "m", 5)
    assert sorted(group["topics"][0]["partition_indexes"]) == [0, 1, 2]


def test_an_error_is_never_no_committed_offset() -> None:
    topic = {
        "topic_id": FLIGHTS,
        "partitions": (fetched(0, 7, metadata=None), fetched(1, -1), fetched(2, -1, 88)),
    }
    group = {"group_id": "g", "topics": (topic,), "error_code": 0}
    first, second, third = sorted(FETCH.partitions)
    assert answered(FETCH, {"groups": (group,)}) == fetch_answer(
        offsets={first: OffsetAndMetadata(7), second: OffsetAndMetadata(-1)}, errors={third: 88}
    )


def test_an_error_of_the_whole_fetch() -> None:
    group = {"group_id": "g", "topics": (), "error_code": 113}
    assert answered(FETCH, {"groups": (group,)}) == OffsetFetchResponse(error_code=113)


def test_a_fetch_by_name() -> None:
    request = OffsetFetchRequest(**MEMBER, partitions=partitions(0) | partitions(1, topic_id=GONE))
    assert [each["name"] for each in sent(request, NAMES)["groups"][0]["topics"]] == ["flights"]
    topic = {"name": "flights", "partitions": (fetched(0, 7), fetched(9, 1))}
    group = {"group_id": "g", "topics": (topic,), "error_code": 0}
    assert answered(request, {"groups": (group,)}, NAMES) == fetch_answer(
        offsets={TopicIdPartition(FLIGHTS, 0): OffsetAndMetadata(7)},
        errors={TopicIdPartition(GONE, 1): UNKNOWN_TOPIC_ID},
    )


@pytest.mark.parametrize(
    "groups",
    [
        (),
        ({"group_id": "other", "topics": (), "error_code": 0},),
        ({"group_id": "g", "topics": (), "error_code": 0},) * 2,
        ({"group_id": "g", "topics": (), "error_code": 0},),
    ],
)
def test_a_fetch_that_answers_something_else_is_refused(groups) -> None:
    with pytest.raises(ProtocolError, match=r"not about 'g'|missing in the answer"):
        answered(FETCH, {"groups": groups})


def test_all_offsets_are_fetched_without_a_member() -> None:
    (group,) = fetch_all_to_wire("g")["groups"]
    assert group == {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
    topics = [{"name": "flights", "partitions": (fetched(0, 3),)}, {"name": "x", "partitions": ()}]
    answer = fetched_offsets(topics, NAMES)
    assert answer == {TopicIdPartition(FLIGHTS, 0): OffsetAndMetadata(3)}


def test_a_coordinator_or_why_there_is_none() -> None:
    request = FindCoordinatorRequest(group_id="g")
    assert sent(request) == {"key_type": 0, "coordinator_keys": ("g",)}
    found = {"key": "g", "node_id": 3, "host": "h", "port": 9, "error_code": 0}
    assert answered(
        request, {"coordinators": ({**found, "error_message": None},)}
    ) == FindCoordinatorResponse(coordinator=Node(3, "h", 9))
    refused = {**found, "node_id": -1, "error_code": 15, "error_message": "not yet"}
    assert answered(request, {"coordinators": (refused,)}) == FindCoordinatorResponse(
        error_code=15, error_message="not yet"
    )


def test_a_described_group() -> None:
    def assignment(*indexes: int) -> dict:
        topic = {"topic_id": FLIGHTS, "topic_name": "flights", "partitions": indexes}
        return {"topic_partitions": (topic,)}

    member = {
        "member_id": "m",
        "instance_id": None,
        "rack_id": "r",
        "member_epoch": 5,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": ("flights",),
        "subscribed_topic_regex": None,
        "assignment": assignment(0),
        "target_assignment": assignment(0, 1),
        "member_type": 1,
    }
    group = {
        "error_code": 0,
        "error_message": None,
        "group_id": "g",
        "group_state": "Reconciling",
        "group_epoch": 6,
        "assignment_epoch": 6,
        "assignor_name": "uniform",
        "members": (member,),
        "authorized_operations": -(2**31),
    }
    request = DescribeGroupRequest(group_id="g")
    assert sent(request) == {"group_ids": ("g",), "include_authorized_operations": False}
    asking = DescribeGroupRequest(group_id="g", include_authorized_operations=True)
    assert sent(asking) == {"group_ids": ("g",), "include_authorized_operations": True}
    assert answered(request, {"groups": (group,)}) == DescribeGroupResponse(
        group_id="g",
        group_state="Reconciling",
        group_epoch=6,
        assignment_epoch=6,
        assignor_name="uniform",
        members=(
            DescribedMember(
                member_id="m",
                rack_id="r",
                member_epoch=5,
                client_id="c",
                client_host="/127.0.0.1",
                member_type=1,
                subscribed_topic_names=("flights",),
                assignment=Assignment.of({FLIGHTS: [0]}),
                target_assignment=Assignment.of({FLIGHTS: [0, 1]}),
            ),
        ),
        topic_names={FLIGHTS: "flights"},
    )
