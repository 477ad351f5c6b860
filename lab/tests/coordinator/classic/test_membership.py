"""Heartbeat, LeaveGroup, OffsetCommit and DescribeGroups of classic members, and their offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator import messages as m
from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    ClassicProtocol,
    DescribeGroupsRequest,
)
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeavingMember
from group_lab.coordinator.records import ClassicGroupMetadataKey, OffsetCommitKey
from group_lab.coordinator.settings import BrokerSettings, Settings
from lab.tests.coordinator.classic.driving import (
    FOO_0,
    GROUP,
    METADATA,
    RANGE,
    STICKY,
    DrivenShard,
    commit,
)
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from spark_groups.types import TopicPartition

UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
REBALANCES = CoordinatorErrorCode.REBALANCE_IN_PROGRESS


def listed(driven: DrivenShard) -> list[m.ListedGroup]:
    response: Any = driven.send(m.ListGroupsRequest()).response
    return list(response.groups)


def delete(driven: DrivenShard) -> int:
    response: Any = driven.send(m.DeleteGroupsRequest(group_id=GROUP)).response
    return int(response.error_code)


def delete_offsets(driven: DrivenShard) -> m.OffsetDeleteResponse:
    both = frozenset({TopicPartition("foo", 0), TopicPartition("bar", 0)})
    response: Any = driven.send(m.OffsetDeleteRequest(group_id=GROUP, partitions=both)).response
    assert isinstance(response, m.OffsetDeleteResponse)
    return response


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": ""}, CoordinatorErrorCode.INVALID_GROUP_ID),
        ({"group_id": "no"}, UNKNOWN),
        ({"member_id": "no"}, UNKNOWN),
        ({"generation_id": 0}, ILLEGAL),
        ({"generation_id": 2}, ILLEGAL),
        ({"group_instance_id": "X"}, UNKNOWN),
    ],
)
def test_a_heartbeat_is_checked(changes: dict[str, Any], error: int) -> None:
    driven = DrivenShard()
    (member_id,) = driven.stabilise(None)
    request = ClassicHeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    response: Any = driven.send(replace(request, **changes)).response
    assert response.error_code == error


def test_a_heartbeat_waits_for_the_records_before_it() -> None:
    driven = DrivenShard()
    first, _ = driven.stabilise(None, None)
    driven.replicates = False
    driven.send(
        OffsetCommitRequest(
            group_id=GROUP, member_id=first, member_epoch=1, offsets={FOO_0: OffsetAndMetadata(1)}
        )
    )
    request = ClassicHeartbeatRequest(group_id=GROUP, generation_id=1, member_id=first)
    ticket = driven.send(request)
    assert ticket.response is None
    # One that is refused does not.
    refused: Any = driven.send(replace(request, generation_id=0)).response
    assert refused.error_code == ILLEGAL
    driven.replicate()
    assert ticket.response is not None


def test_members_that_leave_together_cause_one_rebalance() -> None:
    driven = DrivenShard()
    first, second, third = driven.stabilise(None, None, None)
    waiting = driven.join(third, protocols=(STICKY, RANGE))
    errors = driven.leave(LeavingMember(second), LeavingMember("no"), LeavingMember(third))
    assert errors == (0, UNKNOWN, 0)
    response: Any = waiting.response
    assert (response.error_code, response.member_id) == (UNKNOWN, "")
    assert driven.heartbeat(first) == REBALANCES
    rejoined: Any = driven.join(first).response
    assert rejoined.generation_id == 2


def test_the_last_member_that_leaves_empties_the_group() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    driven.replicates = False
    ticket = driven.send(m.LeaveGroupRequest(group_id=GROUP, members=(LeavingMember(first),)))
    assert driven.group.state is ClassicState.EMPTY
    assert ticket.response is None
    driven.replicate()
    assert ticket.response is not None
    assert driven.leave(LeavingMember(first)) == (UNKNOWN,)


def test_members_of_no_group_cannot_leave() -> None:
    driven = DrivenShard()
    assert driven.leave(LeavingMember("m"), LeavingMember(instance_id="A")) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    ("member", "generation_id", "instance_id", "error"),
    [
        ("A", 1, "A", ErrorCode.NONE),
        ("A", 1, None, ErrorCode.NONE),
        ("A", 0, None, ILLEGAL),
        ("A", 2, None, ILLEGAL),
        ("A", -1, None, ILLEGAL),
        ("A", 1, "B", ErrorCode.FENCED_INSTANCE_ID),
        ("A", 1, "X", UNKNOWN),
        ("no", 1, None, UNKNOWN),
        ("", 1, None, UNKNOWN),
        # An operator may not commit for a group with members.
        ("", -1, None, UNKNOWN),
    ],
)
@pytest.mark.parametrize("api_version", [8, 9])
def test_a_member_commits_in_its_generation(
    member: str, generation_id: int, instance_id: str | None, error: int, api_version: int
) -> None:
    driven = DrivenShard()
    first, _ = driven.stabilise("A", "B")
    member_id = first if member == "A" else member
    assert error == commit(
        driven, member_id, generation_id, instance_id=instance_id, api_version=api_version
    )


def test_a_member_may_commit_until_the_next_generation_begins() -> None:
    driven = DrivenShard()
    first, second = driven.stabilise(None, None)
    driven.join(protocols=(RANGE,))
    assert driven.group.state is ClassicState.PREPARING_REBALANCE
    assert commit(driven, first, 1) == ErrorCode.NONE
    driven.join(first)
    driven.join(second)
    assert driven.group.state is ClassicState.COMPLETING_REBALANCE
    assert commit(driven, first, 1) == ILLEGAL
    assert commit(driven, first, 2) == REBALANCES
    driven.sync_all()
    assert commit(driven, first, 2) == ErrorCode.NONE


def test_a_commit_extends_the_session() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    for _ in range(3):
        driven.wait(9.0)
        assert commit(driven, first, 1) == ErrorCode.NONE
    driven.wait(10.0)
    assert not driven.group.members


def test_an_operator_commits_for_an_empty_group_and_any_client_fetches() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    driven.leave(LeavingMember(first))
    assert commit(driven, "", -1) == ErrorCode.NONE
    driven.stabilise(None)
    request = OffsetFetchRequest(group_id=GROUP, partitions=frozenset({FOO_0}))
    response: Any = driven.send(request).response
    assert response.answers[FOO_0].committed_offset == 7


def test_a_description_shows_metadata_only_while_the_group_is_stable() -> None:
    driven = DrivenShard()

    def described() -> Any:
        return driven.send(DescribeGroupsRequest(group_id=GROUP)).response

    assert described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described().error_message == "Group g not found."
    assert described().group_state == "Dead"
    (first,) = driven.stabilise("A")
    (member,) = described().members
    assert (described().group_state, described().protocol_data) == ("Stable", "range")
    assert (member.member_id, member.group_instance_id) == (first, "A")
    assert (member.member_metadata, member.member_assignment) == (METADATA, first.encode())
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    driven.join()
    assert described().group_state == "PreparingRebalance"
    assert (described().protocol_type, described().protocol_data) == ("consumer", "")
    assert [each.member_metadata for each in described().members] == [b"", b""]


@pytest.mark.parametrize(
    ("api_version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_before_v6_a_missing_group_is_only_dead(api_version: int, error: int) -> None:
    request = DescribeGroupsRequest(group_id=GROUP)
    response: Any = DrivenShard().send(request, api_version=api_version).response
    assert (response.error_code, response.group_state) == (error, "Dead")
    assert (response.error_message is None) is (error == ErrorCode.NONE)


def test_a_list_shows_the_state_of_a_classic_group() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    entry = m.ListedGroup(group_id=GROUP, group_state="Stable", group_type="classic")
    assert listed(driven) == [entry]
    driven.leave(LeavingMember(first))
    assert listed(driven) == [replace(entry, group_state="Empty")]


def test_only_an_empty_group_is_deleted() -> None:
    driven = DrivenShard()
    first, _ = driven.stabilise("A", "B")
    assert delete(driven) == ErrorCode.NON_EMPTY_GROUP
    driven.join(first, "A", protocols=(STICKY, RANGE))
    assert delete(driven) == ErrorCode.NON_EMPTY_GROUP
    commit(driven, first, 1)
    driven.leave(LeavingMember(instance_id="A"), LeavingMember(instance_id="B"))
    assert delete(driven) == ErrorCode.NONE
    kinds = [type(each.key) for each in driven.log.batches[-1].records]
    assert kinds == [OffsetCommitKey, OffsetCommitKey, ClassicGroupMetadataKey]
    assert listed(driven) == []
    assert delete(driven) == ErrorCode.GROUP_ID_NOT_FOUND
    assert GROUP not in driven.shard.memory.classic


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    driven = DrivenShard()
    (first,) = driven.stabilise(None)
    commit(driven, first, 1)
    assert delete_offsets(driven).errors == {
        TopicPartition("foo", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        TopicPartition("bar", 0): ErrorCode.NONE,
    }
    driven.leave(LeavingMember(first))
    assert set(delete_offsets(driven).errors.values()) == {0}


def test_no_offset_of_a_group_of_workers_is_deleted_while_it_has_members() -> None:
    driven = DrivenShard()
    connect = replace(driven.join_request(), protocol_type="connect")
    given: Any = driven.send(connect).response
    driven.wait_for(driven.send(replace(connect, member_id=given.member_id)))
    assert delete_offsets(driven).error_code == ErrorCode.NON_EMPTY_GROUP


def without_timeouts() -> Settings:
    return Settings(BrokerSettings(offsets_retention_s=3600.0))


def offsets_of(driven: DrivenShard) -> set[tuple[str, int]]:
    return set(driven.shard.memory.group(GROUP).offsets)


def keep_alive(driven: DrivenShard, member_id: str, seconds: float) -> None:
    for _ in range(int(seconds // 600)):
        driven.wait(600.0)
        assert driven.heartbeat(member_id) == ErrorCode.NONE


def stable(driven: DrivenShard, *protocols: ClassicProtocol) -> str:
    (member_id,) = driven.stabilise(None, session_s=1800.0, protocols=protocols or (RANGE,))
    return member_id


def test_offsets_of_other_topics_expire_while_a_group_is_stable() -> None:
    driven = DrivenShard(settings=without_timeouts())
    member_id = stable(driven)
    commit(driven, member_id, 1)
    keep_alive(driven, member_id, 6000.0)
    assert offsets_of(driven) == {("foo", 0)}


def test_offsets_of_a_group_with_unreadable_subscriptions_stay() -> None:
    driven = DrivenShard(settings=without_timeouts())
    member_id = stable(driven, ClassicProtocol("range", b"?"))
    commit(driven, member_id, 1)
    keep_alive(driven, member_id, 6000.0)
    assert offsets_of(driven) == {("foo", 0), ("bar", 0)}


@pytest.mark.parametrize("is_loaded", [False, True])
def test_offsets_of_an_empty_group_expire_counted_from_its_last_member(is_loaded: bool) -> None:
    driven = DrivenShard(settings=without_timeouts())
    member_id = stable(driven)
    commit(driven, member_id, 1)
    keep_alive(driven, member_id, 3000.0)
    driven.leave(LeavingMember(member_id))
    if is_loaded:
        driven.fail_over()
    driven.wait(3000.0)
    assert offsets_of(driven) == {("foo", 0), ("bar", 0)}
    driven.wait(1300.0)
    assert listed(driven) == []
