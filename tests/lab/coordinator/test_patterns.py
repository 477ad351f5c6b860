"""When patterns are looked up, and what becomes of them; times and texts as Kafka has them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.effects import Surroundings, Timer, TimerKey, TimerKind
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.patterns import Updated, change, check_valid, fired, resolved
from spark_groups.lab.coordinator.profile import KAFKA_4_0, KAFKA_4_3, Profile
from spark_groups.lab.coordinator.refusal import RefusedError
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage

REGEX = TimerKey(TimerKind.REGEX, "g")
NOBODY = GroupMember(member_id="a")
ANY = replace(NOBODY, subscribed_topic_regex="t.*")


def topics(*names: str) -> TopicsImage:
    image = TopicsImage()
    for name in names:
        image = image.with_topic(TopicImage(uuid.uuid5(uuid.NAMESPACE_OID, name), name, 3))
    return image


def around(now: float, image: TopicsImage) -> Surroundings:
    return Surroundings(now, image, Settings())


def group(*patterns: str, resolved_at: float | None = None, image: TopicsImage) -> ConsumerGroup:
    found = ConsumerGroup("g")
    found.apply(r.Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(5)))
    for number, pattern in enumerate(patterns):
        key = r.MemberMetadataKey("g", "abc"[number])
        found.apply(r.Record(key, r.MemberMetadataValue(subscribed_topic_regex=pattern)))
        if resolved_at is not None:
            value = resolved(pattern, image, resolved_at)
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
        check_valid(pattern)
    assert refused.value.code == 128
    expected = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."
    assert refused.value.message == expected


def test_a_pattern_matches_whole_names() -> None:
    image = topics("t1", "t2", "other")
    assert resolved("t.*", image, 7.0) == r.RegularExpressionValue(("t1", "t2"), 3, 7.0)
    assert resolved("^t", image, 7.0).topics == ()


def test_a_new_pattern_is_checked_and_looked_up_at_once() -> None:
    image = topics("t1")
    empty = group(image=image)
    found = change(empty, NOBODY, ANY, KAFKA_4_3, around(100.0, image))
    assert found.updated is Updated.UNRESOLVED
    assert found.timers == (Timer(REGEX, 100.0),)
    with pytest.raises(RefusedError):
        change(
            empty,
            NOBODY,
            replace(NOBODY, subscribed_topic_regex="("),
            KAFKA_4_3,
            around(100.0, image),
        )


def test_a_pattern_that_another_member_has_is_not_looked_up_again() -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    joins = replace(ANY, member_id="z")
    found = change(known, replace(NOBODY, member_id="z"), joins, KAFKA_4_3, around(100.0, image))
    assert (found.updated, found.records, found.timers) == (Updated.RESOLVED, (), ())


def test_the_last_one_takes_its_pattern_away() -> None:
    image = topics("t1")
    alone = change(
        group("t.*", resolved_at=50.0, image=image), ANY, NOBODY, KAFKA_4_3, around(100.0, image)
    )
    assert alone.updated is Updated.RESOLVED
    assert alone.records == (r.Record(r.RegularExpressionKey("g", "t.*"), None),)
    assert alone.timers == ()
    both = group("t.*", "t.*", resolved_at=50.0, image=image)
    assert not change(both, ANY, NOBODY, KAFKA_4_3, around(100.0, image)).records


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
    found = change(known, ANY, ANY, profile, around(now, image))
    assert found.updated is Updated.NO_CHANGE
    assert found.timers == ((Timer(REGEX, now),) if is_due else ())


@pytest.mark.parametrize(
    ("loaded_at", "now", "is_due"), [(40.0, 70.0, False), (55.0, 60.0, False), (55.0, 60.1, True)]
)
def test_what_an_earlier_coordinator_looked_up_is_looked_up_again(
    loaded_at: float, now: float, is_due: bool
) -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    later = replace(around(now, image), loaded_at=loaded_at)
    found = change(known, ANY, ANY, KAFKA_4_0, later)
    assert found.timers == ((Timer(REGEX, now),) if is_due else ())


def test_a_topic_that_grows_or_goes_is_no_reason() -> None:
    image = topics("t1", "t2")
    known = group("t.*", resolved_at=50.0, image=image)
    grown = image.with_topic(replace(image.by_name["t1"], partition_count=9)).without("t2")
    assert not change(known, ANY, ANY, KAFKA_4_3, around(100.0, grown)).timers


def test_an_unresolved_pattern_waits_for_the_least_interval() -> None:
    image = topics("t1")
    known = group("t.*", resolved_at=50.0, image=image)
    other = replace(NOBODY, member_id="z", subscribed_topic_regex="t1")
    joins = change(known, replace(NOBODY, member_id="z"), other, KAFKA_4_3, around(55.0, image))
    assert (joins.updated, joins.timers) == (Updated.UNRESOLVED, ())
    key = r.MemberMetadataKey("g", "z")
    known.apply(r.Record(key, r.MemberMetadataValue(subscribed_topic_regex="t1")))
    later = change(known, other, other, KAFKA_4_3, around(60.5, image))
    assert later.timers == (Timer(REGEX, 60.5),)


def test_other_topics_than_before_are_a_new_group_epoch() -> None:
    image = topics("t1", "t2")
    known = group("t.*", "other", image=image)
    outcome = fired(known, Timer(REGEX, 9.0), KAFKA_4_3, around(9.0, image))
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
    again = fired(known, Timer(REGEX, 20.0), KAFKA_4_3, around(20.0, image))
    assert [type(each.key) for each in again.records] == [r.RegularExpressionKey] * 2
    gone = fired(known, Timer(REGEX, 30.0), KAFKA_4_3, around(30.0, image.without("t2")))
    assert len(gone.records) == 3


def test_nobody_has_a_pattern_any_more() -> None:
    image = topics("t1")
    assert not fired(group(image=image), Timer(REGEX, 9.0), KAFKA_4_3, around(9.0, image)).records
