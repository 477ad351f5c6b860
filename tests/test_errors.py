"""The error table: complete, true to Kafka's numbers, and never silent."""

from __future__ import annotations

import inspect

import pytest
from confluent_kafka import KafkaError

from spark_groups import errors
from spark_groups.errors import (
    REPORT_IT,
    UNKNOWN_RULE,
    ErrorCode,
    Reaction,
    SparkGroupsError,
    is_graver,
    rule_for,
)

EXCEPTIONS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, SparkGroupsError)
]


@pytest.mark.parametrize("code", [code for code in ErrorCode if code >= 0])
def test_code_has_the_number_that_librdkafka_knows_it_by(code: ErrorCode) -> None:
    name = KafkaError(int(code)).name()
    # librdkafka keeps a few names that Kafka has changed since: `Errors.java` is the source.
    renamed = {
        "NO_ERROR": "NONE",
        "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert renamed.get(name, name) == code.name


@pytest.mark.parametrize("code", [-2, 32_000])
def test_unknown_code_fails_and_is_named(code: int) -> None:
    assert rule_for(code) is UNKNOWN_RULE
    assert UNKNOWN_RULE.heartbeat is Reaction.FAIL
    assert UNKNOWN_RULE.remedy
    assert ErrorCode.name_of(code) == f"error {code}"


def test_every_error_code_has_a_remedy() -> None:
    assert all(rule_for(code).remedy for code in ErrorCode)
    assert rule_for(ErrorCode.LEADER_NOT_AVAILABLE).heartbeat is Reaction.FAIL
    assert rule_for(ErrorCode.LEADER_NOT_AVAILABLE).remedy == REPORT_IT


def test_success_is_the_only_code_that_is_accepted() -> None:
    for code in ErrorCode:
        rule = rule_for(code)
        reactions = {rule.heartbeat, rule.offsets, rule.lookup}
        assert (Reaction.ACCEPT in reactions) == (code is ErrorCode.NONE), code


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Reaction.REJOIN_NEW_ID),
        (ErrorCode.FENCED_MEMBER_EPOCH, Reaction.REJOIN_SAME_ID),
        (ErrorCode.UNRELEASED_INSTANCE_ID, Reaction.AWAIT_INSTANCE),
        (ErrorCode.NOT_COORDINATOR, Reaction.REDISCOVER),
    ],
)
def test_heartbeat_error_has_its_reaction(code: ErrorCode, reaction: Reaction) -> None:
    assert rule_for(code).heartbeat is reaction


def test_stale_commit_waits_for_the_newer_epoch() -> None:
    assert rule_for(ErrorCode.STALE_MEMBER_EPOCH).offsets is Reaction.REFRESH_EPOCH


def test_the_member_fails_only_where_nothing_else_helps() -> None:
    assert is_graver(Reaction.FAIL, Reaction.REJOIN_NEW_ID)
    assert not is_graver(Reaction.RETRY, Reaction.RETRY)
