"""What an operator asks of coordinators, across the wire and of real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.types import TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import (
    ClassicMember,
    LeaveGroupResponse,
    MemberIdentity,
    classic_from_wire,
    commit_outside,
    delete_group,
    delete_offsets,
    describe_classic_group,
    leave_group,
)
from spark_groups.wire.schemas.codec import decode, encode
from tests.observation.observe_setup import classic_member
from tests.runtime.members import queries
from tests.wire.coordinator_connection_setup import coordinator, topic_id
from tests.wire.group_admin_setup import join
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until


def answered_with(values: dict[str, Any], sent: list[Any]) -> Any:
    """Return a cluster whose coordinator gives one answer, and notes each request."""

    def request(message: Any, asked: Any, timeout_s: float) -> Any:
        sent.append(decode(message.request, encode(message.request, asked)))
        return decode(message.response, encode(message.response, values))

    connection = SimpleNamespace(request=request)
    return SimpleNamespace(at_coordinator=lambda _, __, ask: ask(connection, 1.0))


def test_members_are_named_by_member_id_instance_id_or_both() -> None:
    members = [
        MemberIdentity(member_id="m"),
        MemberIdentity(instance_id="i"),
        MemberIdentity(member_id="n", instance_id="j"),
    ]
    codes = (0, 25, 82)
    values = {
        "throttle_time_ms": 0,
        "error_code": 0,
        "members": [
            {"member_id": "m", "group_instance_id": None, "error_code": code} for code in codes
        ],
    }
    sent: list[Any] = []
    answer = leave_group(answered_with(values, sent), "g", members, "why")
    assert answer == LeaveGroupResponse(member_error_codes=codes)
    (request,) = sent
    assert request["group_id"] == "g"
    assert request["members"] == (
        {"member_id": "m", "group_instance_id": None, "reason": "why"},
        {"member_id": "", "group_instance_id": "i", "reason": "why"},
        {"member_id": "n", "group_instance_id": "j", "reason": "why"},
    )
    refused = answered_with({"throttle_time_ms": 0, "error_code": 16, "members": ()}, sent)
    assert leave_group(refused, "g", members, "why").error_code == 16


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("version", ["4.0.0", "4.3.1", "4.4.0"])
def test_a_coordinator_removes_members_of_every_kind(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name)
    ids = {"dynamic": None, "first": "gate-1", "second": "gate-2", "kept": "gate-3"}
    with Cluster(servers) as cluster:
        coordinator(cluster, group_id)
        for member_id, instance_id in ids.items():
            join(servers, group_id, topic_name, member_id, instance_id)
        asked = {
            MemberIdentity(member_id="dynamic"): ErrorCode.NONE,
            MemberIdentity(instance_id="gate-1"): ErrorCode.NONE,
            MemberIdentity(member_id="second", instance_id="gate-2"): ErrorCode.NONE,
            MemberIdentity(member_id="other", instance_id="gate-3"): ErrorCode.FENCED_INSTANCE_ID,
            MemberIdentity(instance_id="gate-4"): ErrorCode.UNKNOWN_MEMBER_ID,
            MemberIdentity(member_id="unknown"): ErrorCode.UNKNOWN_MEMBER_ID,
        }
        answer = leave_group(cluster, group_id, list(asked), "removed by a test")
        assert answer == LeaveGroupResponse(member_error_codes=tuple(asked.values()))
        described = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
        assert [each.member_id for each in described.members] == ["kept"]
        leave_group(cluster, group_id, [MemberIdentity(instance_id="gate-3")], "")


SUBSCRIBED = Subscription(topics=("flights", "orders"), user_data=b"u", rack_id="r", version=3)
ASSIGNED = EmbeddedAssignment(
    partitions=frozenset({TopicPartition("flights", 0), TopicPartition("flights", 2)}), version=1
)
SUBSCRIPTION, ASSIGNMENT = encode_subscription(SUBSCRIBED), encode_assignment(ASSIGNED)


def answer(metadata: bytes, assignment: bytes, protocol_type: str = "consumer") -> dict[str, Any]:
    member = {
        "member_id": "m",
        "group_instance_id": "gate-1",
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "member_metadata": metadata,
        "member_assignment": assignment,
    }
    group = {
        "error_code": 0,
        "error_message": None,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": protocol_type,
        "protocol_data": "range",
        "members": (member,),
        "authorized_operations": 1 << 8,
    }
    return {"groups": (group,)}


def test_subscription_and_assignment_are_read_with_trailing_bytes() -> None:
    group = classic_from_wire(answer(SUBSCRIPTION + b"\x00" * 9, ASSIGNMENT + b"\xff" * 4), "g")
    (member,) = group.members
    assert (group.group_state, group.assignor_name) == ("Stable", "range")
    assert group.authorized_operations == 1 << 8
    assert member == ClassicMember(
        member_id="m",
        instance_id="gate-1",
        client_id="app",
        client_host="/10.0.0.1",
        subscription=SUBSCRIBED,
        embedded_assignment=ASSIGNED,
    )
    assert member.subscribed_topic_names == ("flights", "orders")
    assert member.assignment == (TopicPartition("flights", 0), TopicPartition("flights", 2))


@pytest.mark.parametrize(
    ("metadata", "assignment", "protocol_type"),
    [
        (b"", b"", "consumer"),
        (SUBSCRIPTION[:-1], ASSIGNMENT[:-1], "consumer"),
        (SUBSCRIPTION, ASSIGNMENT, "connect"),
    ],
)
def test_bytes_that_are_not_of_consumers_say_nothing(
    metadata: bytes, assignment: bytes, protocol_type: str
) -> None:
    (member,) = classic_from_wire(answer(metadata, assignment, protocol_type), "g").members
    assert (member.subscribed_topic_names, member.assignment) == ((), ())


def test_an_answer_about_another_group_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not about 'h'"):
        classic_from_wire(answer(b"", b""), "h")


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_a_real_classic_group_is_described(kafka_version, version, topic_name, group_id) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name, 2)
    with Cluster(servers) as cluster:
        missing = describe_classic_group(cluster, group_id)
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        with classic_member(servers, group_id, topic_name):
            group = describe_classic_group(cluster, group_id)
    (member,) = group.members
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert group.assignor_name == "range"
    assert member.subscribed_topic_names == (topic_name,)
    assert member.assignment == (TopicPartition(topic_name, 0), TopicPartition(topic_name, 1))


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_offsets_of_a_group_without_members_are_set_and_deleted(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name, 2)
    with Cluster(servers) as cluster:
        keys = [TopicIdPartition(topic_id(cluster, topic_name), each) for each in range(2)]
        # The group does not exist: a commit from outside makes it.
        done = commit_outside(cluster, group_id, {keys[0]: 5, keys[1]: 7})
        assert (done.error_code, done.errors) == (0, dict.fromkeys(keys, 0))
        committed = cluster.fetch_all_offsets(group_id)
        assert {key: each.committed_offset for key, each in committed.items()} == {
            keys[0]: 5,
            keys[1]: 7,
        }
        named = TopicPartition(topic_name, 0)
        deleted = delete_offsets(cluster, group_id, [named])
        assert (deleted.error_code, deleted.errors) == (0, {named: 0})
        assert set(cluster.fetch_all_offsets(group_id)) == {keys[1]}
        assert delete_group(cluster, group_id).error_code == ErrorCode.NONE
        assert delete_group(cluster, group_id).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        gone = delete_offsets(cluster, group_id, [named])
        assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_a_group_with_members_refuses_all_of_it(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name)
    named = TopicPartition(topic_name, 0)
    with queries(servers, group_id, topic_name) as start, Cluster(servers) as cluster:
        query = start()
        wait_until(lambda: (query.run(), query.assigned)[1], what="an assignment")
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        refused = commit_outside(cluster, group_id, {key: 5})
        assert refused.errors == {key: ErrorCode.UNKNOWN_MEMBER_ID}
        assert delete_group(cluster, group_id).error_code == ErrorCode.NON_EMPTY_GROUP
        answer = delete_offsets(cluster, group_id, [named])
        assert answer.errors == {named: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
