"""A group as its coordinator describes it."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import describe
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.profile import KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, KAFKA_4_3, Profile
from spark_groups.lab.coordinator.records import OffsetCommitKey, OffsetCommitValue, Record
from spark_groups.protocol.messages import (
    DescribedMember,
    DescribeGroupRequest,
    DescribeGroupResponse,
)
from spark_groups.types import NO_PARTITIONS, Assignment
from tests.lab.coordinator.driving import BAR, FOO, JOIN, Driven, foo


def described(driven: Driven) -> DescribeGroupResponse:
    request = DescribeGroupRequest(group_id=driven.group.group_id)
    return describe.describe(driven.group, request, driven.profile, driven.around)


def test_a_group_and_its_member() -> None:
    driven = Driven()
    driven.join("m1", "foo", "bar", rack_id="r", instance_id="i", server_assignor="range")
    everything = Assignment.of({FOO: range(6), BAR: range(4)})
    assert described(driven) == DescribeGroupResponse(
        group_id="g",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="range",
        members=(
            DescribedMember(
                member_id="m1",
                member_epoch=2,
                instance_id="i",
                rack_id="r",
                client_id="client",
                client_host="/host",
                member_type=1,
                subscribed_topic_names=("bar", "foo"),
                subscribed_topic_regex="",
                assignment=everything,
                target_assignment=everything,
            ),
        ),
        topic_names={FOO: "foo", BAR: "bar"},
    )


@pytest.mark.parametrize(
    ("profile", "has"), [(KAFKA_4_2, foo(0, 1, 2)), (KAFKA_4_3, foo(0, 1, 2, 3, 4, 5))]
)
def test_what_is_being_revoked_shows_from_4_3_on(profile: Profile, has: Assignment) -> None:
    driven = Driven(profile)
    driven.join("m1", "foo")
    driven.join("m2", "foo")
    driven.beat("m1")
    member = next(each for each in described(driven).members if each.member_id == "m1")
    assert (member.assignment, member.target_assignment) == (has, foo(0, 1, 2))


def test_a_deleted_topic_does_not_show() -> None:
    driven = Driven()
    driven.join("m1", "foo")
    driven.topics = driven.topics.without("foo")
    (member,) = described(driven).members
    assert (member.assignment, member.target_assignment) == (NO_PARTITIONS, NO_PARTITIONS)


def test_a_group_whose_epoch_was_never_written_has_the_first() -> None:
    driven = Driven()
    driven.send("m1", 0, **JOIN, subscribed_topic_regex="fo.*")
    assert driven.group.metadata is None
    answer = described(driven)
    assert (answer.group_state, answer.group_epoch, answer.assignment_epoch) == ("Stable", 1, 1)


def test_a_group_that_is_none() -> None:
    driven = Driven()
    answer = described(driven)
    assert (answer.group_id, answer.error_code) == ("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert answer.error_message == "Group g not found."
    driven.group.apply(Record(OffsetCommitKey("g", "foo", 0), OffsetCommitValue(1)))
    assert described(driven).error_message == "Group g is not a consumer group."


@pytest.mark.parametrize(("profile", "code"), [(KAFKA_4_0, -1), (KAFKA_4_1, 24)])
def test_a_group_without_a_name(profile: Profile, code: int) -> None:
    answer = described(Driven(profile, group=ConsumerGroup("")))
    assert (answer.error_code, answer.error_message) == (code, None)


def test_a_group_whose_members_left_is_empty() -> None:
    driven = Driven()
    driven.join("m1", "foo")
    driven.send("m1", -1)
    answer = described(driven)
    assert (answer.error_code, answer.group_state, answer.members) == (0, "Empty", ())
    assert (answer.group_epoch, answer.assignment_epoch) == (3, 2)
