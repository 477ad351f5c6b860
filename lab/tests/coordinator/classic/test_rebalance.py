"""Rebalances of a classic group, and the timers that end their phases."""

from __future__ import annotations

from typing import Any

import pytest

from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeavingMember
from group_lab.coordinator.records import ClassicGroupMetadataKey
from lab.tests.coordinator.classic.driving import RANGE, STICKY, DrivenShard, with_broker
from spark_groups.errors import ErrorCode

STABLE, PREPARING = ClassicState.STABLE, ClassicState.PREPARING_REBALANCE
COMPLETING, EMPTY = ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY
REBALANCES = CoordinatorErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("joins_at", "rebalance_s", "begins_at"),
    [
        ([0.0], 60.0, 3.0),
        ([0.0, 2.0], 60.0, 6.0),
        ([0.0, 2.0, 4.0, 7.0], 60.0, 12.0),
        # No longer than the rebalance timeout of the first member.
        ([0.0, 2.0, 4.0, 7.0], 10.0, 10.0),
        ([0.0, 1.0], 2.0, 3.0),
    ],
)
def test_the_first_generation_waits_for_members_that_still_come(
    joins_at: list[float], rebalance_s: float, begins_at: float
) -> None:
    driven = DrivenShard()
    tickets = []
    for at in joins_at:
        driven.wait(at - driven.now)
        tickets.append(driven.join(rebalance_s=rebalance_s))
    driven.wait(begins_at - driven.now - 0.125)
    assert [each.response for each in tickets] == [None] * len(tickets)
    assert driven.group.state is PREPARING
    driven.wait(0.125)
    assert driven.group.state is COMPLETING
    assert driven.group.generation_id == 1
    assert sorted(map(id, driven.answered)) == sorted(map(id, tickets))


def test_without_a_delay_the_first_member_is_answered_at_once() -> None:
    driven = DrivenShard(settings=with_broker(classic_initial_rebalance_delay_s=0.0))
    ticket = driven.join()
    driven.wait(0.0)
    response: Any = ticket.response
    assert (response.generation_id, response.leader) == (1, response.member_id)


def test_a_join_ends_when_all_members_have_joined_again() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise(None, None)
    third = driven.join()
    assert driven.heartbeat(first) == driven.heartbeat(second) == REBALANCES
    driven.join(first)
    assert driven.group.state is PREPARING
    driven.join(second)
    response: Any = third.response
    assert response.generation_id == 2
    assert driven.group.state is COMPLETING
    driven.sync_all()
    assert driven.group.state is STABLE
    assert driven.heartbeat(first) == ErrorCode.NONE


def test_the_longest_rebalance_timeout_ends_the_join_and_removes_dynamic_members() -> None:
    driven = DrivenShard()
    short, long = driven.join(rebalance_s=5.0), driven.join(rebalance_s=30.0)
    driven.wait_for(short, long)
    driven.sync_all()
    # Sessions are shorter than the timeout, so both send heartbeats.
    ids = list(driven.group.members)
    third = driven.join(rebalance_s=30.0)
    for _ in range(5):
        driven.wait(5.0)
        assert [driven.heartbeat(each) for each in ids] == [REBALANCES] * 2
    driven.wait(4.75)
    assert third.response is None
    driven.wait(0.25)
    response: Any = third.response
    assert response.generation_id == 2
    assert set(driven.group.members) == {response.member_id} == {response.leader}


def test_a_leader_that_does_not_join_again_is_replaced_by_one_that_has() -> None:
    driven = DrivenShard()
    ids = driven.stabilise("A", "B", session_s=1000.0, rebalance_s=5.0)
    leader = driven.group.leader_id or ""
    follower = next(each for each in ids if each != leader)
    joined = driven.join(
        follower,
        driven.group.members[follower].instance_id,
        protocols=(STICKY, RANGE),
        session_s=1000.0,
        rebalance_s=5.0,
    )
    driven.wait(5.0)
    response: Any = joined.response
    assert response.leader == follower
    assert {each.member_id for each in response.members} == set(ids)


def test_a_rebalance_without_any_join_waits_for_static_members_until_their_sessions_end() -> None:
    driven = DrivenShard()
    first, *_ = driven.stabilise("A", "B", None, session_s=20.0, rebalance_s=5.0)
    driven.leave(LeavingMember(next(each for each in driven.group.members if each[0] == "c")))
    for _ in range(3):
        driven.wait(5.0)
        assert driven.group.state is PREPARING
        assert driven.group.generation_id == 1
        assert driven.heartbeat(first) == REBALANCES
    driven.wait(20.0)
    assert driven.group.state is EMPTY
    assert driven.group.generation_id == 2


def test_members_that_do_not_sync_are_removed_and_the_others_rebalance() -> None:
    driven = DrivenShard()
    tickets = [driven.join(rebalance_s=8.0) for _ in range(3)]
    driven.wait_for(*tickets)
    leader = driven.group.leader_id or ""
    slow = next(each for each in driven.group.members if each != leader)
    synced = [driven.sync(each) for each in driven.group.members if each not in (leader, slow)]
    synced.append(driven.sync(leader, {leader: b"all"}))
    responses: list[Any] = [each.response for each in synced]
    assert [each.error_code for each in responses] == [0, 0]
    assert driven.group.state is STABLE
    assert driven.group.pending_syncs == {slow}
    driven.wait(7.75)
    assert driven.group.state is STABLE
    driven.wait(0.25)
    assert slow not in driven.group.members
    assert driven.group.state is PREPARING


def test_a_leader_that_does_not_sync_is_removed_and_the_parked_syncs_are_answered() -> None:
    driven = DrivenShard()
    tickets = [driven.join(rebalance_s=8.0) for _ in range(2)]
    driven.wait_for(*tickets)
    leader = driven.group.leader_id
    follower = next(each for each in driven.group.members if each != leader)
    parked = driven.sync(follower)
    assert parked.response is None
    driven.wait(8.0)
    response: Any = parked.response
    assert response.error_code == REBALANCES
    assert driven.answered[-1] is parked
    assert driven.group.leader_id == follower
    assert driven.group.state is PREPARING


def test_a_new_member_comes_while_the_leader_assigns() -> None:
    driven = DrivenShard()
    tickets = [driven.join() for _ in range(2)]
    driven.wait_for(*tickets)
    leader = driven.group.leader_id
    follower = next(each for each in driven.group.members if each != leader)
    parked = driven.sync(follower)
    driven.join()
    response: Any = parked.response
    assert response.error_code == REBALANCES
    late: Any = driven.sync(leader or "").response
    assert late.error_code == REBALANCES


def test_a_session_ends_with_a_rebalance_and_the_last_one_empties_the_group() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise(None, None)
    driven.wait(6.0)
    assert driven.heartbeat(first) == ErrorCode.NONE
    driven.wait(5.0)
    assert set(driven.group.members) == {first}
    assert driven.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driven.heartbeat(first) == REBALANCES
    driven.wait(10.0)
    assert driven.group.state is EMPTY
    assert (driven.group.generation_id, driven.group.protocol_name) == (2, None)
    assert driven.group.leader_id is None
    record = driven.log.batches[-1].records[-1]
    assert isinstance(record.key, ClassicGroupMetadataKey)


def test_a_member_that_waits_needs_no_heartbeats_but_a_new_one_only_five_minutes() -> None:
    driven = DrivenShard()
    first, _second = driven.stabilise("A", "B", session_s=1800.0, rebalance_s=1000.0)
    rejoined = driven.join(first, "A", protocols=(STICKY, RANGE), session_s=6.0, rebalance_s=1000.0)
    new = driven.join(session_s=6.0, rebalance_s=1000.0)
    driven.wait(299.0)
    assert (rejoined.response, new.response) == (None, None)
    driven.wait(1.0)
    response: Any = new.response
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rejoined.response is None
    assert first in driven.group.members


def test_a_group_that_was_empty_continues_its_generations() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    assert driven.leave(LeavingMember(first)) == (0,)
    assert driven.group.state is EMPTY
    driven.stabilise(None)
    assert driven.group.generation_id == 3
