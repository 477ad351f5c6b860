"""SyncGroup: who may sync, and what the members get."""

from __future__ import annotations

from typing import Any

import pytest

from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import SyncGroupRequest
from group_lab.coordinator.effects import CoordinatorErrorCode
from lab.tests.coordinator.classic.driving import GROUP, DrivenShard
from spark_groups.errors import ErrorCode

INCONSISTENT = CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL


def completing(*instance_ids: str | None) -> DrivenShard:
    driven = DrivenShard()
    driven.wait_for(*[driven.join(instance_id=each) for each in instance_ids])
    return driven


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "no"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_name": "sticky"}, INCONSISTENT),
        ({"protocol_type": "connect"}, INCONSISTENT),
        ({"protocol_type": None}, INCONSISTENT),
        ({"protocol_name": None}, INCONSISTENT),
        ({"group_instance_id": "X"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, CoordinatorErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_sync_is_checked(changes: dict[str, Any], error: int) -> None:
    driven = completing(None)
    (member_id,) = driven.group.members
    response: Any = driven.sync(**{"member_id": member_id, **changes}).response
    assert response.error_code == error
    assert driven.group.state is ClassicState.COMPLETING_REBALANCE


def test_a_sync_to_no_group_is_of_an_unknown_member() -> None:
    driven = DrivenShard()
    request = SyncGroupRequest(
        group_id=GROUP, generation_id=1, member_id="m", protocol_type="c", protocol_name="r"
    )
    response: Any = driven.send(request).response
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_wait_until_the_leaders_assignment_is_replicated() -> None:
    driven = completing(None, None, None)
    leader = driven.group.leader_id or ""
    early, late = (each for each in driven.group.members if each != leader)
    parked = driven.sync(early)
    driven.replicates = False
    leading = driven.sync(leader, {early: b"1", leader: b"2"})
    assert (parked.response, leading.response) == (None, None)
    assert driven.group.state is ClassicState.COMPLETING_REBALANCE
    driven.replicate()
    assert driven.group.state is ClassicState.STABLE
    answers: list[Any] = [parked.response, leading.response, driven.sync(late).response]
    assert [each.assignment for each in answers] == [b"1", b"2", b""]
    assert {each.protocol_name for each in answers} == {"range"}


def test_a_member_that_syncs_again_gets_its_assignment_again() -> None:
    driven = DrivenShard()
    first, _ = driven.stabilise(None, None)
    response: Any = driven.sync(first).response
    assert (response.error_code, response.assignment) == (0, first.encode())


def test_the_answer_to_a_sync_begins_the_session_again() -> None:
    driven = completing(None, None)
    leader = driven.group.leader_id or ""
    follower = next(each for each in driven.group.members if each != leader)
    driven.sync(follower)
    driven.wait(9.0)
    driven.sync(leader, {})
    driven.wait(9.0)
    assert set(driven.group.members) == {leader, follower}
    driven.wait(1.0)
    assert not driven.group.members
