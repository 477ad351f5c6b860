"""A member whose query is silent leaves; one whose query calls again comes back."""

from __future__ import annotations

import pytest

from spark_groups.client import Lane
from spark_groups.client.attendance import LEAVE_S
from spark_groups.client.liveness import FIRST_REPORT_S, LivenessLimits
from spark_groups.errors import ErrorCode
from spark_groups.offsets.events import RangesInherited, RangesLost
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from spark_groups.protocol.events import BatchOverdue, BatchRunsLong, QueryGone, QueryReturned
from spark_groups.protocol.membership import MemberState
from spark_groups.types import BatchPlan
from tests.client.hands import Hands, accepted, committed, ends, indexes, parts

IDLE_S = 30.0


def trigger(hands: Hands, offsets: dict[int, int]) -> BatchPlan | None:
    """A call of Spark: it proves what runs, and plans."""
    client = hands.client
    if client.ledger.in_flight is not None:
        client.finish(client.ledger.in_flight, hands.now)
    client.called(hands.now)
    plan = client.plan(PlanLimit(), ends(offsets), hands.now)
    client.call_ended(hands.now)
    hands.pump()
    return plan


def pass_time(hands: Hands, seconds: float) -> None:
    """Let time pass, answering heartbeats while there are any."""
    end = hands.now + seconds
    while hands.now < end:
        hands.wait(min(1.0, end - hands.now))
        request = hands.request(Lane.HEARTBEAT)
        if isinstance(request, m.HeartbeatRequest):
            epoch = request.member_epoch
            hands.answer(Lane.HEARTBEAT, accepted(epoch))
            if epoch < 0:
                return


def joined(**member: object) -> Hands:
    """A member that was called once, with nothing to read and nothing running."""
    hands = Hands(liveness=LivenessLimits(max_idle_s=IDLE_S, max_batch_s=900.0), **member)
    hands.own(0, 1, offsets={0: 5, 1: 7})
    assert trigger(hands, {0: 5, 1: 7}) is not None, "the first plan names the member"
    assert trigger(hands, {0: 5, 1: 7}) is None
    return hands


@pytest.mark.parametrize(("instance_id", "last_epoch"), [(None, -1), ("i1", -2)])
def test_member_of_a_silent_query_leaves(instance_id: str | None, last_epoch: int) -> None:
    hands = joined(instance_id=instance_id)
    began = hands.now
    sent: list[int] = []
    answer = hands.answer

    def note(lane: Lane, response: m.Response) -> None:
        request = hands.request(lane)
        if isinstance(request, m.HeartbeatRequest):
            sent.append(request.member_epoch)
        answer(lane, response)

    hands.answer = note  # type: ignore[method-assign]
    pass_time(hands, 2 * IDLE_S)
    assert sent[-1] == last_epoch
    assert hands.client.has_left
    (event,) = hands.find(QueryGone)
    assert isinstance(event, QueryGone)
    assert event.at == pytest.approx(began + IDLE_S, abs=0.01)
    assert (event.idle_s, event.limit_s) == (pytest.approx(IDLE_S, abs=0.01), IDLE_S)
    assert hands.client.attendance.is_absent


def test_member_comes_back_by_itself_when_spark_calls_after_all() -> None:
    hands = joined()
    pass_time(hands, 2 * IDLE_S)
    assert hands.client.has_left
    assert trigger(hands, {}) is None
    hands.cluster()
    join = hands.beat(accepted(9, parts(0)))
    assert (join.member_id, join.member_epoch) == ("m2", 0)
    hands.cluster()
    hands.beat(accepted(9))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Lane.OFFSETS, committed({0: 5}))
    assert indexes(hands.client.readable(hands.now)) == [0]
    plan = trigger(hands, {0: 8})
    assert plan is not None
    assert [(each.from_offset, each.until_offset) for each in plan.ranges] == [(5, 8)]
    assert len(hands.find(QueryReturned)) == 1


def test_call_while_the_member_is_still_leaving_brings_it_back_once_it_has_left() -> None:
    hands = joined()
    while not hands.find(QueryGone):
        hands.wait(1.0)
        request = hands.request(Lane.HEARTBEAT)
        if isinstance(request, m.HeartbeatRequest) and request.member_epoch > 0:
            hands.answer(Lane.HEARTBEAT, accepted(request.member_epoch))
    assert hands.client.member.state is MemberState.LEAVING
    trigger(hands, {})
    trigger(hands, {})
    assert hands.client.member.state is MemberState.LEAVING
    assert hands.beat(accepted(-1)).member_epoch == -1
    assert hands.client.member.state is MemberState.JOINING
    assert len(hands.find(QueryReturned)) == 1


def test_batch_that_runs_is_told_of_and_keeps_its_member() -> None:
    hands = joined()
    assert trigger(hands, {0: 9, 1: 7}) is not None
    began = hands.now
    pass_time(hands, 700.0)
    assert not hands.client.has_left
    ages = [each.at - began for each in hands.find(BatchRunsLong)]
    assert ages == pytest.approx([FIRST_REPORT_S, 2 * FIRST_REPORT_S], abs=0.01)
    assert not hands.find(QueryGone)


def test_batch_that_outlasts_its_limit_costs_the_membership_but_not_its_result() -> None:
    hands = joined()
    plan = trigger(hands, {0: 9, 1: 7})
    assert plan is not None
    pass_time(hands, 1_000.0)
    assert hands.client.has_left
    (event,) = hands.find(BatchOverdue)
    assert isinstance(event, BatchOverdue)
    assert (event.limit_s, event.batch_age_s) == (900.0, pytest.approx(900.0, abs=0.01))
    assert trigger(hands, {}) is None
    hands.cluster()
    hands.beat(accepted(9, parts(0)))
    hands.cluster()
    hands.beat(accepted(9))
    hands.until(m.OffsetFetchRequest)
    hands.answer(Lane.OFFSETS, committed({0: 5}))
    assert hands.find(RangesLost) or hands.find(RangesInherited)
    request = hands.until(m.OffsetCommitRequest)
    assert isinstance(request, m.OffsetCommitRequest)
    assert (request.member_id, request.member_epoch) == ("m2", 9)


def leaving(**member: object) -> Hands:
    """A member whose query was silent, and whose last heartbeat is not answered yet."""
    hands = joined(**member)
    while not hands.find(QueryGone):
        hands.wait(1.0)
        request = hands.request(Lane.HEARTBEAT)
        if isinstance(request, m.HeartbeatRequest) and request.member_epoch > 0:
            hands.answer(Lane.HEARTBEAT, accepted(request.member_epoch))
    assert hands.client.member.state is MemberState.LEAVING
    return hands


def test_answer_to_the_last_heartbeat_may_come_after_the_member_has_returned() -> None:
    hands = leaving()
    trigger(hands, {})
    hands.wait(2 * LEAVE_S)
    assert hands.client.member.state is MemberState.JOINING
    hands.answer(Lane.HEARTBEAT, accepted(-1))
    hands.beat(m.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    join = hands.beat(accepted(9, parts(0)))
    assert (join.member_id, join.member_epoch) == ("m2", 0)
    assert hands.client.member.member_epoch == 9


@pytest.mark.parametrize(("instance_id", "last_epoch"), [(None, -1), ("i1", -2)])
def test_id_whose_last_heartbeat_got_no_answer_is_released_before_the_member_returns(
    instance_id: str | None, last_epoch: int
) -> None:
    hands = leaving(instance_id=instance_id)
    trigger(hands, {})
    hands.wait(2 * LEAVE_S)
    hands.fail(Lane.HEARTBEAT)
    hands.cluster()
    release = hands.beat(accepted(last_epoch))
    assert (release.member_id, release.member_epoch) == ("m1", last_epoch)
    join = hands.beat(accepted(9, parts(0)))
    assert (join.member_id, join.member_epoch) == ("m2", 0)


def test_query_that_ends_while_its_member_is_called_back_does_not_join_again() -> None:
    hands = leaving()
    trigger(hands, {})
    hands.client.leave(hands.now, leave_by=hands.now + LEAVE_S)
    trigger(hands, {})
    hands.answer(Lane.HEARTBEAT, accepted(-1))
    hands.wait(LEAVE_S)
    assert hands.client.has_left


def test_trouble_from_before_the_silence_does_not_count_against_the_return() -> None:
    hands = leaving()
    hands.fail(Lane.HEARTBEAT)
    hands.wait(1_000.0)
    assert hands.client.has_left
    trigger(hands, {})
    assert hands.client.exchange.failing_since is None
