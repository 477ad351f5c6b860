"""When the epoch of a group grows, and what that writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groups.lab.coordinator import group_epoch
from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.effects import Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import KAFKA_4_0, KAFKA_4_1, KAFKA_4_3, KIP_848, Profile
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage
from tests.lab.coordinator.driving import BAR, FOO, TOPICS, Driven

FOO_SUBSCRIBER = GroupMember(member_id="m", subscribed_topic_names=frozenset({"foo", "missing"}))
BY_PATTERN = GroupMember(member_id="m", subscribed_topic_regex="b.*")
RESOLVED = {"b.*": r.RegularExpressionValue(("bar",), 1, 0.0)}


def compared(
    driven: Driven, member: GroupMember = FOO_SUBSCRIBER, *, bumps: bool = False
) -> group_epoch.GroupEpoch:
    found = group_epoch.compared(
        driven.group, (member,), driven.profile, driven.around, bumps=bumps
    )
    for record in found.records:
        driven.group.apply(record)
    return found


def test_names_are_those_of_members_and_of_patterns_that_are_looked_up() -> None:
    both = replace(FOO_SUBSCRIBER, subscribed_topic_regex="b.*")
    assert group_epoch.subscribed_names((BY_PATTERN, FOO_SUBSCRIBER), RESOLVED) == {
        "foo",
        "missing",
        "bar",
    }
    assert group_epoch.subscribed_names((both,), {}) == {"foo", "missing"}
    assert group_epoch.subscribed_names((), RESOLVED) == {"bar"}
    assert group_epoch.names_of(both, RESOLVED) == {"foo", "missing", "bar"}
    assert group_epoch.names_of(FOO_SUBSCRIBER, RESOLVED) == {"foo", "missing"}
    assert group_epoch.names_of(BY_PATTERN, {}) == set()


@pytest.mark.parametrize(
    ("profile", "types"), [(KAFKA_4_0, [4, 3]), (KAFKA_4_1, [3]), (KIP_848, [4, 3])]
)
def test_other_topics_are_another_epoch(profile: Profile, types: list[int]) -> None:
    driven = Driven(profile)
    first = compared(driven)
    assert [each.key.record_type for each in first.records] == types
    assert first.group_epoch == profile.first_group_epoch + 1
    assert compared(driven) == group_epoch.GroupEpoch(first.group_epoch)
    driven.topics = driven.topics.with_topic(TopicImage(FOO, "foo", 7))
    assert compared(driven).group_epoch == first.group_epoch + 1
    driven.topics = driven.topics.without("foo")
    assert compared(driven).group_epoch == first.group_epoch + 2


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3])
def test_topics_of_nobody_are_none_of_its_business(profile: Profile) -> None:
    driven = Driven(profile)
    compared(driven)
    driven.topics = driven.topics.with_topic(TopicImage(BAR, "bar", 9))
    assert compared(driven).records == ()


def test_it_grows_without_a_difference_where_it_has_to() -> None:
    driven = Driven()
    nothing = compared(driven, GroupMember(member_id="m"))
    assert nothing == group_epoch.GroupEpoch(1)
    forced = compared(driven, GroupMember(member_id="m"), bumps=True)
    assert forced.records == (r.Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(2, 0)),)


def test_what_4_0_wrote_of_the_partitions_goes_once_there_is_a_hash() -> None:
    driven = Driven(KAFKA_4_0)
    compared(driven)
    listed = driven.group.partition_metadata
    assert listed is not None
    assert listed.topics == {"foo": (FOO, 6)}
    driven.profile = KAFKA_4_1
    upgraded = compared(driven)
    assert [(each.key.record_type, each.value is None) for each in upgraded.records] == [
        (3, False),
        (4, True),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        TopicImage(BAR, "foo", 6),
        TopicImage(FOO, "foo", 5),
        TopicImage(FOO, "foo", 6, (frozenset({"r"}),) * 6),
    ],
    ids=["id", "count", "racks"],
)
def test_the_hash_is_about_ids_counts_and_racks(changed: TopicImage) -> None:
    driven = Driven()
    before = compared(driven).group_epoch
    driven.topics = TopicsImage.of((changed,), version=2)
    assert compared(driven).group_epoch == before + 1


def test_only_the_kip_has_a_target_computed_at_once() -> None:
    assert compared(Driven(KAFKA_4_3)).timers == ()
    driven = Driven(KIP_848)
    due = (Timer(TimerKey(TimerKind.ASSIGNMENT, "g"), driven.now),)
    assert compared(driven).timers == due
    assert compared(driven).timers == ()


@pytest.mark.parametrize(
    ("name", "touches"), [("foo", True), ("missing", True), ("bar", False), ("other", False)]
)
def test_which_topics_touch_a_group(name: str, touches: bool) -> None:
    driven = Driven()
    driven.join("m", "foo", "missing")
    after = TOPICS.with_topic(TopicImage(FOO, name, 9))
    assert group_epoch.is_touched(driven.group, TOPICS, after) is touches
    assert group_epoch.is_touched(driven.group, after, TOPICS) is touches
    assert not group_epoch.is_touched(driven.group, TOPICS, TOPICS)
