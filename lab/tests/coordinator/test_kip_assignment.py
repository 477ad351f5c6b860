"""What the KIP's coordinator does by itself: KIP-848's case studies wait for no heartbeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_lab.coordinator import heartbeat, subscriptions
from group_lab.coordinator.effects import Outcome, Timer, TimerKey, TimerKind
from group_lab.coordinator.group import GroupState
from group_lab.coordinator.member import ClientAssignor
from group_lab.coordinator.profile import KAFKA_4_4, KIP_848, PROFILES, Profile
from group_lab.coordinator.records import member_metadata
from group_lab.coordinator.settings import BrokerSettings, Settings
from lab.tests.coordinator.driving import JOIN, Driven, bar, foo, record_types, settled_pair

DUE = TimerKey(TimerKind.ASSIGNMENT, "g")


def fired(driven: Driven) -> Outcome[None]:
    timer = driven.timers.pop(DUE, Timer(DUE, driven.now))
    outcome = heartbeat.target_due(driven.group, timer, driven.profile, driven.context)
    driven.take(outcome)
    return outcome


@pytest.fixture
def pair() -> Driven:
    driven = settled_pair(KIP_848)
    assert driven.group.state is GroupState.STABLE
    return driven


def test_member_failure(pair: Driven) -> None:
    pair.fire(TimerKind.SESSION, "m1")
    assert pair.group.state is GroupState.ASSIGNING
    assert record_types(fired(pair)) == [7, 6]
    assert pair.group.state is GroupState.RECONCILING
    assert pair.group.targets["m2"].partitions == foo(0, 1, 2, 3, 4, 5)
    assert fired(pair).records == ()


def test_partition_added(pair: Driven) -> None:
    grown = replace(pair.topics.by_name["foo"], partition_count=7)
    pair.topics = pair.topics.with_topic(grown)
    outcome = subscriptions.topics_changed(pair.group, pair.profile, pair.context)
    assert record_types(outcome) == [4, 3]
    pair.take(outcome)
    assert record_types(fired(pair)) == [7, 6]


def test_after_a_fail_over_metadata_patterns_and_the_target_are_checked() -> None:
    driven = Driven(KIP_848)
    topics = driven.topics
    driven.topics = topics.without("bar")
    driven.send("m1", 0, **JOIN, subscribed_topic_regex=".*")
    driven.topics = topics
    outcome = subscriptions.loaded(driven.group, driven.profile, driven.context)
    assert record_types(outcome) == [16, 4, 3]
    driven.take(outcome)
    assert record_types(fired(driven)) == [7, 6]
    assert driven.group.targets["m1"].partitions == foo(*range(6)) | bar(*range(4))


def test_after_a_fail_over_a_target_that_is_behind_is_computed(pair: Driven) -> None:
    pair.fire(TimerKind.SESSION, "m1")
    pair.timers.clear()
    outcome = subscriptions.loaded(pair.group, pair.profile, pair.context)
    assert outcome.records == ()
    pair.take(outcome)
    assert record_types(fired(pair)) == [7, 6]


@pytest.mark.parametrize("profile", [each for each in PROFILES.values() if each is not KIP_848])
def test_kafka_leaves_all_of_it_to_a_heartbeat(profile: Profile) -> None:
    driven = Driven(profile)
    driven.join("m1", "foo")
    driven.topics = driven.topics.without("foo")
    nothing: Outcome[None] = Outcome(None)
    assert subscriptions.topics_changed(driven.group, profile, driven.context) == nothing
    assert subscriptions.loaded(driven.group, profile, driven.context) == nothing


def test_a_target_that_members_compute_is_not_computed_here(pair: Driven) -> None:
    for member in tuple(pair.group.members.values()):
        own = replace(member, client_assignors=(ClientAssignor("own"),))
        pair.group.apply(member_metadata("g", own))
    pair.fire(TimerKind.SESSION, "m1")
    assert fired(pair).records == ()
    assert pair.group.state is GroupState.ASSIGNING


def test_an_assignor_that_cannot_assign_leaves_it_to_the_next_heartbeat(pair: Driven) -> None:
    pair.beat("m2", server_assignor="range")
    pair.settings = Settings(BrokerSettings(assignors=("uniform",)))
    pair.fire(TimerKind.SESSION, "m1")
    assert fired(pair).records == ()


def test_an_empty_group_needs_no_target() -> None:
    driven = Driven(KAFKA_4_4)
    driven.join("m1", "foo")
    driven.send("m1", -1)
    assert fired(driven).records == ()
