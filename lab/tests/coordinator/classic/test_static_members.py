"""Static members of a classic group (KIP-345)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from group_lab.assignors.embedded import encode_assignment
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import JoinedMember
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeavingMember
from lab.tests.coordinator.classic.driving import GROUP, RANGE, STICKY, DrivenShard
from lab.tests.coordinator.driving import FOO
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import EmbeddedAssignment, decode_assignment
from spark_groups.group.member.messages import OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import TopicIdPartition, TopicPartition

STABLE, PREPARING = ClassicState.STABLE, ClassicState.PREPARING_REBALANCE
UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
REQUIRED = CoordinatorErrorCode.MEMBER_ID_REQUIRED
PARKED: Final = None
"""The join waits for the next generation."""


@dataclass(frozen=True)
class Case:
    """A join by member id and instance id, and the answer of a stable group.

    Args:
        member: Of which member the id is; "" none, "no" of no member.
        error: The answer; None if the join is parked.
    """

    name: str
    member: str
    instance_id: str | None
    error: int | None
    state: ClassicState


CASES: Final = (
    Case("1. known member id, no instance id", "dynamic", None, PARKED, PREPARING),
    Case("2. unknown member id, no instance id", "no", None, UNKNOWN, STABLE),
    Case("3. no member id, no instance id", "", None, REQUIRED, STABLE),
    Case("4. known member id, its instance id", "B", "B", 0, STABLE),
    Case("4. known member id, the instance id of another", "B", "C", FENCED, STABLE),
    Case("5. unknown member id, known instance id", "no", "B", FENCED, STABLE),
    Case("5. unknown member id, unknown instance id", "no", "X", UNKNOWN, STABLE),
    Case("6. no member id, known instance id", "", "B", 0, STABLE),
    Case("6. no member id, unknown instance id", "", "X", PARKED, PREPARING),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_member_id_and_instance_id_decide_a_join(case: Case) -> None:
    driven = DrivenShard()
    ids = driven.stabilise("A", "B", "C", None)
    members = dict(zip(("A", "B", "C", "dynamic"), ids, strict=True))
    protocols = (STICKY, RANGE) if case.member == "dynamic" else (RANGE,)
    request = driven.join_request(
        {"": "", "no": "no"}.get(case.member) or members.get(case.member, ""),
        case.instance_id,
        protocols=protocols,
    )
    response: Any = driven.send(request).response
    assert (response.error_code if response else PARKED) == case.error
    assert driven.group.state is case.state
    if case.error == 0:
        assert response.generation_id == driven.group.generation_id == 1
        # A new process gets a new member id, and the old assignment.
        is_new = case.member == ""
        assert (response.member_id not in ids) is is_new
        assert set(driven.group.members) == {*ids, response.member_id} - (
            {members["B"]} if is_new else set()
        )
        assigned: Any = driven.sync(response.member_id).response
        assert assigned.assignment == members["B"].encode()


Ask = Callable[[DrivenShard, str], int]


def _join(driven: DrivenShard, member_id: str) -> int:
    response: Any = driven.join(member_id, "B").response
    return int(response.error_code)


def _sync(driven: DrivenShard, member_id: str) -> int:
    response: Any = driven.sync(member_id, group_instance_id="B").response
    return int(response.error_code)


def _heartbeat(driven: DrivenShard, member_id: str) -> int:
    return driven.heartbeat(member_id, instance_id="B")


def _commit(driven: DrivenShard, member_id: str) -> int:
    partition = TopicIdPartition(FOO, 0)
    response: Any = driven.send(
        OffsetCommitRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=driven.group.generation_id,
            instance_id="B",
            offsets={partition: OffsetAndMetadata(1)},
        )
    ).response
    return int(response.errors[partition])


def _leave(driven: DrivenShard, member_id: str) -> int:
    return driven.leave(LeavingMember(member_id, "B"))[0]


@pytest.mark.parametrize("ask", [_join, _sync, _heartbeat, _commit, _leave])
def test_a_former_process_with_the_same_instance_id_is_fenced(ask: Ask) -> None:
    driven = DrivenShard()
    _, former = driven.stabilise("A", "B")
    returned: Any = driven.join(instance_id="B").response
    assert ask(driven, former) == FENCED
    assert ask(driven, returned.member_id) == ErrorCode.NONE


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_former_process_that_waits_is_fenced_at_once(phase: str) -> None:
    driven = DrivenShard()
    first, former = driven.stabilise("A", "B")
    if phase == "join":
        waiting = driven.join(former, "B", protocols=(STICKY, RANGE))
    else:
        rejoined: list[Any] = [
            driven.join(former, "B", protocols=(STICKY, RANGE)),
            driven.join(first, "A", protocols=(STICKY, RANGE)),
        ]
        follower = next(
            each.response.member_id
            for each in rejoined
            if each.response.member_id != driven.group.leader_id
        )
        waiting = driven.sync(follower)
    assert waiting.response is None
    instance_id = driven.group.members[waiting.request.member_id].instance_id
    driven.join(instance_id=instance_id)
    response: Any = waiting.response
    assert response.error_code == FENCED


@pytest.mark.parametrize("api_version", [8, 9])
def test_a_leader_that_restarts_causes_no_rebalance(api_version: int) -> None:
    driven = DrivenShard()
    ids = driven.stabilise("A", "B")
    former = driven.group.leader_id
    assert former is not None
    instance_id = driven.group.members[former].instance_id
    response: Any = driven.join(instance_id=instance_id, api_version=api_version).response
    assert driven.group.state is STABLE
    assert driven.group.leader_id == response.member_id
    if api_version >= 9:
        # It leads, so it may check the metadata, but does not assign (KIP-814).
        assert (response.leader, response.skip_assignment) == (response.member_id, True)
        assert {each.member_id for each in response.members} == {
            response.member_id,
            *ids,
        } - {former}
    else:
        # Another is named, so that it does not assign.
        assert (response.leader, response.skip_assignment) == (former, False)
        assert response.members == ()


def test_a_static_member_whose_protocols_change_the_selected_one_rebalances() -> None:
    driven = DrivenShard()
    first, _ = driven.stabilise("A", "B", protocols=(RANGE, STICKY))
    returned = driven.join(instance_id="B", protocols=(STICKY,))
    assert returned.response is None
    assert driven.heartbeat(first) == CoordinatorErrorCode.REBALANCE_IN_PROGRESS
    driven.join(first, "A", protocols=(RANGE, STICKY))
    response: Any = returned.response
    assert (response.generation_id, response.protocol_name) == (2, "sticky")


def test_a_static_member_that_returns_while_the_leader_assigns_rebalances() -> None:
    driven = DrivenShard()
    tickets = [driven.join(instance_id=each) for each in ("A", "B")]
    driven.wait_for(*tickets)
    assert driven.group.state is ClassicState.COMPLETING_REBALANCE
    returned = driven.join(instance_id="B")
    assert returned.response is None
    assert driven.group.state is PREPARING
    first: Any = tickets[0].response
    driven.join(first.member_id, "A")
    response: Any = returned.response
    assert response.generation_id == 2


def test_static_members_survive_the_rebalance_timeout_but_not_their_session() -> None:
    driven = DrivenShard()
    first, dynamic, away = driven.stabilise("A", None, "B", session_s=100.0, rebalance_s=20.0)
    driven.wait(10.0)
    joined = driven.join(first, "A", protocols=(STICKY, RANGE), session_s=100.0, rebalance_s=20.0)
    driven.wait(20.0)
    response: Any = joined.response
    assert response.generation_id == 2
    assert set(driven.group.members) == {first, away}
    assert dynamic not in driven.group.members
    driven.sync(first, {first: b"1", away: b"2"})
    # It has not synced either: after the rebalance timeout it is removed.
    driven.wait(19.0)
    assert set(driven.group.members) == {first, away}
    assert driven.heartbeat(first) == ErrorCode.NONE
    driven.wait(2.0)
    assert set(driven.group.members) == {first}
    assert driven.group.state is PREPARING


def test_a_static_member_is_removed_after_its_session() -> None:
    driven = DrivenShard()
    first, away = driven.stabilise("A", "B", session_s=30.0)
    for _ in range(3):
        assert driven.heartbeat(first) == ErrorCode.NONE
        driven.wait(9.0)
    assert driven.group.state is STABLE
    driven.heartbeat(first)
    driven.wait(4.0)
    assert away not in driven.group.members
    assert driven.group.holder_id("B") is None
    assert driven.heartbeat(first) == CoordinatorErrorCode.REBALANCE_IN_PROGRESS


def test_a_batch_of_instance_ids_leaves_with_one_rebalance() -> None:
    driven = DrivenShard()
    first, *_ = driven.stabilise("A", "B", "C", "D")
    errors = driven.leave(
        LeavingMember(instance_id="B"),
        LeavingMember(instance_id="C"),
        LeavingMember("no", "D"),
        LeavingMember(instance_id="X"),
        LeavingMember(),
    )
    assert errors == (0, 0, FENCED, UNKNOWN, UNKNOWN)
    assert {each.instance_id for each in driven.group.members.values()} == {"A", "D"}
    assert driven.heartbeat(first) == CoordinatorErrorCode.REBALANCE_IN_PROGRESS
    joined = [driven.join(each.member_id, each.instance_id) for each in driven.group.ordered]
    responses: list[Any] = [each.response for each in joined]
    assert [each.generation_id for each in responses] == [2, 2]


def test_a_static_member_may_leave_by_its_member_id_alone() -> None:
    driven = DrivenShard()
    _, second = driven.stabilise("A", "B")
    assert driven.leave(LeavingMember(second)) == (0,)
    assert driven.group.holder_id("B") is None


NINE: Final = tuple(range(9))


def _range(members: tuple[JoinedMember, ...]) -> Mapping[str, bytes]:
    """Assign nine partitions in ranges to members in the order of their instance ids."""
    ordered = sorted(members, key=lambda each: each.group_instance_id or each.member_id)
    share = len(NINE) // len(ordered)
    return {
        each.member_id: encode_assignment(
            EmbeddedAssignment(
                partitions=frozenset(
                    TopicPartition("foo", number)
                    for number in NINE[index * share : (index + 1) * share]
                )
            )
        )
        for index, each in enumerate(ordered)
    }


def test_the_leader_sees_instance_ids_and_assigns_the_same_after_a_restart() -> None:
    driven = DrivenShard()
    tickets = [driven.join(instance_id=each) for each in ("A", "B", "C")]
    driven.wait_for(*tickets)

    def assigned() -> dict[str, list[int]]:
        responses: list[Any] = [each.response for each in tickets]
        leader = next(each for each in responses if each.members)
        syncs = []
        for each in sorted(responses, key=lambda each: each is leader):
            assignments = _range(leader.members) if each is leader else {}
            syncs.append((each.member_id, driven.sync(each.member_id, assignments)))
        shares = {}
        for member_id, ticket in syncs:
            answer: Any = ticket.response
            partitions = decode_assignment(answer.assignment).partitions
            instance_id = driven.group.members[member_id].instance_id or ""
            shares[instance_id] = sorted(each.partition for each in partitions)
        return shares

    shares = {"A": [0, 1, 2], "B": [3, 4, 5], "C": [6, 7, 8]}
    assert assigned() == shares
    first: Any = tickets[0].response
    returned: Any = driven.join(instance_id="A").response
    assert returned.member_id != first.member_id
    answer: Any = driven.sync(returned.member_id).response
    partitions = decode_assignment(answer.assignment).partitions
    assert sorted(each.partition for each in partitions) == shares["A"]
    # Then all rebalance, because of a new topic for example.
    leader = driven.group.leader_id or ""
    members = sorted(driven.group.members.values(), key=lambda each: each.member_id != leader)
    tickets = [driven.join(each.member_id, each.instance_id) for each in members]
    assert driven.group.generation_id == 2
    assert assigned() == shares
