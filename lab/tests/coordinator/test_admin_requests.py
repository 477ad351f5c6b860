"""What operators ask: describe, list, delete groups, remove members."""

from __future__ import annotations

import pytest

from group_lab.coordinator import admin_requests
from group_lab.coordinator import records as r
from group_lab.coordinator.admin_requests import delete_group, list_groups
from group_lab.coordinator.effects import CoordinatorErrorCode, Outcome, RequestContext
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.messages import (
    DeleteGroupsRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListGroupsRequest,
)
from group_lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_1,
    KAFKA_4_2,
    KAFKA_4_3,
    KIP_848,
    Profile,
)
from group_lab.coordinator.records import OffsetCommitKey, OffsetCommitValue, Record
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.topic_images import TopicsImage
from lab.tests.coordinator.driving import BAR, FOO, JOIN, Driven, foo, group_of, record_types
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    DescribedMember,
    DescribeGroupRequest,
    DescribeGroupResponse,
)
from spark_groups.types import NO_PARTITIONS, Assignment


def described(driven: Driven) -> DescribeGroupResponse:
    request = DescribeGroupRequest(group_id=driven.group.group_id)
    return admin_requests.describe(driven.group, request, driven.profile, driven.context)


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
    ("profile", "error_code"),
    [
        (KIP_848, ErrorCode.INVALID_REQUEST),
        (KAFKA_4_0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (KAFKA_4_1, CoordinatorErrorCode.INVALID_GROUP_ID),
        (KAFKA_4_3, CoordinatorErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_description_of_no_group(profile: Profile, error_code: int) -> None:
    driven = Driven(profile)
    driven.group = group_of("")
    assert described(driven) == DescribeGroupResponse(error_code=error_code)


@pytest.mark.parametrize(
    ("profile", "has"), [(KAFKA_4_2, foo(0, 1, 2)), (KAFKA_4_3, foo(0, 1, 2, 3, 4, 5))]
)
def test_describe_shows_revoking_partitions_from_4_3_on(profile: Profile, has: Assignment) -> None:
    driven = Driven(profile)
    driven.join("m1", "foo")
    driven.join("m2", "foo")
    driven.beat("m1")
    member = next(each for each in described(driven).members if each.member_id == "m1")
    assert (member.assignment, member.target_assignment) == (has, foo(0, 1, 2))


def test_describe_omits_deleted_topics() -> None:
    driven = Driven()
    driven.join("m1", "foo")
    driven.topics = driven.topics.without("foo")
    (member,) = described(driven).members
    assert (member.assignment, member.target_assignment) == (NO_PARTITIONS, NO_PARTITIONS)


def test_a_group_without_a_written_epoch_has_the_first_one() -> None:
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


GROUPS = (
    group_of("empty", Record(r.GroupMetadataKey("empty"), r.GroupMetadataValue(1))),
    group_of(
        "assigning",
        Record(r.GroupMetadataKey("assigning"), r.GroupMetadataValue(1)),
        Record(r.MemberMetadataKey("assigning", "m"), r.MemberMetadataValue()),
    ),
    group_of("offsets", Record(r.OffsetCommitKey("offsets", "t", 0), r.OffsetCommitValue(1))),
)


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), ["empty", "assigning", "offsets"]),
        (("Empty",), (), ["empty", "offsets"]),
        ((" ASSIGNING ",), (), ["assigning"]),
        ((), ("Consumer",), ["empty", "assigning"]),
        ((), ("classic",), ["offsets"]),
        ((), ("Generic",), ["offsets"]),
        ((), ("bogus",), []),
        ((), ("share", "bogus"), []),
        (("stable",), ("consumer",), []),
        (("empty",), ("consumer", "bogus"), ["empty"]),
    ],
)
def test_filters(states: tuple[str, ...], types: tuple[str, ...], expected: list[str]) -> None:
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    assert [each.group_id for each in list_groups(GROUPS, request).groups] == expected


AROUND = RequestContext(0.0, TopicsImage(), Settings())
REQUEST = DeleteGroupsRequest(group_id="g")
RECORDS = (
    Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(3)),
    Record(r.OffsetCommitKey("g", "t", 0), r.OffsetCommitValue(7)),
    Record(r.TargetMetadataKey("g"), r.TargetMetadataValue(3)),
    Record(r.RegularExpressionKey("g", "t.*"), r.RegularExpressionValue(("t",), 1, 0.0)),
)


def test_a_deleted_group_leaves_no_record() -> None:
    group = group_of("g", *RECORDS)
    outcome = delete_group(group, REQUEST, KAFKA_4_3, AROUND)
    for each in outcome.records:
        group.apply(each)
    assert outcome.response.error_code == ErrorCode.NONE
    assert group == ConsumerGroup("g")


def test_offsets_go_first_and_the_group_last() -> None:
    kinds = [type(each.key) for each in group_of("g", *RECORDS).tombstones()]
    assert kinds == [
        r.OffsetCommitKey,
        r.TargetMetadataKey,
        r.RegularExpressionKey,
        r.GroupMetadataKey,
    ]


def test_unknown_and_non_empty_groups_are_not_deleted() -> None:
    unknown = delete_group(ConsumerGroup("g"), REQUEST, KAFKA_4_3, AROUND)
    assert unknown.response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = Record(r.MemberMetadataKey("g", "m"), r.MemberMetadataValue())
    refused = delete_group(group_of("g", *RECORDS, member), REQUEST, KAFKA_4_3, AROUND)
    assert refused.response.error_code == ErrorCode.NON_EMPTY_GROUP
    assert not unknown.records
    assert not refused.records


NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def driven() -> Driven:
    driven = Driven()
    driven.join("m1", "foo", instance_id="i1")
    driven.join("m2", "foo")
    return driven


def remove(driven: Driven, *members: LeavingMember) -> Outcome[LeaveGroupResponse]:
    request = LeaveGroupRequest(group_id="g", members=members)
    outcome = admin_requests.remove_members(driven.group, request, driven.profile, driven.context)
    driven.take(outcome)
    return outcome


@pytest.mark.parametrize(
    ("member_id", "instance_id", "error_code"),
    [
        ("m2", None, NONE),
        ("m1", None, NONE),
        ("", "i1", NONE),
        ("m1", "i1", NONE),
        ("m3", None, UNKNOWN),
        ("", "i2", UNKNOWN),
        ("m2", "i1", FENCED),
        ("", None, UNKNOWN),
    ],
)
def test_members_are_named_by_either_id(
    driven: Driven, member_id: str, instance_id: str | None, error_code: ErrorCode
) -> None:
    outcome = remove(driven, LeavingMember(member_id=member_id, instance_id=instance_id))
    (result,) = outcome.response.members
    assert (result.member_id, result.instance_id) == (member_id, instance_id)
    assert result.error_code == error_code
    assert record_types(outcome) == ([-8, -7, -5, 3] if error_code is NONE else [])
    assert len(driven.group.members) == (1 if error_code is NONE else 2)


def test_all_found_members_are_removed_together(driven: Driven) -> None:
    outcome = remove(
        driven,
        LeavingMember(instance_id="i1"),
        LeavingMember(member_id="m3"),
        LeavingMember(member_id="m2"),
        LeavingMember(member_id="m1", instance_id="i1"),
    )
    assert [each.error_code for each in outcome.response.members] == [NONE, UNKNOWN, NONE, NONE]
    assert record_types(outcome) == [-8, -7, -5, -8, -7, -5, 3]
    assert driven.group.members == {}


def test_a_group_that_does_not_exist_has_no_such_member() -> None:
    outcome = remove(Driven(), LeavingMember(member_id="m1"), LeavingMember(instance_id="i1"))
    assert [each.error_code for each in outcome.response.members] == [UNKNOWN, UNKNOWN]
    assert (outcome.response.error_code, outcome.records) == (NONE, ())


def test_no_member_is_removed_from_a_group_without_a_name() -> None:
    outcome = remove(Driven(group=ConsumerGroup("")), LeavingMember(member_id="m1"))
    assert outcome.response == LeaveGroupResponse(error_code=24)
