"""What a client asks next on each channel, and what it waits for before it asks again."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.client import Channel
from spark_groups.errors import ErrorCode
from spark_groups.offsets.events import (
    CoordinatorMissing,
    DescriptionRefused,
    RequestUnanswered,
    StartUnknown,
)
from spark_groups.offsets.planning import PlanLimit
from spark_groups.offsets.starting import StartingOffsets, StartingPoint
from spark_groups.protocol import messages as m
from spark_groups.types import Assignment, BatchPlan, OffsetRange, TopicPartition
from tests.client.hands import (
    NODE,
    ORDERS,
    TOPIC,
    Hands,
    accepted,
    all_of,
    committed,
    described,
    ends,
    indexes,
    key,
    parts,
)

OLD_PLAN = BatchPlan("g", "old", 7, (OffsetRange(TOPIC, "orders", 0, 0, 5),))


def test_coordinator_is_looked_for_before_anything_is_asked_of_it() -> None:
    hands = Hands()
    assert isinstance(hands.request(Channel.SEARCH), m.FindCoordinatorRequest)
    assert set(hands.under_way) == {Channel.SEARCH, Channel.CLUSTER}
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    assert isinstance(hands.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    assert hands.under_way[Channel.HEARTBEAT].node == NODE
    assert isinstance(hands.request(Channel.CLUSTER), m.MetadataRequest)


def test_a_leader_that_does_not_answer_does_not_hold_up_the_search_for_the_coordinator() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, parts(0)))
    hands.beat(accepted(2))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    assert isinstance(hands.request(Channel.CLUSTER), m.ListOffsetsRequest)
    hands.until(m.HeartbeatRequest)
    hands.fail(Channel.HEARTBEAT)
    assert isinstance(hands.request(Channel.SEARCH), m.FindCoordinatorRequest)
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    hands.until(m.HeartbeatRequest, seconds=2.0)
    assert Channel.CLUSTER in hands.under_way


def test_coordinator_that_is_not_found_is_looked_for_again_with_pauses() -> None:
    hands = Hands()
    hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(error_code=15))
    hands.answer(Channel.CLUSTER, m.MetadataResponse(topics=(ORDERS,)))
    times = [0.0]
    for _ in range(5):
        hands.until(m.FindCoordinatorRequest)
        times.append(hands.now)
        hands.answer(Channel.SEARCH, m.FindCoordinatorResponse(error_code=15))
    assert times == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5, 2.5])
    assert [each.error for each in hands.find(CoordinatorMissing)] == ["COORDINATOR_NOT_AVAILABLE"]
    assert hands.client.failing_since == 0.0
    assert "COORDINATOR_NOT_AVAILABLE" in hands.client.last_failure


def test_no_answer_of_the_coordinator_makes_the_client_look_for_it() -> None:
    hands = Hands()
    hands.describes = False
    hands.own(0)
    hands.until(m.HeartbeatRequest)
    hands.fail(Channel.HEARTBEAT)
    assert isinstance(hands.request(Channel.SEARCH), m.FindCoordinatorRequest)
    assert len(hands.find(RequestUnanswered)) == 1
    assert hands.client.failing_since == hands.now
    began_at = hands.now
    hands.cluster()
    assert hands.client.failing_since == began_at, "other brokers answer all the while"
    hands.beat(accepted(2))
    assert hands.client.failing_since is None


def test_no_answer_about_offsets_makes_a_heartbeat_ask_whether_the_coordinator_is_there() -> None:
    hands = Hands()
    hands.describes = False
    hands.own(0)
    hands.fail(Channel.OFFSETS)
    assert hands.client.failing_since == hands.now
    assert Channel.SEARCH not in hands.under_way, "nobody says that it is somewhere else"
    assert isinstance(hands.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    hands.beat(accepted(2))
    assert hands.client.failing_since is None


@pytest.mark.parametrize("static", [True, False])
def test_member_id_of_the_checkpoint_is_released_before_the_join(static: bool) -> None:
    member: dict[str, object] = {"instance_id": "i1"} if static else {}
    hands = Hands(checkpointed=OLD_PLAN, **member)
    hands.cluster()
    release = hands.request(Channel.HEARTBEAT)
    assert isinstance(release, m.HeartbeatRequest)
    assert (release.member_id, release.member_epoch) == ("old", -2 if static else -1)
    assert release.instance_id == ("i1" if static else None)
    hands.answer(Channel.HEARTBEAT, m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    if static:
        # It may have been a dynamic one then.
        by_id = hands.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        assert (by_id.member_id, by_id.member_epoch, by_id.instance_id) == ("old", -1, None)
    join = hands.request(Channel.HEARTBEAT)
    assert isinstance(join, m.HeartbeatRequest)
    assert (join.member_id, join.member_epoch) == ("m1", 0)


def test_member_id_of_another_groups_checkpoint_is_left_alone() -> None:
    hands = Hands(checkpointed=BatchPlan("other", "old", 7))
    hands.cluster()
    assert hands.beat(accepted(1, parts())).member_id == "m1"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT])
def test_release_that_was_refused_for_now_is_sent_again(code: ErrorCode) -> None:
    hands = Hands(checkpointed=OLD_PLAN)
    hands.cluster()
    assert hands.beat(m.HeartbeatResponse(error_code=code)).member_id == "old"
    hands.wait(0.2)
    hands.cluster()
    assert hands.beat(m.HeartbeatResponse(member_epoch=-1)).member_id == "old"
    assert hands.beat(accepted(1, parts())).member_id == "m1"


def test_release_that_gets_no_answer_is_not_hurried() -> None:
    hands = Hands(checkpointed=OLD_PLAN)
    sent = 0
    while hands.now < 3.0:
        hands.until(m.FindCoordinatorRequest)
        hands.cluster()
        if Channel.HEARTBEAT in hands.under_way:
            sent += 1
            hands.fail(Channel.HEARTBEAT)
    assert 3 < sent <= 31


def test_id_that_was_fenced_while_joining_is_released_before_the_new_one_joins() -> None:
    hands = Hands()
    hands.own(0)
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    release = hands.beat(m.HeartbeatResponse(member_epoch=-1))
    assert (release.member_id, release.member_epoch) == ("m1", -1)
    join = hands.beat(accepted(4, parts()))
    assert (join.member_id, join.member_epoch) == ("m2", 0)


def test_commits_go_before_fetches_and_those_before_descriptions() -> None:
    hands = Hands()
    hands.own(0)
    plan = hands.client.plan(PlanLimit(), ends({0: 5}), hands.now)
    assert plan is not None
    hands.describes = False
    hands.beat(accepted(3, parts(0, 1)))
    first = hands.request(Channel.OFFSETS)
    assert isinstance(first, m.OffsetFetchRequest)
    hands.client.finish(plan, hands.now)
    hands.answer(Channel.OFFSETS, committed({0: 0, 1: 0}))
    second = hands.request(Channel.OFFSETS)
    assert isinstance(second, m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(second))
    assert isinstance(hands.until(m.DescribeGroupRequest), m.DescribeGroupRequest)


def test_fetch_carries_the_member_and_asks_for_the_whole_topic_under_latest() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, parts(1)))
    request = hands.request(Channel.OFFSETS)
    assert isinstance(request, m.OffsetFetchRequest)
    assert (request.member_id, request.member_epoch) == ("m1", 2)
    assert indexes(request.partitions) == [0, 1, 2, 3]


def test_fetch_refused_as_stale_waits_for_a_heartbeat_sent_after_it() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, parts(0)))
    hands.until(m.HeartbeatRequest)
    hands.wait(0.5)
    hands.answer(Channel.OFFSETS, m.OffsetFetchResponse(error_code=ErrorCode.STALE_MEMBER_EPOCH))
    hands.answer(Channel.HEARTBEAT, accepted(3))
    hands.wait(0.001)
    assert not isinstance(hands.request(Channel.OFFSETS), m.OffsetFetchRequest)
    hands.beat(accepted(4))
    hands.wait(0.2)
    request = hands.until(m.OffsetFetchRequest)
    assert isinstance(request, m.OffsetFetchRequest)
    assert request.member_epoch == 4


def test_topic_that_cannot_be_found_does_not_keep_others_from_being_listed() -> None:
    unknown = uuid.UUID(int=99)
    hands = Hands()
    hands.cluster()
    both = Assignment.of({TOPIC: (0,), unknown: (0,)})
    hands.beat(accepted(2, both))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    asked = []
    for _ in range(6):
        while Channel.CLUSTER not in hands.under_way:
            hands.wait(0.05)
        request = hands.request(Channel.CLUSTER)
        asked.append(type(request))
        if isinstance(request, m.ListOffsetsRequest):
            break
        hands.answer(Channel.CLUSTER, m.MetadataResponse())
    assert asked[-1] is m.ListOffsetsRequest
    assert len(asked) <= 3


def test_start_that_cannot_be_listed_does_not_keep_the_others_from_being_listed() -> None:
    starting = StartingOffsets(
        StartingPoint.EARLIEST, {TopicPartition("orders", 0): m.LATEST_TIMESTAMP}
    )
    hands = Hands(starting)
    hands.cluster()
    hands.beat(accepted(2, parts(0, 1)))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    asked = []
    for _ in range(4):
        request = hands.until(m.ListOffsetsRequest)
        assert isinstance(request, m.ListOffsetsRequest)
        asked.append((request.timestamp_ms, indexes(request.partitions)))
        errors = dict.fromkeys(request.partitions, int(ErrorCode.LEADER_NOT_AVAILABLE))
        hands.answer(Channel.CLUSTER, m.ListOffsetsResponse(errors=errors))
    assert asked == [(-1, [0]), (-2, [1])] * 2
    told = [(each.error, indexes(each.partitions)) for each in hands.find(StartUnknown)]
    assert told == [("LEADER_NOT_AVAILABLE", [0]), ("LEADER_NOT_AVAILABLE", [1])]


def test_start_that_nobody_knows_is_told_again_when_the_problem_changes() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, parts(0, 1)))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({}))
    missing, down = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION
    answers = ({0: missing}, {0: missing}, {0: down}, {0: down}, {})
    for errors in answers:
        request = hands.until(m.ListOffsetsRequest)
        assert isinstance(request, m.ListOffsetsRequest)
        refused = {key(index): int(code) for index, code in errors.items()}
        found = dict.fromkeys(request.partitions - set(refused), 5)
        hands.answer(Channel.CLUSTER, m.ListOffsetsResponse(offsets=found, errors=refused))
    told = [(each.error, indexes(each.partitions)) for each in hands.find(StartUnknown)]
    assert told == [(missing.name, [0]), (down.name, [0])]


def test_nothing_is_asked_of_the_cluster_once_the_member_leaves() -> None:
    hands = Hands()
    hands.cluster()
    hands.beat(accepted(2, Assignment.of({uuid.UUID(int=99): (0,)})))
    hands.fail(Channel.CLUSTER)
    hands.client.leave(hands.now, leave_by=hands.now + 5.0)
    hands.wait(2.0)
    assert Channel.CLUSTER not in hands.under_way


def test_answer_to_a_request_that_is_not_under_way_is_ignored() -> None:
    hands = Hands()
    outgoing = hands.under_way[Channel.SEARCH]
    hands.cluster()
    hands.client.handle_response(outgoing, m.FindCoordinatorResponse(error_code=30), hands.now)
    assert hands.client.member.failure is None


def test_description_that_says_more_quickens_the_heartbeats() -> None:
    hands = Hands()
    hands.describes = False
    hands.own(0)
    hands.answer(Channel.OFFSETS, described("m1", 2, parts(0, 1), current=parts(0)))
    hands.beat(accepted(2))
    before = hands.now
    hands.beat(accepted(2))
    assert hands.now - before == pytest.approx(0.3)
    assert indexes(hands.client.target.pending) == [1]
    assert not hands.client.is_settled


def test_assignment_that_was_never_told_is_asked_for_in_full() -> None:
    """An answer to a heartbeat that came late is lost, and nothing but a full one repeats it."""
    hands = Hands()
    hands.describes = False
    hands.own(0)
    hands.answer(Channel.OFFSETS, described("m1", 2, parts(0, 1)))
    request = hands.beat(accepted(2, parts(0, 1)))
    assert request.topic_partitions == parts(0)
    assert request.rebalance_timeout_ms > 0
    assert hands.client.member.owned == parts(0, 1)


def test_description_that_failed_does_not_slow_the_heartbeats_down() -> None:
    hands = Hands()
    hands.describes = False
    hands.own(0)
    refusal = m.DescribeGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    hands.answer(Channel.OFFSETS, refusal)
    hands.beat(accepted(2))
    before = hands.now
    hands.beat(accepted(2))
    assert hands.now - before == pytest.approx(0.3)


def test_description_that_is_refused_for_good_is_told_once_and_not_waited_for() -> None:
    hands = Hands()
    hands.describes = False
    hands.cluster()
    hands.beat(accepted(2))
    refusal = m.DescribeGroupResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    hands.answer(Channel.OFFSETS, refusal)
    assert hands.client.target.is_refused
    assert not hands.client.is_settled, "nothing is all there is to have only if that is told"
    hands.beat(accepted(2, parts(0)))
    hands.cluster()
    hands.beat(accepted(2))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Channel.OFFSETS, committed({0: 0}))
    hands.until(m.DescribeGroupRequest)
    hands.answer(Channel.OFFSETS, refusal)
    assert hands.client.is_settled
    assert [each.error for each in hands.find(DescriptionRefused)] == ["TOPIC_AUTHORIZATION_FAILED"]


def test_position_that_no_leader_confirms_does_not_keep_others_from_being_asked_about() -> None:
    unknown = uuid.UUID(int=99)
    hands = Hands()
    hands.own(0, offsets={0: 5})
    hands.client.ledger.owned[key(0)].leader_epoch = 1
    hands.plan(PlanLimit(), ends({0: 9}), {key(0): 2})
    hands.beat(accepted(3, Assignment.of({TOPIC: (0,), unknown: (0,)})))
    asked = set()
    for _ in range(6):
        while Channel.CLUSTER not in hands.under_way:
            hands.wait(0.05)
        request = hands.request(Channel.CLUSTER)
        asked.add(type(request))
        if isinstance(request, m.OffsetForLeaderEpochRequest):
            fenced = dict.fromkeys(request.lookups, int(ErrorCode.FENCED_LEADER_EPOCH))
            hands.answer(Channel.CLUSTER, m.OffsetForLeaderEpochResponse(errors=fenced))
        else:
            hands.fail(Channel.CLUSTER)
    assert asked >= {m.MetadataRequest, m.OffsetForLeaderEpochRequest}
