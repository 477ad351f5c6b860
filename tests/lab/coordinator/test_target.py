"""Targets: against those that Kafka's own classes compute, and the records of what changed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spark_groups.lab.assignors.assignor import AssignorError
from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.effects import Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import GroupMember
from spark_groups.lab.coordinator.profile import KAFKA_4_2, KAFKA_4_3, KIP_848, PROFILES, Profile
from spark_groups.lab.coordinator.settings import BrokerSettings, Settings
from spark_groups.lab.coordinator.target import (
    Target,
    compute,
    described_assignor,
    is_contested,
    is_homogeneous,
    preferred_assignor,
)
from spark_groups.lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.types import Assignment
from tests.lab.coordinator.driving import group_of

IDS = {
    "orders": uuid.UUID("622fbe54-e0f0-49f5-840f-140dfd931ab3"),
    "audit": uuid.UUID("1d8f7c1e-6a0b-4c52-9d3e-5f0a2b7c8d91"),
    "clicks": uuid.UUID("c0a8f3d2-77e1-4f6b-a1b2-93c4d5e6f708"),
}
FACTS = dict(
    section.split("\n", 1)
    for section in (Path(__file__).parent / "kafka_targets.txt").read_text().split("== ")[1:]
)


def computed(
    group: ConsumerGroup,
    members: Mapping[str, GroupMember],
    profile: Profile,
    around: Surroundings,
    *,
    group_epoch: int = 1,
    asking: str = "",
) -> Target:
    """Compute a target with the assignor that the members want; who asks is the last one."""
    last = [members[asking]] if asking else []
    counted = [each for key, each in members.items() if key != asking] + last
    return compute(
        group,
        members,
        profile,
        around,
        group_epoch=group_epoch,
        assignor=preferred_assignor(group, counted, around, asking),
        asking=asking,
        homogeneous=is_homogeneous(counted, group.regexes),
    )


class Play:
    """A group whose members come and go as in a script.

    Args:
        profile: Which coordinator it is.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.group = ConsumerGroup("g")
        self.topics = TopicsImage()
        self.epoch = 1

    def topic(self, name: str, partitions: str) -> None:
        self.topics = self.topics.with_topic(TopicImage(IDS[name], name, int(partitions)))

    def leave(self, member_id: str) -> None:
        self.group.apply(r.Record(r.TargetMemberKey("g", member_id), None))
        self.group.apply(r.Record(r.MemberMetadataKey("g", member_id), None))

    def join(self, member_id: str, instance_id: str, assignor: str, names: str) -> Target:
        self.epoch += 1
        told = r.MemberMetadataValue(
            instance_id=None if instance_id == "-" else instance_id,
            server_assignor=None if assignor == "-" else assignor,
            subscribed_topic_names=tuple(names.split(",")),
        )
        after = ConsumerGroup("g")
        for record in self.group.records():
            after.apply(record)
        replaced = self.group.static_member(instance_id)
        if replaced and replaced.member_id != member_id:
            after.apply(r.Record(r.TargetMemberKey("g", replaced.member_id), None))
            after.apply(r.Record(r.MemberMetadataKey("g", replaced.member_id), None))
        after.apply(r.Record(r.MemberMetadataKey("g", member_id), told))
        around = Surroundings(9.0, self.topics, Settings())
        target = computed(
            self.group,
            after.members,
            self.profile,
            around,
            group_epoch=self.epoch,
            asking=member_id,
        )
        self.group = after
        for record in target.records:
            self.group.apply(record)
        return target

    def told(self, target: Target) -> list[str]:
        kind = (
            "homogeneous"
            if is_homogeneous(self.group.members.values(), self.group.regexes)
            else "heterogeneous"
        )
        return [f"  {target.assignor} {kind}", *map(line, target.records[:-1])]


def line(record: r.Record) -> str:
    """Write a record as the facts have it."""
    assert isinstance(record.key, r.TargetMemberKey)
    assert isinstance(record.value, r.TargetMemberValue)
    by_topic = record.value.partitions.by_topic()
    named = [
        f"{name} {ranges(by_topic[topic_id])}"
        for name, topic_id in sorted(IDS.items(), key=lambda each: ORDER.index(each[0]))
        if topic_id in by_topic
    ]
    return f"  {record.key.member_id}: {'  '.join(named)}".rstrip()


ORDER = ("audit", "orders", "clicks")


def ranges(partitions: tuple[int, ...]) -> str:
    runs: list[list[int]] = []
    for each in partitions:
        if runs and runs[-1][-1] == each - 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@pytest.mark.parametrize("title", FACTS)
def test_the_targets_are_those_of_kafka(title: str) -> None:
    play = Play(PROFILES[title.partition(":")[0]])
    said = []
    for step in FACTS[title].strip().split("\n"):
        if step.startswith("  "):
            continue
        said.append(step)
        what, *words = step.split(" ")
        target = getattr(play, what)(*words)
        if target:
            said += play.told(target)
    assert said == [each.rstrip() for each in FACTS[title].strip().split("\n")]


def test_only_differences_are_records_and_the_epoch_is_the_last() -> None:
    play = Play(KAFKA_4_3)
    play.topic("orders", "2")
    first = play.join("a", "-", "-", "orders")
    assert [each.key for each in first.records] == [
        r.TargetMemberKey("g", "a"),
        r.TargetMetadataKey("g"),
    ]
    assert first.records[-1].value == r.TargetMetadataValue(2, 9.0)
    again = play.join("a", "-", "-", "orders")
    assert again.records == (r.Record(r.TargetMetadataKey("g"), r.TargetMetadataValue(3, 9.0)),)
    assert again.by_member == first.by_member


def test_before_4_3_a_target_has_no_time() -> None:
    play = Play(KAFKA_4_2)
    play.topic("orders", "2")
    target = play.join("a", "-", "-", "orders")
    assert target.records[-1].value == r.TargetMetadataValue(2, 0.0)


def test_who_gets_nothing_for_the_first_time_has_a_record_of_it() -> None:
    play = Play(KAFKA_4_3)
    target = play.join("a", "-", "-", "orders")
    assert target.records[0] == r.Record(r.TargetMemberKey("g", "a"), r.TargetMemberValue())


def test_an_assignor_that_is_not_configured_is_an_error() -> None:
    member = GroupMember(member_id="a", server_assignor="range")
    only_uniform = Settings(BrokerSettings(assignors=("uniform",)))
    with pytest.raises(AssignorError):
        computed(
            ConsumerGroup("g"),
            {"a": member},
            KAFKA_4_3,
            Surroundings(0.0, TopicsImage(), only_uniform),
        )


def test_the_first_that_is_configured_is_the_default() -> None:
    range_first = Settings(BrokerSettings(assignors=("range", "uniform")))
    around = Surroundings(0.0, TopicsImage(), range_first)
    member = GroupMember(member_id="a")
    assert computed(ConsumerGroup("g"), {"a": member}, KIP_848, around).assignor == "range"
    assert described_assignor(ConsumerGroup("g"), around) == "range"


def test_a_pattern_adds_its_topics_once_they_are_known() -> None:
    topics = TopicsImage.of(TopicImage(topic_id, name, 2) for name, topic_id in IDS.items())
    around = Surroundings(0.0, topics, Settings())
    group = ConsumerGroup("g")
    member = GroupMember(
        member_id="a", subscribed_topic_names=frozenset({"audit"}), subscribed_topic_regex="o.*"
    )
    before = computed(group, {"a": member}, KAFKA_4_3, around)
    assert before.by_member["a"] == Assignment.of({IDS["audit"]: (0, 1)})
    value = r.RegularExpressionValue(("orders",), 1, 0.0)
    group.apply(r.Record(r.RegularExpressionKey("g", "o.*"), value))
    after = computed(group, {"a": member}, KAFKA_4_3, around)
    assert after.by_member["a"] == Assignment.of({IDS["audit"]: (0, 1), IDS["orders"]: (0, 1)})


@pytest.mark.parametrize(
    ("names", "regex", "expected"),
    [
        (("t",), "", True),
        (("t", "u"), "", False),
        (("t",), "t.*", False),
        ((), "t.*", False),
    ],
)
def test_another_member_with_the_same_subscription_or_not(
    names: tuple[str, ...], regex: str, expected: bool
) -> None:
    first = GroupMember(member_id="a", subscribed_topic_names=frozenset({"t"}))
    second = replace(
        first,
        member_id="b",
        subscribed_topic_names=frozenset(names),
        subscribed_topic_regex=regex,
    )
    assert is_homogeneous((first, second), {}) is expected


def test_patterns_are_homogeneous_only_if_there_is_one_and_no_name() -> None:
    only = GroupMember(member_id="a", subscribed_topic_regex="t.*")
    both = replace(only, member_id="b", subscribed_topic_names=frozenset({"t"}))
    other = replace(only, member_id="b", subscribed_topic_regex="u.*")
    assert is_homogeneous((only, replace(only, member_id="b")), {})
    assert not is_homogeneous((replace(both, member_id="a"), both), {})
    assert not is_homogeneous((only, other), {})
    assert is_homogeneous((), {})


def test_a_topic_that_only_a_pattern_of_nobody_matches_is_not_homogeneous() -> None:
    only = GroupMember(member_id="a", subscribed_topic_names=frozenset({"t"}))
    assert is_homogeneous((only,), {"t.*": r.RegularExpressionValue(("t",), 1, 0.0)})
    assert not is_homogeneous((only,), {".*": r.RegularExpressionValue(("t", "u"), 1, 0.0)})


def test_a_topic_that_two_patterns_match_is_not_homogeneous() -> None:
    """The one that nobody has any more was left behind by a member that took another's place."""
    only = GroupMember(member_id="a", subscribed_topic_regex="t.*")
    left_behind = r.RegularExpressionValue(("t", "u"), 1, 0.0)
    resolved = {"t.*": r.RegularExpressionValue(("t",), 1, 0.0), ".*": left_behind}
    assert not is_homogeneous((only,), resolved)


@pytest.mark.parametrize(
    ("asked_for", "contested"),
    [
        ((), False),
        ((None, None), False),
        (("range", "range", None), False),
        (("range", None, "uniform"), True),
    ],
)
def test_assignors_are_contested_where_members_ask_for_two(
    asked_for: tuple[str | None, ...], contested: bool
) -> None:
    records = (
        r.Record(
            r.MemberMetadataKey("g", f"m{number}"), r.MemberMetadataValue(server_assignor=each)
        )
        for number, each in enumerate(asked_for)
    )
    assert is_contested(group_of("g", *records)) is contested
