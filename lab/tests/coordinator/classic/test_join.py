"""JoinGroup: the broker's checks, ids of new members, protocols, and the limit of members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeavingMember
from lab.tests.coordinator.classic.driving import GROUP, RANGE, STICKY, DrivenShard, with_broker
from spark_groups.errors import ErrorCode

UNKNOWN, FULL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED
INCONSISTENT = CoordinatorErrorCode.INCONSISTENT_GROUP_PROTOCOL
REQUIRED = CoordinatorErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, CoordinatorErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, CoordinatorErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, CoordinatorErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 6_000}, REQUIRED),
        ({"session_timeout_ms": 1_800_000}, REQUIRED),
        ({"protocols": ()}, INCONSISTENT),
        ({"protocol_type": ""}, INCONSISTENT),
        ({"member_id": "no"}, UNKNOWN),
    ],
)
def test_a_join_is_checked_before_it_changes_a_group(changes: dict[str, Any], error: int) -> None:
    driven = DrivenShard()
    request = replace(driven.join_request(), **changes)
    response: Any = driven.send(request).response
    assert response.error_code == error
    if error != REQUIRED:
        assert response.member_id == request.member_id


@pytest.mark.parametrize(("api_version", "is_parked"), [(3, True), (4, False)])
def test_since_v4_a_dynamic_member_gets_its_id_before_it_joins(
    api_version: int, is_parked: bool
) -> None:
    driven = DrivenShard()
    ticket = driven.send(driven.join_request(), client="app", api_version=api_version)
    response: Any = ticket.response
    assert (response is None) is is_parked
    if is_parked:
        (member_id,) = driven.group.members
    else:
        (member_id,) = driven.group.pending_joins
        assert (response.error_code, response.member_id) == (REQUIRED, member_id)
        assert driven.group.state is ClassicState.EMPTY
    # The client id, and a UUID.
    assert member_id.startswith("app-")
    assert len(member_id) == len("app-") + 36


def test_member_ids_differ_also_after_a_fail_over() -> None:
    driven = DrivenShard()
    ids = set()
    for _ in range(3):
        for _ in range(3):
            response: Any = driven.send(driven.join_request()).response
            ids.add(response.member_id)
        driven.now += 1.0
        driven.fail_over()
    assert len(ids) == 9


def test_member_ids_differ_after_a_fail_over_at_the_same_time() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise("A")
    driven.fail_over()
    second: Any = driven.join(instance_id="A").response
    driven.fail_over()
    third: Any = driven.join(instance_id="A").response
    assert len({first, second.member_id, third.member_id}) == 3


def test_a_pending_member_delays_the_generation_until_its_session_ends() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    given: Any = driven.send(driven.join_request(session_s=8.0)).response
    rejoined = driven.join(first, protocols=(STICKY, RANGE))
    driven.wait(7.75)
    assert rejoined.response is None
    driven.wait(0.25)
    response: Any = rejoined.response
    assert response.generation_id == 2
    assert driven.group.pending_joins == frozenset()
    late: Any = driven.join(given.member_id).response
    assert late.error_code == UNKNOWN


def test_a_pending_member_that_leaves_no_longer_delays_the_generation() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    given: Any = driven.send(driven.join_request()).response
    rejoined = driven.join(first, protocols=(STICKY, RANGE))
    assert driven.leave(LeavingMember(given.member_id)) == (0,)
    response: Any = rejoined.response
    assert response.generation_id == 2


def test_a_pending_member_may_not_become_static() -> None:
    driven = DrivenShard()
    given: Any = driven.send(driven.join_request()).response
    response: Any = driven.join(given.member_id, "A").response
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_two_bounces_change_the_assignor_and_one_is_refused() -> None:
    driven = DrivenShard()
    ids = driven.stabilise("A", "B")
    refused: Any = driven.join(instance_id="C", protocols=(STICKY,)).response
    assert refused.error_code == INCONSISTENT
    # The first bounce adds the new assignor, the second one removes the old one.
    for protocols in ((STICKY, RANGE), (STICKY,)):
        for each in ids:
            instance_id = driven.group.members[each].instance_id
            driven.join(each, instance_id, protocols=protocols)
            for other in ids:
                member = driven.group.members[other]
                if driven.group.state is ClassicState.PREPARING_REBALANCE:
                    driven.join(other, member.instance_id, protocols=member.protocols)
            driven.sync_all()
    assert driven.group.protocol_name == "sticky"
    joined: Any = driven.join(instance_id="C", protocols=(RANGE,)).response
    assert joined.error_code == INCONSISTENT


def test_a_follower_that_joins_again_unchanged_gets_the_generation_again() -> None:
    driven = DrivenShard()
    ids = driven.stabilise(None, None)
    leader = driven.group.leader_id or ""
    follower = next(each for each in ids if each != leader)
    response: Any = driven.join(follower).response
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, leader)
    assert response.members == ()
    assert driven.group.state is ClassicState.STABLE
    # A leader joins again to rebalance.
    assert driven.join(leader).response is None
    assert driven.group.state is ClassicState.PREPARING_REBALANCE


def test_a_leader_that_missed_the_answer_gets_the_members_again() -> None:
    driven = DrivenShard()
    tickets = [driven.join() for _ in range(2)]
    driven.wait_for(*tickets)
    leader = driven.group.leader_id or ""
    responses: list[Any] = [each.response for each in tickets]
    first = next(each for each in responses if each.member_id == leader)
    again: Any = driven.join(leader).response
    assert again == first
    assert len(again.members) == 2


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_full_group_refuses_another_member(is_stable: bool) -> None:
    driven = DrivenShard(settings=with_broker(classic_max_size=2))
    if is_stable:
        driven.stabilise(None, None)
    else:
        driven.join()
        driven.join()
    response: Any = driven.join().response
    assert (response.error_code, response.member_id) == (FULL, "")
    assert len(driven.group.members) == 2


def test_a_loaded_group_that_is_too_large_keeps_those_that_join_first() -> None:
    driven = DrivenShard()
    ids = driven.stabilise(None, None, None)
    driven.settings = with_broker(classic_max_size=2)
    driven.fail_over()
    assert driven.group.state is ClassicState.PREPARING_REBALANCE
    tickets = [driven.join(each) for each in ids]
    responses: list[Any] = [each.response for each in tickets]
    assert responses[2].error_code == FULL
    # The third one is removed, so the two others are complete only at the next occasion.
    assert set(driven.group.members) == set(ids[:2])
    driven.wait_for(*tickets[:2])
    assert driven.group.generation_id == 2


def test_a_group_with_offsets_only_becomes_a_classic_group_without_a_record() -> None:
    driven = DrivenShard()
    driven.shard.memory.make(GROUP)
    driven.shard.memory.keep()
    end_offset = driven.log.end_offset
    driven.join()
    assert driven.log.end_offset == end_offset
    driven.wait(3.0)
    driven.sync_all()
    assert driven.group.state is ClassicState.STABLE
