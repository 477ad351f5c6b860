"""What a heartbeat must look like, with the sentences that Kafka answers otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import validation
from spark_groups.lab.coordinator.profile import KAFKA_4_3, KIP_848, Profile
from spark_groups.lab.coordinator.refusal import RefusedError
from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.types import NO_PARTITIONS
from tests.lab.coordinator.driving import Driven, foo

JOIN = HeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=30_000,
    subscribed_topic_names=("foo",),
    topic_partitions=NO_PARTITIONS,
)
REGULAR = HeartbeatRequest(group_id="g", member_id="m", member_epoch=4)
LEAVE = replace(REGULAR, member_epoch=-1)
STATIC_LEAVE = replace(REGULAR, member_epoch=-2, instance_id="i")

FAULTS = [
    (replace(JOIN, member_id=""), "MemberId can't be empty."),
    (replace(REGULAR, member_id=""), "MemberId can't be empty."),
    (replace(LEAVE, member_id=""), "MemberId can't be empty."),
    (replace(STATIC_LEAVE, member_id=""), "MemberId can't be empty."),
    (replace(JOIN, group_id=""), "GroupId can't be empty."),
    (replace(JOIN, instance_id=""), "InstanceId can't be empty."),
    (replace(JOIN, rack_id=""), "RackId can't be empty."),
    (replace(JOIN, instance_id=" \t"), "InstanceId can't be empty."),
    (replace(REGULAR, member_id=" "), "MemberId can't be empty."),
    (replace(JOIN, rebalance_timeout_ms=-1), "RebalanceTimeoutMs must be provided in first"),
    (replace(JOIN, topic_partitions=None), "TopicPartitions must be empty when (re-)joining."),
    (replace(JOIN, topic_partitions=foo(1)), "TopicPartitions must be empty when (re-)joining."),
    (
        replace(JOIN, subscribed_topic_names=None),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (replace(STATIC_LEAVE, instance_id=None), "InstanceId can't be null."),
    (replace(REGULAR, member_epoch=-3), "MemberEpoch is invalid."),
]


def check(request: HeartbeatRequest, profile: Profile = KAFKA_4_3, api_version: int = 1) -> None:
    validation.check(request, profile, Driven(api_version=api_version).around)


@pytest.mark.parametrize(("request_", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_rule_that_is_broken(request_: HeartbeatRequest, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check(request_)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert (refused.value.message or "").startswith(message)


@pytest.mark.parametrize(
    "request_",
    [
        JOIN,
        REGULAR,
        LEAVE,
        STATIC_LEAVE,
        replace(JOIN, subscribed_topic_names=()),
        replace(JOIN, subscribed_topic_names=None, subscribed_topic_regex=""),
        replace(JOIN, server_assignor="range"),
        replace(REGULAR, topic_partitions=foo(1)),
    ],
)
def test_what_is_taken(request_: HeartbeatRequest) -> None:
    check(request_)
    with pytest.raises(RefusedError, match="GroupId"):
        check(replace(request_, group_id=""))


def test_the_first_rule_that_is_broken_counts() -> None:
    broken = replace(JOIN, group_id="", rack_id="", server_assignor="none")
    with pytest.raises(RefusedError, match="GroupId"):
        check(broken)
    with pytest.raises(RefusedError, match="MemberId"):
        check(replace(broken, member_id=""))


def test_an_assignor_that_is_not_there() -> None:
    with pytest.raises(RefusedError) as refused:
        check(replace(JOIN, server_assignor="nope"))
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.value.message == (
        "ServerAssignor nope is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize(("profile", "api_version"), [(KAFKA_4_3, 0), (KIP_848, 1)])
def test_who_has_no_id_yet_may_join_where_the_coordinator_makes_ids(
    profile: Profile, api_version: int
) -> None:
    check(replace(JOIN, member_id=""), profile, api_version)
    for request in (REGULAR, LEAVE):
        with pytest.raises(RefusedError, match="MemberId"):
            check(replace(request, member_id=""), profile, api_version)
