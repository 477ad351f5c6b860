"""What a client asks next on each channel, and what it waits for before it asks again."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import (
    CoordinatorMissing,
    DescriptionRefused,
    PartitionsWait,
    RequestUnanswered,
)
from spark_groups.group.ledger.positions import SAID_AFTER_S
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member import messages as m
from spark_groups.group.member.backoff import MAX_BACKOFF_S
from spark_groups.group.requests.channels import Channel
from spark_groups.types import LATEST_TIMESTAMP, Assignment, BatchPlan, OffsetRange, TopicPartition
from tests.answers import epoch_answer, list_answer
from tests.group.harness import (
    NODE,
    ORDERS,
    TOPIC,
    ClientHarness,
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
    harness = ClientHarness()
    assert isinstance(harness.request(Channel.SEARCH), m.FindCoordinatorRequest)
    assert set(harness.under_way) == {Channel.SEARCH, Channel.CLUSTER}
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    assert isinstance(harness.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    assert harness.under_way[Channel.HEARTBEAT].node == NODE
    assert isinstance(harness.request(Channel.CLUSTER), m.MetadataRequest)


def test_a_leader_that_does_not_answer_does_not_hold_up_the_search_for_the_coordinator() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, parts(0)))
    harness.beat(accepted(2))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    assert isinstance(harness.request(Channel.CLUSTER), m.ListOffsetsRequest)
    harness.until(m.HeartbeatRequest)
    harness.fail(Channel.HEARTBEAT)
    assert isinstance(harness.request(Channel.SEARCH), m.FindCoordinatorRequest)
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(coordinator=NODE))
    harness.until(m.HeartbeatRequest, seconds=2.0)
    assert Channel.CLUSTER in harness.under_way


def test_coordinator_that_is_not_found_is_looked_for_again_with_pauses() -> None:
    harness = ClientHarness()
    harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(error_code=15))
    harness.answer(Channel.CLUSTER, m.MetadataResponse(topics=(ORDERS,)))
    times = [0.0]
    for _ in range(5):
        harness.until(m.FindCoordinatorRequest)
        times.append(harness.now)
        harness.answer(Channel.SEARCH, m.FindCoordinatorResponse(error_code=15))
    assert times == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5, 2.5])
    assert [each.error for each in harness.find(CoordinatorMissing)] == [
        "COORDINATOR_NOT_AVAILABLE"
    ]
    assert harness.client.parts.search.failing_since == 0.0
    assert "COORDINATOR_NOT_AVAILABLE" in harness.client.parts.search.last_failure


def test_no_answer_of_the_coordinator_makes_the_client_look_for_it() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.own(0)
    harness.until(m.HeartbeatRequest)
    harness.fail(Channel.HEARTBEAT)
    assert isinstance(harness.request(Channel.SEARCH), m.FindCoordinatorRequest)
    assert len(harness.find(RequestUnanswered)) == 1
    assert harness.client.parts.search.failing_since == harness.now
    began_at = harness.now
    harness.cluster()
    assert harness.client.parts.search.failing_since == began_at, (
        "other brokers answer all the while"
    )
    harness.beat(accepted(2))
    assert harness.client.parts.search.failing_since is None


def test_no_answer_about_offsets_makes_a_heartbeat_ask_whether_the_coordinator_is_there() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.own(0)
    harness.fail(Channel.OFFSETS)
    assert harness.client.parts.search.failing_since == harness.now
    assert Channel.SEARCH not in harness.under_way, "no answer says that it moved"
    assert isinstance(harness.request(Channel.HEARTBEAT), m.HeartbeatRequest)
    harness.beat(accepted(2))
    assert harness.client.parts.search.failing_since is None


@pytest.mark.parametrize("static", [True, False])
def test_member_id_of_the_checkpoint_is_released_before_the_join(static: bool) -> None:
    member: dict[str, object] = {"instance_id": "i1"} if static else {}
    harness = ClientHarness(checkpointed=OLD_PLAN, **member)
    harness.cluster()
    release = harness.request(Channel.HEARTBEAT)
    assert isinstance(release, m.HeartbeatRequest)
    assert (release.member_id, release.member_epoch) == ("old", -2 if static else -1)
    assert release.instance_id == ("i1" if static else None)
    harness.answer(Channel.HEARTBEAT, m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    if static:
        # It may have been a dynamic one then.
        by_id = harness.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        assert (by_id.member_id, by_id.member_epoch, by_id.instance_id) == ("old", -1, None)
    join = harness.request(Channel.HEARTBEAT)
    assert isinstance(join, m.HeartbeatRequest)
    assert (join.member_id, join.member_epoch) == ("m1", 0)


def test_member_id_of_another_groups_checkpoint_is_left_alone() -> None:
    harness = ClientHarness(checkpointed=BatchPlan("other", "old", 7))
    harness.cluster()
    assert harness.beat(accepted(1, parts())).member_id == "m1"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT])
def test_release_that_was_refused_for_now_is_sent_again(code: ErrorCode) -> None:
    harness = ClientHarness(checkpointed=OLD_PLAN)
    harness.cluster()
    assert harness.beat(m.HeartbeatResponse(error_code=code)).member_id == "old"
    harness.wait(0.2)
    harness.cluster()
    assert harness.beat(m.HeartbeatResponse(member_epoch=-1)).member_id == "old"
    assert harness.beat(accepted(1, parts())).member_id == "m1"


def test_release_that_gets_no_answer_is_not_hurried() -> None:
    harness = ClientHarness(checkpointed=OLD_PLAN)
    sent = 0
    while harness.now < 3.0:
        harness.until(m.FindCoordinatorRequest)
        harness.cluster()
        if Channel.HEARTBEAT in harness.under_way:
            sent += 1
            harness.fail(Channel.HEARTBEAT)
    assert 3 < sent <= 31


def test_id_that_was_fenced_while_joining_is_released_before_the_new_one_joins() -> None:
    harness = ClientHarness()
    harness.own(0)
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
    release = harness.beat(m.HeartbeatResponse(member_epoch=-1))
    assert (release.member_id, release.member_epoch) == ("m1", -1)
    join = harness.beat(accepted(4, parts()))
    assert (join.member_id, join.member_epoch) == ("m2", 0)


def test_commits_go_before_fetches_and_those_before_descriptions() -> None:
    harness = ClientHarness()
    harness.own(0)
    plan = harness.client.plan(PlanLimit(), ends({0: 5}), harness.now)
    assert plan is not None
    harness.describes = False
    harness.beat(accepted(3, parts(0, 1)))
    first = harness.request(Channel.OFFSETS)
    assert isinstance(first, m.OffsetFetchRequest)
    harness.client.finish(plan, harness.now)
    harness.answer(Channel.OFFSETS, committed({0: 0, 1: 0}))
    second = harness.request(Channel.OFFSETS)
    assert isinstance(second, m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(second))
    assert isinstance(harness.until(m.DescribeGroupRequest), m.DescribeGroupRequest)


def test_fetch_carries_the_member_and_asks_for_the_whole_topic_under_latest() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, parts(1)))
    request = harness.request(Channel.OFFSETS)
    assert isinstance(request, m.OffsetFetchRequest)
    assert (request.member_id, request.member_epoch) == ("m1", 2)
    assert indexes(request.partitions) == [0, 1, 2, 3]


def test_fetch_refused_as_stale_waits_for_a_heartbeat_sent_after_it() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, parts(0)))
    harness.until(m.HeartbeatRequest)
    harness.wait(0.5)
    harness.answer(Channel.OFFSETS, m.OffsetFetchResponse(error_code=ErrorCode.STALE_MEMBER_EPOCH))
    harness.answer(Channel.HEARTBEAT, accepted(3))
    harness.wait(0.001)
    assert not isinstance(harness.request(Channel.OFFSETS), m.OffsetFetchRequest)
    harness.beat(accepted(4))
    harness.wait(0.2)
    request = harness.until(m.OffsetFetchRequest)
    assert isinstance(request, m.OffsetFetchRequest)
    assert request.member_epoch == 4


def test_topic_that_cannot_be_found_does_not_keep_others_from_being_listed() -> None:
    unknown = uuid.UUID(int=99)
    harness = ClientHarness()
    harness.cluster()
    both = Assignment.of({TOPIC: (0,), unknown: (0,)})
    harness.beat(accepted(2, both))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    asked = []
    for _ in range(6):
        while Channel.CLUSTER not in harness.under_way:
            harness.wait(0.05)
        request = harness.request(Channel.CLUSTER)
        asked.append(type(request))
        if isinstance(request, m.ListOffsetsRequest):
            break
        harness.answer(Channel.CLUSTER, m.MetadataResponse())
    assert asked[-1] is m.ListOffsetsRequest
    assert len(asked) <= 3


def test_start_that_cannot_be_listed_does_not_keep_the_others_from_being_listed() -> None:
    starting = StartingOffsets(
        StartingPoint.EARLIEST, {TopicPartition("orders", 0): LATEST_TIMESTAMP}
    )
    harness = ClientHarness(starting)
    harness.cluster()
    harness.beat(accepted(2, parts(0, 1)))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    asked, began_at = [], harness.now
    while harness.now < began_at + SAID_AFTER_S + 2 * MAX_BACKOFF_S:
        request = harness.until(m.ListOffsetsRequest)
        assert isinstance(request, m.ListOffsetsRequest)
        asked.append((request.timestamp_ms, indexes(request.partitions)))
        errors = dict.fromkeys(request.partitions, int(ErrorCode.LEADER_NOT_AVAILABLE))
        harness.answer(Channel.CLUSTER, list_answer(errors=errors))
    assert asked[:4] == [(-1, [0]), (-2, [1])] * 2
    reported = [
        (each.request, each.error, indexes(each.partitions))
        for each in harness.find(PartitionsWait)
    ]
    unlisted = "ListOffsets", "LEADER_NOT_AVAILABLE"
    assert sorted(reported) == [(*unlisted, [0]), (*unlisted, [1])]


def test_unknown_start_is_reported_again_when_the_problem_changes() -> None:
    harness = ClientHarness()
    began_at = harness.now
    harness.cluster()
    harness.beat(accepted(2, parts(0, 1)))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({}))
    missing, down = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION
    for errors in (*[{0: missing}] * 8, *[{0: down}, {0: missing}] * 2, {}):
        request = harness.until(m.ListOffsetsRequest)
        assert isinstance(request, m.ListOffsetsRequest)
        refused = {key(index): int(code) for index, code in errors.items()}
        found = dict.fromkeys(request.partitions - set(refused), 5)
        harness.answer(Channel.CLUSTER, list_answer(offsets=found, errors=refused))
    reports = harness.find(PartitionsWait)
    reported = [(each.error, indexes(each.partitions)) for each in reports]
    assert reported == [(missing.name, [0]), (down.name, [0])], "each error once"
    assert reports[0].at >= began_at + SAID_AFTER_S, "most errors are over sooner"
    assert not harness.client.parts.positions.waits()


def test_nothing_is_asked_of_the_cluster_once_the_member_leaves() -> None:
    harness = ClientHarness()
    harness.cluster()
    harness.beat(accepted(2, Assignment.of({uuid.UUID(int=99): (0,)})))
    harness.fail(Channel.CLUSTER)
    harness.client.leave(harness.now, leave_by=harness.now + 5.0)
    harness.wait(2.0)
    assert Channel.CLUSTER not in harness.under_way


def test_answer_to_a_request_that_is_not_under_way_is_ignored() -> None:
    harness = ClientHarness()
    outgoing = harness.under_way[Channel.SEARCH]
    harness.cluster()
    harness.client.handle_response(outgoing, m.FindCoordinatorResponse(error_code=30), harness.now)
    assert harness.client.parts.member.failure is None


def test_description_that_says_more_quickens_the_heartbeats() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.own(0)
    harness.answer(Channel.OFFSETS, described("m1", 2, parts(0, 1), current=parts(0)))
    harness.beat(accepted(2))
    before = harness.now
    harness.beat(accepted(2))
    assert harness.now - before == pytest.approx(0.3)
    assert indexes(harness.client.parts.target.pending) == [1]
    assert not harness.client.parts.next_batch.is_settled


def test_assignment_that_never_arrived_is_requested_by_a_full_heartbeat() -> None:
    """An answer to a heartbeat that came late is lost, and nothing but a full one repeats it."""
    harness = ClientHarness()
    harness.describes = False
    harness.own(0)
    harness.answer(Channel.OFFSETS, described("m1", 2, parts(0, 1)))
    request = harness.beat(accepted(2, parts(0, 1)))
    assert request.topic_partitions == parts(0)
    assert request.rebalance_timeout_ms > 0
    assert harness.client.parts.member.owned == parts(0, 1)


def test_description_that_failed_does_not_slow_the_heartbeats_down() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.own(0)
    refusal = m.DescribeGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    harness.answer(Channel.OFFSETS, refusal)
    harness.beat(accepted(2))
    before = harness.now
    harness.beat(accepted(2))
    assert harness.now - before == pytest.approx(0.3)


def test_permanently_refused_description_is_reported_once_and_not_awaited() -> None:
    harness = ClientHarness()
    harness.describes = False
    harness.cluster()
    harness.beat(accepted(2))
    refusal = m.DescribeGroupResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    harness.answer(Channel.OFFSETS, refusal)
    assert harness.client.parts.target.is_refused
    assert not harness.client.parts.next_batch.is_settled, (
        "an empty assignment is complete only if the description shows it"
    )
    harness.beat(accepted(2, parts(0)))
    harness.cluster()
    harness.beat(accepted(2))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 0}))
    harness.until(m.DescribeGroupRequest)
    harness.answer(Channel.OFFSETS, refusal)
    assert harness.client.parts.next_batch.is_settled
    assert [each.error for each in harness.find(DescriptionRefused)] == [
        "TOPIC_AUTHORIZATION_FAILED"
    ]
    harness.until(m.HeartbeatRequest)
    repeated = harness.request(Channel.HEARTBEAT)
    assert isinstance(repeated, m.HeartbeatRequest)
    assert repeated.subscribed_topic_names is not None, (
        "only the answer to a full heartbeat shows an assignment whose first answer was lost"
    )


def test_position_that_no_leader_confirms_does_not_keep_others_from_being_asked_about() -> None:
    unknown = uuid.UUID(int=99)
    harness = ClientHarness()
    harness.own(0, offsets={0: 5})
    harness.client.parts.ledger.owned[key(0)].leader_epoch = 1
    harness.plan(PlanLimit(), ends({0: 9}), {key(0): 2})
    harness.beat(accepted(3, Assignment.of({TOPIC: (0,), unknown: (0,)})))
    asked = set()
    for _ in range(6):
        while Channel.CLUSTER not in harness.under_way:
            harness.wait(0.05)
        request = harness.request(Channel.CLUSTER)
        asked.add(type(request))
        if isinstance(request, m.OffsetForLeaderEpochRequest):
            fenced = dict.fromkeys(request.lookups, int(ErrorCode.FENCED_LEADER_EPOCH))
            harness.answer(Channel.CLUSTER, epoch_answer(errors=fenced))
        else:
            harness.fail(Channel.CLUSTER)
    assert asked >= {m.MetadataRequest, m.OffsetForLeaderEpochRequest}
