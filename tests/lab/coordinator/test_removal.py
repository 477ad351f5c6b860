"""LeaveGroup by operators: each member named gets a result of its own."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import removal
from spark_groups.lab.coordinator.effects import Outcome
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.messages import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
)
from tests.lab.coordinator.driving import Driven, record_types

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
    outcome = removal.remove(driven.group, request, driven.profile, driven.around)
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
def test_who_is_named(
    driven: Driven, member_id: str, instance_id: str | None, error_code: ErrorCode
) -> None:
    outcome = remove(driven, LeavingMember(member_id=member_id, instance_id=instance_id))
    (result,) = outcome.response.members
    assert (result.member_id, result.instance_id) == (member_id, instance_id)
    assert result.error_code == error_code
    assert record_types(outcome) == ([-8, -7, -5, 3] if error_code is NONE else [])
    assert len(driven.group.members) == (1 if error_code is NONE else 2)


def test_all_who_are_found_go_together(driven: Driven) -> None:
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


def test_a_group_without_a_name() -> None:
    outcome = remove(Driven(group=ConsumerGroup("")), LeavingMember(member_id="m1"))
    assert outcome.response == LeaveGroupResponse(error_code=24)
