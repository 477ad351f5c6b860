"""What decisions are made of: requests, refusals, members, records, profiles, topics."""

from __future__ import annotations

import dataclasses
import typing
import uuid
from dataclasses import replace

import pytest

from group_lab.coordinator import messages as m
from group_lab.coordinator import records as r
from group_lab.coordinator.effects import RefusedError, Rule, check_rules
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.member import ClientAssignor, GroupMember, ReconciliationState
from group_lab.coordinator.messages import error_answer
from group_lab.coordinator.profile import KAFKA_4_3, KIP_848, PROFILES, Profile, profile_named
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.coordinator.driving import foo, given_at
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import Assignment, TopicId, TopicIdPartition

FOO = TopicIdPartition(TopicId(int=1), 0)
SAMPLE = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 1,
    "group_epoch": 1,
    "generation_id": 1,
    "group_generation_id": 1,
    "consumer_id": "c",
    "topics": (),
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 60_000,
    "partitions": frozenset(),
    "members": (),
    "offsets": {FOO: OffsetAndMetadata(1)},
}


@pytest.mark.parametrize(
    "kind",
    [*typing.get_args(m.CoordinatorRequest), m.KipHeartbeatRequest],
    ids=lambda k: k.__name__,
)
def test_every_request_can_be_refused(kind: type) -> None:
    named = {each.name for each in dataclasses.fields(kind)}
    request = kind(**{name: value for name, value in SAMPLE.items() if name in named})
    response = error_answer(request, 16)
    if isinstance(response, m.OffsetCommitResponse):
        assert response.errors == {FOO: 16}
    else:
        assert response.error_code == 16


def test_a_commit_is_refused_partition_by_partition() -> None:
    request = OffsetCommitRequest(
        group_id="g", member_id="m", member_epoch=1, offsets={FOO: OffsetAndMetadata(1)}
    )
    assert error_answer(request, 15).errors == {FOO: 15}


RULES: tuple[Rule[str], ...] = (
    Rule(lambda text: not text, "It can't be empty."),
    Rule(lambda text: "x" in text, "It can't have an x."),
    Rule(lambda text: len(text) > 2, "It can't be long."),
)


def test_a_refusal_has_kafkas_code_and_sentence() -> None:
    refused = RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    assert (refused.code, refused.message) == (25, "Instance id i is unknown.")
    assert str(refused) == refused.message


def test_the_first_rule_that_is_broken_counts() -> None:
    with pytest.raises(RefusedError) as refused:
        check_rules("xxx", RULES)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert refused.value.message == "It can't have an x."
    check_rules("ab", RULES)


KEY = TopicIdPartition(TopicId(int=1), 0)


@pytest.mark.parametrize(
    ("state", "member_epoch", "is_reconciled"),
    [
        (ReconciliationState.STABLE, 3, True),
        (ReconciliationState.STABLE, 2, False),
        (ReconciliationState.UNREVOKED_PARTITIONS, 3, False),
        (ReconciliationState.UNRELEASED_PARTITIONS, 3, False),
        (ReconciliationState.UNKNOWN, 3, False),
    ],
)
def test_a_member_is_reconciled_once_it_is_stable_at_the_epoch(
    state: ReconciliationState, member_epoch: int, is_reconciled: bool
) -> None:
    member = GroupMember(member_id="m", member_epoch=member_epoch, state=state)
    assert member.is_reconciled_to(3) == is_reconciled


def test_only_epoch_minus_two_is_away() -> None:
    away = [each for each in range(-2, 3) if GroupMember(member_id="m", member_epoch=each).is_away]
    assert away == [-2]


def test_the_assignment_excludes_revoking_partitions() -> None:
    member = GroupMember(
        member_id="m",
        assigned={KEY: 1},
        pending_revocation={TopicIdPartition(KEY.topic_id, 1): 1},
    )
    assert member.assignment == Assignment(frozenset({KEY}))


MEMBER = GroupMember(
    member_id="m1",
    member_epoch=7,
    previous_member_epoch=5,
    state=ReconciliationState.UNREVOKED_PARTITIONS,
    instance_id="i",
    rack_id="r",
    client_id="c",
    client_host="h",
    rebalance_timeout_ms=9,
    subscribed_topic_names=frozenset({"foo", "bar"}),
    subscribed_topic_regex="b.*",
    server_assignor="range",
    client_assignors=(ClientAssignor("own"),),
    assigned=given_at({foo(1): 4}),
    pending_revocation=given_at({foo(2): 3}),
)


def test_a_group_that_takes_the_records_has_the_member() -> None:
    group = ConsumerGroup("g")
    metadata, current = r.member_metadata("g", MEMBER), r.current_assignment("g", MEMBER)
    assert isinstance(metadata.value, r.MemberMetadataValue)
    assert metadata.value.subscribed_topic_names == ("bar", "foo")
    for record in (metadata, current):
        group.apply(record)
    assert group.members == {"m1": MEMBER}


def test_tombstones_remove_a_member() -> None:
    group = ConsumerGroup("g")
    group.apply(r.member_metadata("g", MEMBER))
    group.apply(r.Record(r.TargetMemberKey("g", "m1"), r.TargetMemberValue(foo(1))))
    group.apply(r.current_assignment("g", MEMBER))
    tombstones = r.member_tombstones("g", "m1")
    assert [each.key.record_type for each in tombstones] == [8, 7, 5]
    for record in tombstones:
        group.apply(record)
    assert group.is_empty_of_records
    assert group == ConsumerGroup("g")


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        *((name, profile) for name, profile in PROFILES.items()),
        ("4.3", KAFKA_4_3),
        ("4.3.1", KAFKA_4_3),
        ("v4.3", KAFKA_4_3),
        ("kafka-4.3.1", KAFKA_4_3),
        ("Kafka 4.3", KAFKA_4_3),
        ("KAFKA_4_3", KAFKA_4_3),
        (" kip848 ", KIP_848),
        ("KIP_848", KIP_848),
    ],
)
def test_a_profile_is_found_by_common_spellings(text: str, profile: Profile) -> None:
    assert profile_named(text) is profile


@pytest.mark.parametrize("text", ["", "4", "3.9", "kafka", "4.3.1.2", "kip-849", "kafka-5.0"])
def test_unknown_profiles(text: str) -> None:
    with pytest.raises(KeyError):
        profile_named(text)


A = TopicImage(uuid.UUID(int=1), "a", 3)
B = TopicImage(uuid.UUID(int=2), "b", 3)
BORN_AGAIN = TopicImage(uuid.UUID(int=3), "a", 3)


def test_every_change_is_a_version_and_only_a_new_topic_is_created() -> None:
    image = TopicsImage.of([A], version=5)
    assert (image.version, image.created_version) == (5, 5)
    grown = image.with_topic(replace(A, partition_count=4))
    assert (grown.version, grown.created_version) == (6, 5)
    two = grown.with_topic(B)
    assert (two.version, two.created_version) == (7, 7)
    one = two.without("a")
    assert (one.version, one.created_version) == (8, 7)
    again = one.with_topic(BORN_AGAIN)
    assert (again.version, again.created_version) == (9, 9)


def test_a_topic_is_found_by_its_id() -> None:
    image = TopicsImage.of([A, B])
    assert image.by_id(B.topic_id) == B
    assert image.by_id(BORN_AGAIN.topic_id) is None


def test_a_topic_with_an_old_name_and_a_new_id_was_deleted() -> None:
    before = TopicsImage.of([A, B])
    assert before.deleted_since(before) == set()
    assert before.with_topic(replace(A, partition_count=9)).deleted_since(before) == set()
    assert before.without("b").deleted_since(before) == {"b"}
    assert before.with_topic(BORN_AGAIN).deleted_since(before) == {"a"}
    assert before.deleted_since(TopicsImage()) == set()
