"""Which target a heartbeat's member is given, and when it is computed."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.lab.coordinator import patterns
from spark_groups.lab.coordinator.group import GroupState
from spark_groups.lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_2,
    KAFKA_4_3,
    KAFKA_4_4,
    Profile,
)
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.types import NO_PARTITIONS
from tests.lab.coordinator.driving import AT_ONCE, JOIN, Driven, bar, foo

EVERY_2_S = Settings(by_group={"g": {"consumer.assignment.interval.ms": "2000"}})


@pytest.mark.parametrize(
    ("profile", "settings", "waited_s", "is_computed"),
    [
        (KAFKA_4_3, Settings(), 0.0, False),
        (KAFKA_4_3, Settings(), 0.999, False),
        (KAFKA_4_3, Settings(), 1.0, True),
        (KAFKA_4_3, EVERY_2_S, 1.999, False),
        (KAFKA_4_3, EVERY_2_S, 2.0, True),
        (KAFKA_4_3, AT_ONCE, 0.0, True),
        (KAFKA_4_2, Settings(), 0.0, True),
    ],
)
def test_a_target_is_not_computed_again_within_the_interval(
    profile: Profile, settings: Settings, waited_s: float, is_computed: bool
) -> None:
    driven = Driven(profile, settings=settings)
    first = driven.join("m1", "foo").member_epoch
    driven.now += waited_s
    assert driven.join("m2", "foo").member_epoch == first + is_computed
    assert (driven.group.state is GroupState.ASSIGNING) is not is_computed


@pytest.mark.parametrize(
    "first",
    [{"subscribed_topic_names": ()}, {"subscribed_topic_regex": "nothing.*"}],
    ids=["no topic", "a pattern"],
)
@pytest.mark.parametrize("stays", [True, False])
def test_a_first_member_without_a_topic_sets_no_interval_off(
    first: dict[str, Any], stays: bool
) -> None:
    driven = Driven(settings=Settings())
    assert driven.send("m1", 0, **JOIN, **first).member_epoch == 1
    assert driven.group.state is GroupState.STABLE
    if not stays:
        driven.send("m1", -1)
    joined = driven.join("m2", "foo")
    assert joined.member_epoch == driven.group.group_epoch
    assert joined.assignment == foo(0, 1, 2, 3, 4, 5)
    assert driven.join("m3", "foo").assignment == NO_PARTITIONS
    assert driven.group.state is GroupState.ASSIGNING


def test_a_member_that_subscribes_later_has_its_first_target_at_once() -> None:
    driven = Driven(settings=Settings())
    driven.join("m1")
    assert driven.beat("m1", subscribed_topic_names=("foo",)).member_epoch == 2
    driven.now += 0.5
    assert driven.beat("m1", subscribed_topic_names=("foo", "bar")).member_epoch == 2
    assert driven.group.state is GroupState.ASSIGNING


@pytest.mark.parametrize(("profile", "waits"), [(KAFKA_4_3, True), (KAFKA_4_4, False)])
def test_after_the_last_member_the_interval_goes_on_until_4_3(
    profile: Profile, waits: bool
) -> None:
    driven = Driven(profile, settings=Settings())
    driven.join("m1", "foo")
    driven.send("m1", -1)
    assert (driven.join("m2", "foo").assignment == NO_PARTITIONS) is waits


def test_who_joins_within_the_interval_waits_at_the_epoch_of_the_last_target() -> None:
    driven = Driven(settings=Settings())
    driven.join("m1", "foo")
    joined = driven.join("m2", "foo")
    assert (joined.member_epoch, joined.assignment) == (2, NO_PARTITIONS)
    assert driven.beat("m1").assignment is None
    driven.now += 1.0
    assert driven.beat("m1").assignment == foo(0, 1, 2)
    driven.beat("m1", topic_partitions=foo(0, 1, 2))
    assert driven.beat("m2").assignment == foo(3, 4, 5)


def test_a_successor_has_the_target_of_the_one_before() -> None:
    driven = Driven(settings=Settings())
    driven.join("m1", "foo", instance_id="i1")
    driven.send("m1", -2, instance_id="i1")
    assert driven.join("m2", "foo", instance_id="i1").assignment == foo(0, 1, 2, 3, 4, 5)
    driven.now += 5.0
    assert driven.beat("m2", instance_id="i1").assignment is None


def test_who_only_now_names_an_instance_id_has_no_target_until_the_next_one() -> None:
    """Kafka looks a static member's target up by its instance id, which nobody had."""
    driven = Driven(settings=Settings())
    driven.join("m1", "foo")
    driven.now += 5.0
    driven.join("m2", "foo")
    told = driven.join("m1", "foo", instance_id="i1")
    assert told.assignment == NO_PARTITIONS


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3])
def test_who_takes_an_instance_id_that_was_given_up_has_the_target_of_that_member(
    profile: Profile,
) -> None:
    driven = Driven(profile)
    everything = foo(0, 1, 2, 3, 4, 5)
    driven.join("m1", "foo", instance_id="i2")
    driven.join("m1", "foo", instance_id="i4")
    driven.send("m1", -2, instance_id="i4")
    taken = driven.join("m2", "foo", instance_id="i2")
    assert taken.assignment == everything
    # Another topic is another target: the assignor, too, takes it for the one before.
    told = driven.beat("m2", instance_id="i2", subscribed_topic_names=("foo", "bar"))
    assert told.assignment == everything | bar(0, 1, 2, 3)
    assert driven.group.state is GroupState.STABLE


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3, KAFKA_4_4])
def test_what_a_member_had_that_takes_anothers_place_is_nobodys_until_the_next_target(
    profile: Profile,
) -> None:
    driven = Driven(profile)
    driven.join("m1", instance_id="i1")
    driven.send("m1", -2, instance_id="i1")
    assert driven.join("m2", "foo").assignment == foo(0, 1, 2, 3, 4, 5)
    assert driven.join("m2", "foo", instance_id="i1").assignment == NO_PARTITIONS
    assert driven.group.state is GroupState.STABLE
    assert driven.beat("m2", instance_id="i1").assignment is None
    joined = driven.join("m3", "foo")
    assert joined.assignment
    told = driven.beat("m2", instance_id="i1", topic_partitions=NO_PARTITIONS)
    assert told.assignment == foo(0, 1, 2, 3, 4, 5) - joined.assignment


@pytest.mark.parametrize(("profile", "is_written"), [(KAFKA_4_3, False), (KAFKA_4_4, True)])
def test_target_of_who_takes_a_place_is_compared_with_that_of_the_place_from_4_4_on(
    profile: Profile, is_written: bool
) -> None:
    """Before, its own old target is the same, and what the place had stays written."""
    driven = Driven(profile)
    driven.join("m1", instance_id="i1")
    driven.send("m1", -2, instance_id="i1")
    driven.join("m2", "bar")
    driven.join("m3", "foo")
    everything = foo(0, 1, 2, 3, 4, 5)
    assert driven.group.targets["m3"].partitions == everything
    driven.join("m3", "foo", instance_id="i1")
    written = driven.group.targets["m3"].partitions
    assert written == (everything if is_written else NO_PARTITIONS)


def test_whether_all_subscribe_alike_is_not_looked_at_when_only_a_pattern_goes() -> None:
    driven = Driven()
    driven.join("m1", "foo", subscribed_topic_regex="ba.*")
    driven.take(patterns.look_up(driven.group, driven.profile, driven.around))
    driven.join("m2", "foo")
    # The pattern goes after its last member.
    driven.fence("m1")
    driven.join("m3")
    assert driven.group.state is not GroupState.ASSIGNING
    assert driven.group.targets["m2"].partitions == foo(0, 1, 2, 3, 4, 5)


def test_group_remembers_how_many_members_it_had() -> None:
    driven = Driven()
    for member_id in ("m1", "m2", "m3"):
        driven.join(member_id, "foo")
    driven.fence("m1", "m2")
    assert (len(driven.group.members), driven.group.most_members) == (1, 3)
