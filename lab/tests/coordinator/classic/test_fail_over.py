"""What a classic group loses when its coordinator fails over, or an append fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator import messages as m
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.log import MAX_BATCH_BYTES
from group_lab.coordinator.messages import LeavingMember
from lab.tests.coordinator.classic.driving import GROUP, RANGE, STICKY, DrivenShard
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    HeartbeatRequest,
    OffsetAndMetadata,
    OffsetCommitRequest,
)
from spark_groups.types import Assignment, TopicIdPartition

UNAVAILABLE, UNKNOWN = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_MEMBER_ID
REBALANCES = CoordinatorErrorCode.REBALANCE_IN_PROGRESS
REQUIRED = CoordinatorErrorCode.MEMBER_ID_REQUIRED
STABLE, PREPARING = ClassicState.STABLE, ClassicState.PREPARING_REBALANCE


def commit_elsewhere(driven: DrivenShard) -> None:
    """Write to another group of the same partition."""
    foo_0 = TopicIdPartition(driven.topics.by_name["foo"].topic_id, 0)
    driven.send(
        OffsetCommitRequest(
            group_id="other", member_id="", member_epoch=-1, offsets={foo_0: OffsetAndMetadata(1)}
        )
    )


def test_a_stable_group_survives_a_fail_over() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise("A", None)
    before = driven.group
    driven.fail_over()
    assert driven.group == replace(
        before, previous_state=ClassicState.DEAD, state_since_s=driven.group.state_since_s
    )
    assert driven.heartbeat(first, instance_id="A") == ErrorCode.NONE
    answer: Any = driven.sync(second).response
    assert answer.assignment == second.encode()
    # Both have a new session.
    driven.wait(9.75)
    assert set(driven.group.members) == {first, second}
    driven.wait(0.25)
    assert not driven.group.members


def test_a_rebalance_under_way_is_forgotten() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise(None, None)
    driven.join(first, protocols=(STICKY, RANGE))
    new: Any = driven.send(driven.join_request()).response
    driven.fail_over()
    assert (driven.group.state, driven.group.generation_id) == (STABLE, 1)
    assert set(driven.group.members) == {first, second}
    assert driven.heartbeat(first) == ErrorCode.NONE
    late: Any = driven.join(new.member_id).response
    assert late.error_code == UNKNOWN


def test_members_that_joined_but_did_not_sync_join_again() -> None:
    driven = DrivenShard()
    tickets = [driven.join() for _ in range(2)]
    driven.wait_for(*tickets)
    responses: list[Any] = [each.response for each in tickets]
    driven.fail_over()
    assert driven.group.state is ClassicState.EMPTY
    errors: list[Any] = [
        driven.sync(each.member_id, generation_id=1, protocol_name="range").response
        for each in responses
    ]
    assert {each.error_code for each in errors} == {UNKNOWN}


def test_another_node_takes_over_and_parked_requests_are_refused() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise(None, None)
    joining = driven.join(first, protocols=(STICKY, RANGE))
    driven.shard.unload(driven.now)
    assert driven.shard.take_answered() == [joining]
    response: Any = joining.response
    assert (response.error_code, response.member_id) == (ErrorCode.NOT_COORDINATOR, first)
    assert second in driven.group.members


def test_parked_syncs_are_refused_when_another_node_takes_over() -> None:
    driven = DrivenShard()
    driven.wait_for(*[driven.join() for _ in range(2)])
    leader = driven.group.leader_id
    syncing = driven.sync(next(each for each in driven.group.members if each != leader))
    driven.shard.unload(driven.now)
    response: Any = syncing.response
    assert response.error_code == ErrorCode.NOT_COORDINATOR


def test_a_lost_assignment_begins_another_rebalance() -> None:
    driven = DrivenShard()
    driven.wait_for(*[driven.join() for _ in range(2)])
    leader = driven.group.leader_id or ""
    follower = next(each for each in driven.group.members if each != leader)
    tickets = [driven.sync(follower)]
    driven.replicates = False
    tickets.append(driven.sync(leader, {leader: b"1", follower: b"2"}))
    driven.fail()
    responses: list[Any] = [each.response for each in tickets]
    assert [(each.error_code, each.assignment) for each in responses] == [(UNAVAILABLE, b"")] * 2
    assert driven.group.state is PREPARING
    driven.replicates = True
    assert driven.heartbeat(follower) == REBALANCES
    driven.join(follower)
    driven.join(leader)
    driven.sync_all()
    assert (driven.group.state, driven.group.generation_id) == (STABLE, 2)


def test_a_lost_assignment_of_an_old_generation_changes_nothing() -> None:
    driven = DrivenShard()
    driven.wait_for(driven.join())
    (leader,) = driven.group.members
    driven.replicates = False
    syncing = driven.sync(leader, {leader: b"1"})
    driven.join(protocols=(RANGE,))
    response: Any = syncing.response
    assert response.error_code == REBALANCES
    before = driven.group
    driven.fail()
    assert driven.group == before


def test_an_assignment_that_is_too_large_is_refused() -> None:
    driven = DrivenShard()
    driven.wait_for(driven.join())
    (leader,) = driven.group.members
    response: Any = driven.sync(leader, {leader: bytes(MAX_BATCH_BYTES)}).response
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert driven.group.state is PREPARING
    driven.join(leader)
    driven.sync(leader, {leader: b"1"})
    assert driven.group.state is STABLE


def test_a_group_whose_first_record_is_lost_is_gone() -> None:
    driven = DrivenShard(replicates=False)
    given: Any = driven.send(driven.join_request()).response
    assert given.error_code == REQUIRED
    driven.fail()
    response: Any = driven.join(given.member_id).response
    assert response.error_code == UNKNOWN
    listed: Any = driven.send(m.ListGroupsRequest()).response
    assert listed.groups == ()


def test_the_static_member_that_made_a_lost_group_is_refused() -> None:
    driven = DrivenShard(replicates=False)
    joining = driven.join(instance_id="A")
    assert joining.response is None
    driven.fail()
    response: Any = joining.response
    assert response.error_code == UNAVAILABLE
    assert GROUP not in driven.shard.memory.classic
    # Its timers fire without effect.
    driven.wait(600.0)
    assert GROUP not in driven.shard.memory.classic


def test_a_static_member_whose_return_is_lost_gives_its_place_back() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise("A", "B")
    before = driven.group
    driven.replicates = False
    returning = driven.join(instance_id="B", session_s=20.0)
    assert second not in driven.group.members
    driven.fail()
    response: Any = returning.response
    assert (response.error_code, response.member_id) == (UNAVAILABLE, "")
    assert (response.generation_id, response.leader) == (1, before.leader_id)
    assert dict(driven.group.members) == dict(before.members)
    assert driven.group.leader_id == before.leader_id
    driven.replicates = True
    assert driven.heartbeat(second, instance_id="B") == ErrorCode.NONE
    assert first in driven.group.members


def test_a_lost_deletion_restores_the_group() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    driven.leave(LeavingMember(first))
    before = driven.group
    driven.replicates = False
    driven.send(m.DeleteGroupsRequest(group_id=GROUP))
    assert GROUP not in driven.shard.memory.classic
    driven.fail()
    assert driven.group == before


def test_members_stay_gone_when_the_record_of_the_empty_group_is_lost() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    driven.replicates = False
    leaving = driven.send(m.LeaveGroupRequest(group_id=GROUP, members=(LeavingMember(first),)))
    driven.fail()
    response: Any = leaving.response
    assert response.error_code == UNAVAILABLE
    assert (driven.group.state, driven.group.generation_id) == (ClassicState.EMPTY, 2)
    # After a fail-over the log says that the member is still there.
    driven.fail_over()
    assert set(driven.group.members) == {first}


@pytest.mark.parametrize("leads", [True, False])
def test_a_static_member_returns_while_another_begins_a_rebalance(leads: bool) -> None:
    driven = DrivenShard()
    driven.stabilise("A", "B")
    members = driven.group.members.values()
    returning = next(
        each for each in members if (each.member_id == driven.group.leader_id) is leads
    )
    driven.replicates = False
    joining = driven.join(instance_id=returning.instance_id)
    driven.join()
    assert driven.group.state is PREPARING
    driven.replicate()
    response: Any = joining.response
    if leads:
        # It needs the members, which are those of the next generation.
        assert response is None
    else:
        assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)


def test_an_empty_consumer_group_stays_one_when_its_replacement_is_lost() -> None:
    driven = DrivenShard()
    for member_epoch in (0, -1):
        driven.send(
            HeartbeatRequest(
                group_id=GROUP,
                member_id="m",
                member_epoch=member_epoch,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=frozenset({"foo"}),
                topic_partitions=Assignment(frozenset()),
            )
        )
    driven.replicates = False
    tickets = [driven.join(instance_id=each) for each in ("A", "B")]
    driven.fail()
    responses: list[Any] = [each.response for each in tickets]
    assert [each.error_code for each in responses] == [UNAVAILABLE] * 2
    assert driven.answered == tickets
    assert not driven.shard.parked
    assert driven.shard.memory.group(GROUP).is_consumer_group


def test_all_who_joined_a_lost_group_are_refused() -> None:
    driven = DrivenShard(replicates=False)
    tickets = [driven.join(instance_id=each) for each in ("A", "B", "A")]
    driven.fail()
    responses: list[Any] = [each.response for each in tickets]
    codes = [ErrorCode.FENCED_INSTANCE_ID, UNAVAILABLE, UNAVAILABLE]
    assert [each.error_code for each in responses] == codes
    assert driven.answered == tickets
    assert not driven.shard.parked


def test_a_join_behind_lost_records_is_refused_though_it_counts_as_joined() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise("A", "B")
    driven.replicates = False
    commit_elsewhere(driven)
    joining = driven.join(instance_id="C")
    assert joining.response is None
    driven.fail()
    response: Any = joining.response
    assert (response.error_code, response.member_id) == (UNAVAILABLE, "")
    assert driven.answered[-1] is joining
    assert not driven.shard.parked
    driven.replicates = True
    tickets = [driven.join(first, "A"), driven.join(second, "B")]
    responses: list[Any] = [each.response for each in tickets]
    assert {(each.error_code, each.generation_id) for each in responses} == {(ErrorCode.NONE, 2)}
    assert len(driven.group.members) == 3


def test_a_join_that_another_one_replaced_is_refused_with_it() -> None:
    driven = DrivenShard()
    first, _ = driven.stabilise("A", "B")
    driven.replicates = False
    commit_elsewhere(driven)
    tickets = [driven.join(first, "A", protocols=(STICKY, RANGE)) for _ in range(2)]
    driven.fail()
    responses: list[Any] = [each.response for each in tickets]
    assert [each.error_code for each in responses] == [UNAVAILABLE] * 2
    assert not driven.shard.parked


def test_a_lost_return_is_refused_after_a_rebalance_began_without_its_protocol() -> None:
    driven = DrivenShard()
    driven.stabilise("A", "B", protocols=(RANGE, STICKY))
    leader = driven.group.members[driven.group.leader_id or ""]
    driven.replicates = False
    returning = driven.join(instance_id=leader.instance_id, protocols=(RANGE, STICKY))
    joining = driven.join(instance_id="N", protocols=(STICKY,))
    assert driven.group.state is PREPARING
    driven.fail()
    responses: list[Any] = [returning.response, joining.response]
    assert [each.error_code for each in responses] == [UNAVAILABLE] * 2
    assert responses[0].members == ()
    assert driven.group.leader_id == leader.member_id
