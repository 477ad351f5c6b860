"""LeaveGroup across the wire, and what real coordinators do about it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.protocol.messages import DescribeGroupRequest, HeartbeatRequest
from spark_groups.types import NO_PARTITIONS, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import describe_classic_group, leave_group
from spark_groups.wire.groups import (
    ClassicMember,
    LeaveGroupResponse,
    MemberIdentity,
    classic_from_wire,
    leave_from_wire,
    leave_to_wire,
)
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.messages import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    LEAVE_GROUP,
)
from tests.brokers import create_topic
from tests.observation.test_observe import classic_member
from tests.runtime.members import heartbeat
from tests.waiting import wait_until
from tests.wire.test_coordinator import coordinator


def test_members_are_named_by_member_id_instance_id_or_both() -> None:
    members = [
        MemberIdentity(member_id="m"),
        MemberIdentity(instance_id="i"),
        MemberIdentity(member_id="n", instance_id="j"),
    ]
    values = leave_to_wire("g", members, "why")
    sent = decode(LEAVE_GROUP.request, encode(LEAVE_GROUP.request, values))
    assert sent["group_id"] == "g"
    assert sent["members"] == (
        {"member_id": "m", "group_instance_id": None, "reason": "why"},
        {"member_id": "", "group_instance_id": "i", "reason": "why"},
        {"member_id": "n", "group_instance_id": "j", "reason": "why"},
    )


def test_the_answer_has_a_code_for_each_member() -> None:
    members = [
        {"member_id": "m", "group_instance_id": None, "error_code": code} for code in (0, 25)
    ]
    answer = leave_from_wire({"error_code": 0, "members": members})
    assert answer == LeaveGroupResponse(member_error_codes=(0, 25))
    assert leave_from_wire({"error_code": 16, "members": ()}).error_code == 16


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
            MemberIdentity(member_id="nobody"): ErrorCode.UNKNOWN_MEMBER_ID,
        }
        answer = leave_group(cluster, group_id, list(asked), "removed by a test")
        assert answer == LeaveGroupResponse(member_error_codes=tuple(asked.values()))
        described = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
        assert [each.member_id for each in described.members] == ["kept"]
        leave_group(cluster, group_id, [MemberIdentity(instance_id="gate-3")], "")


def join(servers: str, group_id: str, topic: str, member_id: str, instance_id: str | None) -> None:
    request = HeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        instance_id=instance_id,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=(topic,),
        topic_partitions=NO_PARTITIONS,
    )
    wait_until(
        lambda: heartbeat(servers, request).error_code == ErrorCode.NONE,
        what=f"{member_id} in the group",
    )


SUBSCRIPTION = encode(
    CONSUMER_PROTOCOL_SUBSCRIPTION, {"version": 3, "topics": ("flights", "orders")}
)
ASSIGNMENT = encode(
    CONSUMER_PROTOCOL_ASSIGNMENT,
    {"version": 3, "assigned_partitions": ({"topic": "flights", "partitions": (0, 2)},)},
)


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


def test_subscription_and_assignment_are_read_with_whatever_follows_them() -> None:
    group = classic_from_wire(answer(SUBSCRIPTION + b"\x00" * 9, ASSIGNMENT + b"\xff" * 4), "g")
    assert (group.group_state, group.assignor_name) == ("Stable", "range")
    assert group.authorized_operations == 1 << 8
    assert group.members == (
        ClassicMember(
            member_id="m",
            instance_id="gate-1",
            client_id="app",
            client_host="/10.0.0.1",
            subscribed_topic_names=("flights", "orders"),
            assignment=(TopicPartition("flights", 0), TopicPartition("flights", 2)),
        ),
    )


@pytest.mark.parametrize(
    ("metadata", "assignment", "protocol_type"),
    [
        (b"", b"", "consumer"),
        (SUBSCRIPTION[:5], ASSIGNMENT[:7], "consumer"),
        (SUBSCRIPTION, ASSIGNMENT, "connect"),
    ],
)
def test_bytes_that_are_not_of_consumers_say_nothing(
    metadata: bytes, assignment: bytes, protocol_type: str
) -> None:
    (member,) = classic_from_wire(answer(metadata, assignment, protocol_type), "g").members
    assert (member.subscribed_topic_names, member.assignment) == ((), ())


def test_an_answer_about_another_group_is_refused() -> None:
    with pytest.raises(ProtocolError, match="asked was for 'h'"):
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
