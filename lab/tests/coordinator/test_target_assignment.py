"""Targets: against those that Kafka's own classes compute, and the records of what changed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from group_lab.assignors.assignor import AssignorError
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import RequestContext
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.profile import KAFKA_4_2, KAFKA_4_3, KIP_848, PROFILES, Profile
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.target_assignment import (
    Target,
    compute,
    described_assignor,
    is_contested,
    is_homogeneous,
    member_order,
    name_order,
    preferred_assignor,
    timeline_order,
    topic_order,
    vote_order,
)
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.coordinator.driving import group_of
from spark_groups.types import Assignment

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
    context: RequestContext,
    *,
    group_epoch: int = 1,
    asking: str = "",
) -> Target:
    """Compute a target with the assignor that the members want; the sender is the last one."""
    last = [members[asking]] if asking else []
    counted = [each for key, each in members.items() if key != asking] + last
    return compute(
        group,
        members,
        profile,
        context,
        group_epoch=group_epoch,
        assignor=preferred_assignor(group, counted, context, asking),
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
        metadata = r.MemberMetadataValue(
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
        after.apply(r.Record(r.MemberMetadataKey("g", member_id), metadata))
        context = RequestContext(9.0, self.topics, Settings())
        target = computed(
            self.group,
            after.members,
            self.profile,
            context,
            group_epoch=self.epoch,
            asking=member_id,
        )
        self.group = after
        for record in target.records:
            self.group.apply(record)
        return target

    def answers(self, target: Target) -> list[str]:
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
            said += play.answers(target)
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


def test_a_first_empty_target_is_recorded() -> None:
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
            RequestContext(0.0, TopicsImage(), only_uniform),
        )


def test_the_first_that_is_configured_is_the_default() -> None:
    range_first = Settings(BrokerSettings(assignors=("range", "uniform")))
    context = RequestContext(0.0, TopicsImage(), range_first)
    member = GroupMember(member_id="a")
    assert computed(ConsumerGroup("g"), {"a": member}, KIP_848, context).assignor == "range"
    assert described_assignor(ConsumerGroup("g"), context) == "range"


def test_a_pattern_adds_its_topics_once_they_are_known() -> None:
    topics = TopicsImage.of(TopicImage(topic_id, name, 2) for name, topic_id in IDS.items())
    context = RequestContext(0.0, topics, Settings())
    group = ConsumerGroup("g")
    member = GroupMember(
        member_id="a", subscribed_topic_names=frozenset({"audit"}), subscribed_topic_regex="o.*"
    )
    before = computed(group, {"a": member}, KAFKA_4_3, context)
    assert before.by_member["a"] == Assignment.of({IDS["audit"]: (0, 1)})
    value = r.RegularExpressionValue(("orders",), 1, 0.0)
    group.apply(r.Record(r.RegularExpressionKey("g", "o.*"), value))
    after = computed(group, {"a": member}, KAFKA_4_3, context)
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


def test_a_topic_of_an_unused_pattern_is_not_homogeneous() -> None:
    only = GroupMember(member_id="a", subscribed_topic_names=frozenset({"t"}))
    assert is_homogeneous((only,), {"t.*": r.RegularExpressionValue(("t",), 1, 0.0)})
    assert not is_homogeneous((only,), {".*": r.RegularExpressionValue(("t", "u"), 1, 0.0)})


def test_a_topic_that_two_patterns_match_is_not_homogeneous() -> None:
    """A successor may leave an unused pattern behind."""
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


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, (0,)),
        (2, (0, 1)),
        (3, (0, 2, 1)),
        (5, (3, 0, 2, 4, 1)),
        (12, (3, 10, 8, 0, 5, 2, 7, 4, 11, 9, 1, 6)),
    ],
)
def test_a_timeline_hash_map(count: int, expected: tuple[int, ...]) -> None:
    put = [f"member-{each}" for each in range(count)]
    assert timeline_order(put, count + 1) == [f"member-{each}" for each in expected]


def test_members_of_a_group_that_had_more_of_them() -> None:
    """As a broker of 4.4.0 assigned after two of five members had left."""
    first, second = "4c8e8d31-9a1a-4c6e-a774-619e966aac93", "f4b3d509-5bb7-45ab-8f81-1f04a5b9bef3"
    known = ["7ce73a7d-8082-441e-aeed-22aa7230c1f6", first, second]
    assert member_order(known, known, room=4)[:2] == [second, first]
    assert member_order(known, known, room=6)[:2] == [first, second]


MEMBERS = {
    3: "m37 new m0 m74",
    6: "m37 new m0 m185 m111 m148 m74",
    12: "new m0 m74 m370 m37 m296 m185 m333 m111 m222 m148 m259 m407",
}


@pytest.mark.parametrize("count", MEMBERS)
def test_members_as_the_target_builder_goes_through_them(count: int) -> None:
    known = [f"m{each * 37}" for each in range(count)]
    assert member_order(known, [*known, "new"], count + 1) == MEMBERS[count].split()


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("new", "new m74 m370 m37 m296 m185 m333 m111 m222 m148 m259 m407"),
        ("n1", "n1 m74 m370 m37 m296 m185 m333 m111 m222 m148 m259 m407"),
        ("n2", "m37 m296 m185 m333 n2 m111 m222 m148 m74 m259 m407 m370"),
        ("n4", "m37 m296 m185 m333 m111 n4 m222 m148 m74 m259 m407 m370"),
    ],
)
def test_a_member_that_replaces_another_one(new: str, expected: str) -> None:
    known = [f"m{each * 37}" for each in range(12)]
    assert member_order(known, [*known[1:], new], 13) == expected.split()


def test_topics() -> None:
    names = name_order({"audit", "clicks", "orders", "payments", "returns", "views"})
    assert names == ["audit", "payments", "clicks", "orders", "returns", "views"]
    ids = {
        "clicks": uuid.UUID("c9e9e0fc-2cae-3d20-a506-e0c1a4c77d49"),
        "payments": uuid.UUID("84d5eaf7-13c9-3eec-b3d2-c4a83e64dc9a"),
        "audit": uuid.UUID("a5a63d9b-90e6-3fe9-a61e-70b66afec721"),
        "orders": uuid.UUID("12c500ed-0b78-3910-9fb4-6af0f246be87"),
        "returns": uuid.UUID("7fff8452-5c65-3691-9851-a9005373f87e"),
        "views": uuid.UUID("59a14a57-86fe-3a10-9d78-0bb1e1e2b21b"),
    }
    topics = TopicsImage.of(TopicImage(topic_id, name, 1) for name, topic_id in ids.items())
    assert topic_order([*names, "gone"], topics) == list(ids.values())


@pytest.mark.parametrize(
    ("voted", "kept", "added", "expected"),
    [
        ((), (), ("range",), ["range"]),
        (("uniform",), ("uniform",), ("range",), ["range", "uniform"]),
        (("range",), ("range",), ("uniform",), ["uniform", "range"]),
        (("range", "uniform"), ("range", "uniform"), (), ["uniform", "range"]),
        (("range", "uniform"), ("uniform",), ("range",), ["range", "uniform"]),
    ],
)
def test_votes_for_assignors(
    voted: tuple[str, ...], kept: tuple[str, ...], added: tuple[str, ...], expected: list[str]
) -> None:
    assert vote_order(voted, kept, added) == expected
