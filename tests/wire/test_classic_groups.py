"""Descriptions of classic groups: bytes that consumers write, and what real coordinators say."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.types import TopicPartition
from spark_groups.wire.classic_groups import ClassicMember, classic_from_wire
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import describe_classic_group
from spark_groups.wire.schemas.codec import encode
from spark_groups.wire.schemas.messages import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from tests.brokers import create_topic
from tests.observation.test_observe import classic_member

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
