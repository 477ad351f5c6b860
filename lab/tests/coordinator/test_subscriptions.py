"""What heartbeats make of a group's subscriptions, by names, by patterns, by votes."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator import records as r
from group_lab.coordinator import subscriptions
from group_lab.coordinator.effects import RefusedError, RequestContext, Timer, TimerKey, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_3,
    KAFKA_4_4,
    KIP_848,
    Profile,
)
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.subscriptions import (
    Updated,
    check_pattern,
    look_up_patterns,
    pattern_change,
    resolved_pattern,
)
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.coordinator.driving import BAR, FOO, JOIN, TOPICS, Driven, bar, foo, record_types
from spark_groups.errors import ErrorCode
from spark_groups.types import NO_PARTITIONS

REGEX = TimerKey(TimerKind.REGEX, "g")


def look_up(driven: Driven) -> None:
    """Let the lookup happen that a heartbeat asked for."""
    driven.timers.pop(REGEX)
    driven.take(subscriptions.look_up_patterns(driven.group, driven.profile, driven.context))


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3, KIP_848])
def test_a_pattern_that_is_new_waits_for_its_lookup(profile: Profile) -> None:
    driven = Driven(profile)
    joined = driven.send("m1", 0, **JOIN, subscribed_topic_regex="fo.*")
    assert (joined.member_epoch, joined.assignment) == (1, NO_PARTITIONS)
    look_up(driven)
    answer = driven.beat("m1")
    assert (answer.member_epoch, answer.assignment) == (2, foo(0, 1, 2, 3, 4, 5))


def test_a_pattern_that_is_looked_up_already_is_a_target_at_once() -> None:
    driven = Driven()
    driven.send("m1", 0, **JOIN, subscribed_topic_regex="fo.*")
    look_up(driven)
    driven.beat("m1")
    outcome = driven.decide("m2", 0, **JOIN, subscribed_topic_regex="fo.*")
    assert record_types(outcome) == [5, 3, 7, 7, 6, 8]
    assert REGEX not in driven.timers


def test_an_invalid_pattern() -> None:
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
def test_a_dropped_pattern(profile: Profile, types: list[int], is_revoked: bool) -> None:
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
def test_with_a_tie_of_assignors_4_4_bumps_the_epoch_repeatedly(
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
    "fields", [{"rack_id": "r"}, {"rebalance_timeout_ms": 1}], ids=["rack", "timeout"]
)
def test_changes_that_no_assignor_uses_bump_no_epoch(fields: dict[str, Any]) -> None:
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


FOO_SUBSCRIBER = GroupMember(member_id="m", subscribed_topic_names=frozenset({"foo", "missing"}))
BY_PATTERN = GroupMember(member_id="m", subscribed_topic_regex="b.*")
RESOLVED = {"b.*": r.RegularExpressionValue(("bar",), 1, 0.0)}


def compared(
    driven: Driven, member: GroupMember = FOO_SUBSCRIBER, *, bumps: bool = False
) -> subscriptions.GroupEpoch:
    found = subscriptions.next_epoch(
        driven.group, (member,), driven.profile, driven.context, bumps=bumps
    )
    for record in found.records:
        driven.group.apply(record)
    return found


def test_names_are_those_of_members_and_of_patterns_that_are_looked_up() -> None:
    both = replace(FOO_SUBSCRIBER, subscribed_topic_regex="b.*")
    assert subscriptions.subscribed_names((BY_PATTERN, FOO_SUBSCRIBER), RESOLVED) == {
        "foo",
        "missing",
        "bar",
    }
    assert subscriptions.subscribed_names((both,), {}) == {"foo", "missing"}
    assert subscriptions.subscribed_names((), RESOLVED) == {"bar"}
    assert subscriptions.names_of(both, RESOLVED) == {"foo", "missing", "bar"}
    assert subscriptions.names_of(FOO_SUBSCRIBER, RESOLVED) == {"foo", "missing"}
    assert subscriptions.names_of(BY_PATTERN, {}) == set()


@pytest.mark.parametrize(
    ("profile", "types"), [(KAFKA_4_0, [4, 3]), (KAFKA_4_1, [3]), (KIP_848, [4, 3])]
)
def test_other_topics_are_another_epoch(profile: Profile, types: list[int]) -> None:
    driven = Driven(profile)
    first = compared(driven)
    assert [each.key.record_type for each in first.records] == types
    assert first.group_epoch == profile.first_group_epoch + 1
    assert compared(driven) == subscriptions.GroupEpoch(first.group_epoch)
    driven.topics = driven.topics.with_topic(TopicImage(FOO, "foo", 7))
    assert compared(driven).group_epoch == first.group_epoch + 1
    driven.topics = driven.topics.without("foo")
    assert compared(driven).group_epoch == first.group_epoch + 2


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3])
def test_unsubscribed_topics_change_nothing(profile: Profile) -> None:
    driven = Driven(profile)
    compared(driven)
    driven.topics = driven.topics.with_topic(TopicImage(BAR, "bar", 9))
    assert compared(driven).records == ()


def test_the_epoch_grows_without_a_difference_if_required() -> None:
    driven = Driven()
    nothing = compared(driven, GroupMember(member_id="m"))
    assert nothing == subscriptions.GroupEpoch(1)
    forced = compared(driven, GroupMember(member_id="m"), bumps=True)
    assert forced.records == (r.Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(2, 0)),)


def test_the_hash_replaces_the_partition_metadata_of_4_0() -> None:
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
    assert subscriptions.is_touched(driven.group, TOPICS, after) is touches
    assert subscriptions.is_touched(driven.group, after, TOPICS) is touches
    assert not subscriptions.is_touched(driven.group, TOPICS, TOPICS)


PATTERN = TimerKey(TimerKind.REGEX, "g")
PLAIN = GroupMember(member_id="a")
ANY = replace(PLAIN, subscribed_topic_regex="t.*")


def topics(*names: str) -> TopicsImage:
    image = TopicsImage()
    for name in names:
        image = image.with_topic(TopicImage(uuid.uuid5(uuid.NAMESPACE_OID, name), name, 3))
    return image


def context(now: float, image: TopicsImage) -> RequestContext:
    return RequestContext(now, image, Settings())


def group(*patterns: str, resolved_at: float | None = None, image: TopicsImage) -> ConsumerGroup:
    found = ConsumerGroup("g")
    found.apply(r.Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(5)))
    for number, pattern in enumerate(patterns):
        key = r.MemberMetadataKey("g", "abc"[number])
        found.apply(r.Record(key, r.MemberMetadataValue(subscribed_topic_regex=pattern)))
        if resolved_at is not None:
            value = resolved_pattern(pattern, image, resolved_at)
            found.apply(r.Record(r.RegularExpressionKey("g", pattern), value))
    return found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        ("a\\", "trailing backslash at end of expression"),
        ("(?P<n", "invalid named capture"),
        ("[b-a]", "invalid character class range"),
        ("\\8", "invalid escape sequence"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("a)", "regexp/syntax: internal error"),
    ],
)
def test_a_wrong_pattern_is_refused_with_the_words_of_re2j(pattern: str, reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_pattern(pattern)
    assert refused.value.code == 128
    expected = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
    assert refused.value.message == expected


def test_a_pattern_matches_whole_names() -> None:
    image = topics("t1", "t2", "other")
    assert resolved_pattern("t.*", image, 7.0) == r.RegularExpressionValue(("t1", "t2"), 3, 7.0)
    assert resolved_pattern("^t", image, 7.0).topics == ()


def test_a_new_pattern_is_checked_and_looked_up_at_once() -> None:
    image = topics("t1")
    empty = group(image=image)
    found = pattern_change(empty, PLAIN, ANY, KAFKA_4_3, context(100.0, image))
    assert found.updated is Updated.UNRESOLVED
    assert found.timers == (Timer(PATTERN, 100.0),)
    with pytest.raises(RefusedError):
        pattern_change(
            empty,
            PLAIN,
            replace(PLAIN, subscribed_topic_regex="("),
            KAFKA_4_3,
            context(100.0, image),
        )


def test_a_pattern_that_another_member_has_is_not_looked_up_again() -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    joins = replace(ANY, member_id="z")
    found = pattern_change(
        known, replace(PLAIN, member_id="z"), joins, KAFKA_4_3, context(100.0, image)
    )
    assert (found.updated, found.records, found.timers) == (Updated.RESOLVED, (), ())


def test_the_last_one_takes_its_pattern_away() -> None:
    image = topics("t1")
    alone = pattern_change(
        group("t.*", resolved_at=50.0, image=image),
        ANY,
        PLAIN,
        KAFKA_4_3,
        context(100.0, image),
    )
    assert alone.updated is Updated.RESOLVED
    assert alone.records == (r.Record(r.RegularExpressionKey("g", "t.*"), None),)
    assert alone.timers == ()
    both = group("t.*", "t.*", resolved_at=50.0, image=image)
    assert not pattern_change(both, ANY, PLAIN, KAFKA_4_3, context(100.0, image)).records


@pytest.mark.parametrize(
    ("now", "profile", "new_topic", "is_due"),
    [
        (60.0, KAFKA_4_3, True, False),
        (60.001, KAFKA_4_3, True, True),
        (60.001, KAFKA_4_3, False, False),
        (650.0, KAFKA_4_3, False, False),
        (650.001, KAFKA_4_3, False, True),
        (650.001, KAFKA_4_0, False, False),
    ],
)
def test_when_patterns_are_looked_up_again(
    now: float, profile: Profile, new_topic: bool, is_due: bool
) -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    if new_topic:
        image = topics("t1", "t2")
    found = pattern_change(known, ANY, ANY, profile, context(now, image))
    assert found.updated is Updated.NO_CHANGE
    assert found.timers == ((Timer(PATTERN, now),) if is_due else ())


@pytest.mark.parametrize(
    ("loaded_at", "now", "is_due"), [(40.0, 70.0, False), (55.0, 60.0, False), (55.0, 60.1, True)]
)
def test_a_new_coordinator_resolves_patterns_again(
    loaded_at: float, now: float, is_due: bool
) -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    later = replace(context(now, image), loaded_at=loaded_at)
    found = pattern_change(known, ANY, ANY, KAFKA_4_0, later)
    assert found.timers == ((Timer(PATTERN, now),) if is_due else ())


def test_a_topic_that_grows_or_is_deleted_is_no_reason() -> None:
    image = topics("t1", "t2")
    known = group("t.*", resolved_at=50.0, image=image)
    grown = image.with_topic(replace(image.by_name["t1"], partition_count=9)).without("t2")
    assert not pattern_change(known, ANY, ANY, KAFKA_4_3, context(100.0, grown)).timers


def test_an_unresolved_pattern_waits_for_the_least_interval() -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    other = replace(PLAIN, member_id="z", subscribed_topic_regex="t1")
    joins = pattern_change(
        known, replace(PLAIN, member_id="z"), other, KAFKA_4_3, context(55.0, image)
    )
    assert (joins.updated, joins.timers) == (Updated.UNRESOLVED, ())
    key = r.MemberMetadataKey("g", "z")
    known.apply(r.Record(key, r.MemberMetadataValue(subscribed_topic_regex="t1")))
    later = pattern_change(known, other, other, KAFKA_4_3, context(60.5, image))
    assert later.timers == (Timer(PATTERN, 60.5),)


def test_other_topics_than_before_are_a_new_group_epoch() -> None:
    image = topics("t1", "t2")
    known = group("t.*", "other", image=image)
    outcome = look_up_patterns(known, KAFKA_4_3, context(9.0, image))
    patterns, (epoch,) = outcome.records[:2], outcome.records[2:]
    assert [each.key for each in patterns] == [
        r.RegularExpressionKey("g", "other"),
        r.RegularExpressionKey("g", "t.*"),
    ]
    assert [each.value for each in patterns] == [
        r.RegularExpressionValue((), 2, 9.0),
        r.RegularExpressionValue(("t1", "t2"), 2, 9.0),
    ]
    assert isinstance(epoch.value, r.GroupMetadataValue)
    assert epoch.value.group_epoch == 6
    for record in outcome.records:
        known.apply(record)
    again = look_up_patterns(known, KAFKA_4_3, context(20.0, image))
    assert [type(each.key) for each in again.records] == [r.RegularExpressionKey] * 2
    deleted = look_up_patterns(known, KAFKA_4_3, context(30.0, image.without("t2")))
    assert len(deleted.records) == 3


def test_no_member_has_a_pattern_any_more() -> None:
    image = topics("t1")
    assert not look_up_patterns(group(image=image), KAFKA_4_3, context(9.0, image)).records
