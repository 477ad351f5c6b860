"""What heartbeats make of a group's subscriptions, by names, by patterns, by votes."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import patterns
from spark_groups.lab.coordinator.effects import TimerKey, TimerKind
from spark_groups.lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_3,
    KAFKA_4_4,
    KIP_848,
    Profile,
)
from spark_groups.types import NO_PARTITIONS
from tests.lab.coordinator.driving import JOIN, Driven, bar, foo, record_types

REGEX = TimerKey(TimerKind.REGEX, "g")


def look_up(driven: Driven) -> None:
    """Let the lookup happen that a heartbeat asked for."""
    timer = driven.timers.pop(REGEX)
    driven.take(patterns.fired(driven.group, timer, driven.profile, driven.around))


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3, KIP_848])
def test_a_pattern_that_is_new_waits_for_its_lookup(profile: Profile) -> None:
    driven = Driven(profile)
    joined = driven.send("m1", 0, **JOIN, subscribed_topic_regex="fo.*")
    assert (joined.member_epoch, joined.assignment) == (1, NO_PARTITIONS)
    look_up(driven)
    told = driven.beat("m1")
    assert (told.member_epoch, told.assignment) == (2, foo(0, 1, 2, 3, 4, 5))


def test_a_pattern_that_is_looked_up_already_is_a_target_at_once() -> None:
    driven = Driven()
    driven.send("m1", 0, **JOIN, subscribed_topic_regex="fo.*")
    look_up(driven)
    driven.beat("m1")
    outcome = driven.decide("m2", 0, **JOIN, subscribed_topic_regex="fo.*")
    assert record_types(outcome) == [5, 3, 7, 7, 6, 8]
    assert REGEX not in driven.timers


def test_a_pattern_that_is_no_expression() -> None:
    answer = Driven().send("m1", 0, **JOIN, subscribed_topic_regex="foo[")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def settled_by_pattern(profile: Profile) -> Driven:
    """Return a group of one member that has everything of foo by a pattern, bar by its name."""
    driven = Driven(profile)
    driven.send("m1", 0, **JOIN, subscribed_topic_names=("bar",), subscribed_topic_regex="fo.*")
    look_up(driven)
    driven.beat("m1")
    assert driven.member("m1").assignment == foo(*range(6)) | bar(*range(4))
    return driven


@pytest.mark.parametrize(
    ("profile", "types", "is_revoked"),
    [(KAFKA_4_0, [5, -16], False), (KAFKA_4_1, [5, -16, 3, 7, 6, 8], True)],
)
def test_a_pattern_that_is_given_up(profile: Profile, types: list[int], is_revoked: bool) -> None:
    """Kafka 4.0 forgets the pattern and leaves the member what it has, also later."""
    driven = settled_by_pattern(profile)
    epoch = driven.group.group_epoch
    outcome = driven.decide("m1", driven.member("m1").member_epoch, subscribed_topic_regex="")
    assert record_types(outcome) == types
    assert (outcome.response.assignment == bar(*range(4))) is is_revoked
    assert driven.beat("m1", topic_partitions=bar(*range(4))).error_code == 0
    assert driven.group.group_epoch == epoch + is_revoked


def test_another_pattern_takes_the_partitions_of_the_old_one_at_once() -> None:
    driven = settled_by_pattern(KAFKA_4_3)
    driven.now += 60
    outcome = driven.decide("m1", driven.member("m1").member_epoch, subscribed_topic_regex="fo+")
    assert record_types(outcome) == [5, -16, 8]
    assert outcome.response.assignment == bar(*range(4))
    look_up(driven)
    driven.beat("m1", topic_partitions=bar(*range(4)))
    assert driven.member("m1").assignment == foo(*range(6)) | bar(*range(4))


@pytest.mark.parametrize(
    ("profile", "types"),
    [(KAFKA_4_3, [5]), (KAFKA_4_4, [5, 3, 6, 8]), (KIP_848, [5, 3, 6, 8])],
)
def test_another_assignor_is_another_epoch_from_4_4_on(profile: Profile, types: list[int]) -> None:
    driven = Driven(profile)
    driven.join("m1", "foo")
    epoch = driven.member("m1").member_epoch
    assert record_types(driven.decide("m1", epoch, server_assignor="uniform")) == [5]
    assert record_types(driven.decide("m1", epoch, server_assignor="range")) == types


@pytest.mark.parametrize(
    ("profile", "bumps"),
    [(KAFKA_4_3, [0, 0, 0]), (KAFKA_4_4, [0, 1, 1]), (KIP_848, [0, 0, 0])],
)
def test_of_two_assignors_with_as_many_votes_4_4_finds_another_one_again_and_again(
    profile: Profile, bumps: list[int]
) -> None:
    driven = Driven(profile)
    driven.join("m1", "foo", server_assignor="uniform")
    driven.join("m2", "foo", server_assignor="range")
    seen = []
    for name in ("m1", "m2", "m2"):
        before = driven.group.group_epoch
        driven.beat(name)
        seen.append(driven.group.group_epoch - before)
    assert seen == bumps


@pytest.mark.parametrize(
    "fields", [{"rack_id": "r"}, {"rebalance_timeout_ms": 1}], ids=["rack", "time-out"]
)
def test_what_no_assignor_looks_at_is_no_new_epoch(fields: dict[str, Any]) -> None:
    driven = Driven(KAFKA_4_4)
    driven.join("m1", "foo")
    assert record_types(driven.decide("m1", 2, **fields)) == [5]


def test_topics_are_compared_once_for_each_change_of_them() -> None:
    driven = Driven()
    driven.join("m1", "foo")
    assert driven.decide("m1", 2).topics_version is None
    driven.group.topics_version = -1
    outcome = driven.decide("m1", 2)
    assert (outcome.topics_version, outcome.records) == (driven.topics.version, ())
