"""Which target a heartbeat's member is given, and when it is computed."""

from __future__ import annotations

import pytest

from spark_groups.coordinator.group import GroupState
from spark_groups.coordinator.profile import KAFKA_4_2, KAFKA_4_3, Profile
from spark_groups.coordinator.settings import Settings
from spark_groups.types import NO_PARTITIONS
from tests.coordinator.driving import AT_ONCE, Driven, foo

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
