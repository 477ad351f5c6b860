"""Whether a query lives, and what its member does about one that is silent."""

from __future__ import annotations

from math import inf

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.liveness import (
    FIRST_REPORT_S,
    LEAST_IDLE_S,
    LEAVE_S,
    LivenessLimits,
    QueryActivity,
    Sign,
)
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import RangesInherited, RangesLost
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import BatchOverdue, BatchRunsLong, QueryGone, QueryReturned
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel
from spark_groups.types import BatchPlan
from tests.group.harness import ClientHarness, accepted, committed, ends, indexes, parts

PLAN = BatchPlan("g", "m1", 3)


def called(liveness: QueryActivity, now: float, plan: BatchPlan | None = None) -> None:
    """A call that is answered at once, with a batch or without."""
    liveness.call_began(now)
    liveness.follow(plan, now)
    liveness.call_ended(now)


def test_query_that_never_called_is_not_judged() -> None:
    liveness = QueryActivity(LivenessLimits(max_idle_s=1.0))
    assert (liveness.judge(1e6), liveness.next_wakeup()) == (Sign.NONE, None)


def test_silence_without_a_batch_is_an_end() -> None:
    liveness = QueryActivity(LivenessLimits(max_idle_s=30.0))
    called(liveness, 10.0)
    assert liveness.next_wakeup() == 40.0
    assert liveness.judge(39.9) is Sign.NONE
    assert liveness.judge(40.0) is Sign.GONE
    assert liveness.idle_s(40.0) == 30.0
    called(liveness, 41.0)
    assert liveness.judge(50.0) is Sign.NONE


def test_call_that_takes_long_is_no_silence() -> None:
    liveness = QueryActivity(LivenessLimits(max_idle_s=30.0))
    liveness.call_began(0.0)
    assert (liveness.judge(100.0), liveness.next_wakeup()) == (Sign.NONE, None)
    liveness.call_ended(100.0)
    assert liveness.judge(129.0) is Sign.NONE
    assert liveness.judge(130.0) is Sign.GONE


def test_slow_trigger_is_not_taken_for_a_dead_query() -> None:
    liveness = QueryActivity(LivenessLimits())
    called(liveness, 0.0, PLAN)
    called(liveness, 3_600.0)
    assert liveness.idle_limit_s == 4 * 3_600.0
    assert liveness.judge(2 * 3_600.0) is Sign.NONE
    assert liveness.judge(5 * 3_600.0) is Sign.GONE


def test_quick_trigger_is_given_ten_minutes_and_forgets_one_long_batch() -> None:
    liveness = QueryActivity(LivenessLimits())
    called(liveness, 0.0, PLAN)
    called(liveness, 7_200.0)
    for each in range(20):
        called(liveness, 7_201.0 + each)
    assert liveness.idle_limit_s == LEAST_IDLE_S
    assert liveness.next_wakeup() == 7_220.0 + LEAST_IDLE_S


def test_trigger_that_is_known_needs_no_call_to_be_measured() -> None:
    liveness = QueryActivity(LivenessLimits())
    liveness.call_began(0.0)
    liveness.call_ended(0.0)
    liveness.expect_calls_every(3600.0)
    assert liveness.judge(3600.0) is Sign.NONE
    assert liveness.judge(4 * 3600.0) is Sign.GONE


def test_limit_can_be_switched_off() -> None:
    liveness = QueryActivity(LivenessLimits(max_idle_s=inf))
    called(liveness, 0.0)
    assert (liveness.judge(1e9), liveness.next_wakeup()) == (Sign.NONE, None)


def test_long_batch_is_no_dead_query_and_is_reported_in_growing_intervals() -> None:
    liveness = QueryActivity(LivenessLimits(max_idle_s=30.0))
    called(liveness, 100.0, PLAN)
    reported = []
    for _ in range(4):
        now = liveness.next_wakeup()
        assert now is not None
        assert liveness.judge(now - 0.001) is Sign.NONE
        assert liveness.judge(now) is Sign.LONG_BATCH
        reported.append(liveness.batch_age_s(now))
    assert reported == [FIRST_REPORT_S * each for each in (1, 2, 4, 8)]
    assert liveness.idle_s(1e6) is None


def test_batch_has_a_limit_of_its_own() -> None:
    liveness = QueryActivity(LivenessLimits(max_batch_s=60.0))
    called(liveness, 0.0, PLAN)
    assert liveness.next_wakeup() == 60.0
    assert liveness.judge(60.0) is Sign.OVERDUE_BATCH
    called(liveness, 61.0)
    assert liveness.judge(62.0) is Sign.NONE
    assert liveness.batch_age_s(62.0) is None


def test_silence_counts_from_the_end_of_the_batch_if_it_is_known() -> None:
    liveness = QueryActivity(LivenessLimits(max_idle_s=30.0))
    called(liveness, 0.0, PLAN)
    liveness.follow(None, 100.0)
    assert liveness.judge(129.0) is Sign.NONE
    assert liveness.judge(130.0) is Sign.GONE


IDLE_S = 30.0


def trigger(harness: ClientHarness, offsets: dict[int, int]) -> BatchPlan | None:
    """A call of Spark: it proves what runs, and plans."""
    client = harness.client
    if client.parts.ledger.in_flight is not None:
        client.finish(client.parts.ledger.in_flight, harness.now)
    client.called(harness.now)
    plan = client.plan(PlanLimit(), ends(offsets), harness.now)
    client.parts.liveness.activity.call_ended(harness.now)
    harness.pump()
    return plan


def pass_time(harness: ClientHarness, seconds: float) -> None:
    """Let time pass, answering heartbeats while there are any."""
    end = harness.now + seconds
    while harness.now < end:
        harness.wait(min(1.0, end - harness.now))
        request = harness.request(Channel.HEARTBEAT)
        if isinstance(request, m.HeartbeatRequest):
            epoch = request.member_epoch
            harness.answer(Channel.HEARTBEAT, accepted(epoch))
            if epoch < 0:
                return


def joined(**member: object) -> ClientHarness:
    """A member that was called once, with nothing to read and nothing running."""
    harness = ClientHarness(liveness=LivenessLimits(max_idle_s=IDLE_S, max_batch_s=900.0), **member)
    harness.own(0, 1, offsets={0: 5, 1: 7})
    assert trigger(harness, {0: 5, 1: 7}) is not None, "the first plan names the member"
    assert trigger(harness, {0: 5, 1: 7}) is None
    return harness


@pytest.mark.parametrize(("instance_id", "last_epoch"), [(None, -1), ("i1", -2)])
def test_member_of_a_silent_query_leaves(instance_id: str | None, last_epoch: int) -> None:
    harness = joined(instance_id=instance_id)
    began = harness.now
    sent: list[int] = []
    answer = harness.answer

    def note(channel: Channel, response: m.Response) -> None:
        request = harness.request(channel)
        if isinstance(request, m.HeartbeatRequest):
            sent.append(request.member_epoch)
        answer(channel, response)

    harness.answer = note  # type: ignore[method-assign]
    pass_time(harness, 2 * IDLE_S)
    assert sent[-1] == last_epoch
    assert harness.client.parts.member.has_left
    (event,) = harness.find(QueryGone)
    assert isinstance(event, QueryGone)
    assert event.at == pytest.approx(began + IDLE_S, abs=0.01)
    assert (event.idle_s, event.limit_s) == (pytest.approx(IDLE_S, abs=0.01), IDLE_S)
    assert harness.client.parts.liveness.is_absent


def test_member_comes_back_by_itself_when_spark_calls_after_all() -> None:
    harness = joined()
    pass_time(harness, 2 * IDLE_S)
    assert harness.client.parts.member.has_left
    assert trigger(harness, {}) is None
    harness.cluster()
    join = harness.beat(accepted(9, parts(0)))
    assert (join.member_id, join.member_epoch) == ("m2", 0)
    harness.cluster()
    harness.beat(accepted(9))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 5}))
    assert indexes(harness.client.parts.next_batch.readable(harness.now)) == [0]
    plan = trigger(harness, {0: 8})
    assert plan is not None
    assert [(each.from_offset, each.until_offset) for each in plan.ranges] == [(5, 8)]
    assert len(harness.find(QueryReturned)) == 1


def test_call_while_the_member_is_still_leaving_brings_it_back_once_it_has_left() -> None:
    harness = joined()
    while not harness.find(QueryGone):
        harness.wait(1.0)
        request = harness.request(Channel.HEARTBEAT)
        if isinstance(request, m.HeartbeatRequest) and request.member_epoch > 0:
            harness.answer(Channel.HEARTBEAT, accepted(request.member_epoch))
    assert harness.client.parts.member.state is MemberState.LEAVING
    trigger(harness, {})
    trigger(harness, {})
    assert harness.client.parts.member.state is MemberState.LEAVING
    assert harness.beat(accepted(-1)).member_epoch == -1
    assert harness.client.parts.member.state is MemberState.JOINING
    assert len(harness.find(QueryReturned)) == 1


def test_running_batch_is_reported_and_keeps_its_member() -> None:
    harness = joined()
    assert trigger(harness, {0: 9, 1: 7}) is not None
    began = harness.now
    pass_time(harness, 700.0)
    assert not harness.client.parts.member.has_left
    ages = [each.at - began for each in harness.find(BatchRunsLong)]
    assert ages == pytest.approx([FIRST_REPORT_S, 2 * FIRST_REPORT_S], abs=0.01)
    assert not harness.find(QueryGone)


def test_batch_that_outlasts_its_limit_costs_the_membership_but_not_its_result() -> None:
    harness = joined()
    plan = trigger(harness, {0: 9, 1: 7})
    assert plan is not None
    pass_time(harness, 1_000.0)
    assert harness.client.parts.member.has_left
    (event,) = harness.find(BatchOverdue)
    assert isinstance(event, BatchOverdue)
    assert (event.limit_s, event.batch_age_s) == (900.0, pytest.approx(900.0, abs=0.01))
    assert trigger(harness, {}) is None
    harness.cluster()
    harness.beat(accepted(9, parts(0)))
    harness.cluster()
    harness.beat(accepted(9))
    harness.until(m.OffsetFetchRequest)
    harness.answer(Channel.OFFSETS, committed({0: 5}))
    assert harness.find(RangesLost) or harness.find(RangesInherited)
    request = harness.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (request.member_id, request.member_epoch) == ("m2", 9)


def leaving(**member: object) -> ClientHarness:
    """A member whose query was silent, and whose last heartbeat is not answered yet."""
    harness = joined(**member)
    while not harness.find(QueryGone):
        harness.wait(1.0)
        request = harness.request(Channel.HEARTBEAT)
        if isinstance(request, m.HeartbeatRequest) and request.member_epoch > 0:
            harness.answer(Channel.HEARTBEAT, accepted(request.member_epoch))
    assert harness.client.parts.member.state is MemberState.LEAVING
    return harness


def test_answer_to_the_last_heartbeat_may_come_after_the_member_has_returned() -> None:
    harness = leaving()
    trigger(harness, {})
    harness.wait(2 * LEAVE_S)
    assert harness.client.parts.member.state is MemberState.JOINING
    harness.answer(Channel.HEARTBEAT, accepted(-1))
    harness.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    join = harness.beat(accepted(9, parts(0)))
    assert (join.member_id, join.member_epoch) == ("m2", 0)
    assert harness.client.parts.member.member_epoch == 9


@pytest.mark.parametrize(("instance_id", "last_epoch"), [(None, -1), ("i1", -2)])
def test_id_whose_last_heartbeat_got_no_answer_is_released_before_the_member_returns(
    instance_id: str | None, last_epoch: int
) -> None:
    harness = leaving(instance_id=instance_id)
    trigger(harness, {})
    harness.wait(2 * LEAVE_S)
    harness.fail(Channel.HEARTBEAT)
    harness.cluster()
    release = harness.beat(accepted(last_epoch))
    assert (release.member_id, release.member_epoch) == ("m1", last_epoch)
    join = harness.beat(accepted(9, parts(0)))
    assert (join.member_id, join.member_epoch) == ("m2", 0)


def test_query_that_ends_while_its_member_is_called_back_does_not_join_again() -> None:
    harness = leaving()
    trigger(harness, {})
    harness.client.leave(harness.now, leave_by=harness.now + LEAVE_S)
    trigger(harness, {})
    harness.answer(Channel.HEARTBEAT, accepted(-1))
    harness.wait(LEAVE_S)
    assert harness.client.parts.member.has_left


def test_trouble_from_before_the_silence_does_not_count_against_the_return() -> None:
    harness = leaving()
    harness.fail(Channel.HEARTBEAT)
    harness.wait(1_000.0)
    assert harness.client.parts.member.has_left
    trigger(harness, {})
    assert harness.client.parts.search.failing_since is None
