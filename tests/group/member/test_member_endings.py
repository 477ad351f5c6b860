"""How a membership ends: fenced, forgotten, left, refused; and what paces it meanwhile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spark_groups.errors import ErrorCode, rule_for
from spark_groups.group.member.events import InstanceUnreleased, MemberFailed, MemberLeft
from spark_groups.group.member.grant_command import TOPICS_MAX, Identity, remedy_of
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_states import IllegalTransitionError, MemberState
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS
from tests.group.member.members import (
    SENDING,
    accepted,
    beat,
    in_state,
    is_full,
    member,
    parts,
    refused,
)

S = MemberState


def test_fenced_member_rejoins_with_the_same_id_and_nothing_owned() -> None:
    m = in_state(S.STABLE)
    beat(m, refused(ErrorCode.FENCED_MEMBER_EPOCH))
    request = beat(m, accepted(9, parts(5)))
    assert is_full(request)
    assert (request.member_id, request.member_epoch) == ("m1", 0)
    assert request.topic_partitions == NO_PARTITIONS
    assert (m.member_epoch, m.owned) == (9, parts(5))
    assert not m.abandoned_ids


def test_fenced_again_while_joining_takes_a_new_id_and_abandons_the_old() -> None:
    m = in_state(S.STABLE)
    beat(m, refused(ErrorCode.FENCED_MEMBER_EPOCH))
    beat(m, refused(ErrorCode.FENCED_MEMBER_EPOCH))
    assert (m.member_id, m.abandoned_ids) == ("m2", ["m1"])
    assert beat(m, accepted(9, parts(5))).member_id == "m2"


def test_unknown_member_takes_a_new_id_and_abandons_nothing() -> None:
    m = in_state(S.STABLE)
    beat(m, refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert (m.member_id, m.abandoned_ids) == ("m2", [])


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_joins_that_are_refused_again_and_again_wait_longer_each_time(code: ErrorCode) -> None:
    m = member()
    m.join(0.0)
    times = []
    for _ in range(8):
        beat(m, refused(code))
        times.append(m.pace.last_sent_at or 0.0)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[0] >= 0.1
    assert gaps[-1] == pytest.approx(1.0)


def test_loss_lets_the_member_rejoin_at_once() -> None:
    m = in_state(S.STABLE)
    beat(m, refused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert m.next_wakeup() == m.pace.last_sent_at


def test_join_of_a_group_that_cannot_be_converted_is_final() -> None:
    m = member()
    m.join(0.0)
    beat(m, refused(ErrorCode.GROUP_ID_NOT_FOUND))
    assert m.state is S.FATAL
    assert "classic group that cannot be converted" in (m.failure or "")


def test_answer_that_arrives_after_a_loss_is_ignored() -> None:
    m = in_state(S.STABLE)
    now = m.next_wakeup() or 0.0
    assert m.poll_heartbeat(now) is not None
    m.lose("a commit was refused", now + 1, new_id=True)
    assert m.poll_heartbeat(now + 2) is None, "never two in flight"
    m.handle_response(accepted(8, parts(0, 1, 2)), now + 3)
    assert (m.member_epoch, m.owned, m.state) == (0, NO_PARTITIONS, S.FENCED)
    request = m.poll_heartbeat(now + 3)
    assert request is not None
    assert (request.member_id, request.member_epoch) == ("m2", 0)


def test_answer_without_a_question_is_ignored() -> None:
    m = in_state(S.STABLE)
    m.handle_response(refused(ErrorCode.FENCED_MEMBER_EPOCH), 50.0)
    assert (m.state, m.owned) == (S.STABLE, parts(0, 1))


@pytest.mark.parametrize("state", SENDING, ids=lambda each: each.name)
def test_never_two_heartbeats_in_flight(state: MemberState) -> None:
    m = in_state(state)
    now = m.next_wakeup() or 0.0
    assert m.poll_heartbeat(now) is not None
    m.pace.at_once(now)
    m.raise_rebalance_timeout(900_000, now)
    assert m.next_wakeup() is None
    assert m.poll_heartbeat(now + 1_000) is None


def test_heartbeat_is_not_sent_before_it_is_due() -> None:
    m = in_state(S.STABLE)
    due_at = m.next_wakeup() or 0.0
    assert m.poll_heartbeat(due_at - 0.001) is None
    assert m.poll_heartbeat(due_at) is not None


def test_throttle_of_an_accepted_and_of_a_refused_heartbeat_is_obeyed() -> None:
    m = member()
    m.join(0.0)
    beat(m, accepted(3, parts(0), throttle_ms=4_000))
    assert m.next_wakeup() == pytest.approx(4.0), "even the acknowledgement waits"
    beat(m, HeartbeatResponse(error_code=89, throttle_time_ms=7_000))
    assert m.next_wakeup() == pytest.approx(11.0)


def test_fast_pace_while_more_is_expected() -> None:
    m = in_state(S.STABLE)
    m.pace.expect_assignment(0.0, more=True)
    sent = []
    while not sent or sent[-1] < 40:
        beat(m, accepted(3))
        sent.append(m.pace.last_sent_at or 0.0)
    gaps = [after - before for before, after in pairwise(sent)]
    fast = [gap for at, gap in zip(sent, gaps, strict=False) if at <= 10.0]
    assert fast == pytest.approx([0.3] * len(fast))
    assert gaps[-1] == pytest.approx(5.0)


def test_raised_rebalance_timeout_goes_out_once_and_is_kept_for_full_ones() -> None:
    m = in_state(S.STABLE)
    m.raise_rebalance_timeout(100, 20.0)
    assert m.rebalance_timeout_ms == 300_000, "it is never lowered"
    m.raise_rebalance_timeout(600_000, 20.0)
    assert m.next_wakeup() == m.pace.due_at()
    assert beat(m, accepted(3)).rebalance_timeout_ms == 600_000
    assert beat(m, accepted(3)).rebalance_timeout_ms == -1
    beat(m, None)
    assert beat(m, accepted(3)).rebalance_timeout_ms == 600_000


def test_leave_is_the_last_heartbeat() -> None:
    m = in_state(S.STABLE)
    m.leave(6.0)
    m.leave_now(6.0)
    request = beat(m, HeartbeatResponse(member_epoch=-1))
    assert request == HeartbeatRequest(group_id="g", member_id="m1", member_epoch=-1)
    assert (m.state, m.next_wakeup()) == (S.UNSUBSCRIBED, None)
    assert [type(each) for each in m.poll_events()] == [MemberLeft]


@pytest.mark.parametrize(("will_return", "epoch"), [(True, -2), (False, -1)])
def test_static_member_leaves_for_good_or_for_a_while(will_return: bool, epoch: int) -> None:
    m = in_state(S.STABLE, instance_id="i1")
    m.leave(6.0, will_return=will_return)
    m.leave_now(6.0)
    request = beat(m, HeartbeatResponse(member_epoch=epoch))
    assert (request.member_epoch, request.instance_id) == (epoch, "i1")


def test_dynamic_member_cannot_leave_for_a_while() -> None:
    m = in_state(S.STABLE)
    m.leave(6.0, will_return=True)
    m.leave_now(6.0)
    assert beat(m, HeartbeatResponse()).member_epoch == -1


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_leave_that_met_the_wrong_broker_is_sent_again(code: ErrorCode) -> None:
    m = in_state(S.LEAVING)
    assert beat(m, refused(code)).member_epoch == -1
    assert m.state is S.LEAVING
    beat(m, None)
    assert beat(m, HeartbeatResponse()).member_epoch == -1
    assert m.state is S.UNSUBSCRIBED


def test_leave_can_be_given_up() -> None:
    m = in_state(S.LEAVING)
    beat(m, None)
    m.give_up_leaving(20.0)
    assert m.is_leave_unanswered
    assert (m.state, m.owned, m.next_wakeup()) == (S.UNSUBSCRIBED, NO_PARTITIONS, None)
    m.return_to_group(30.0)
    assert not m.is_leave_unanswered


def test_leave_during_a_join_waits_for_the_answer_then_leaves() -> None:
    m = member()
    m.join(0.0)
    assert m.poll_heartbeat(0.0) is not None
    m.leave(0.1)
    m.leave_now(0.1)
    m.handle_response(accepted(3, parts(0)), 0.2)
    assert m.owned == NO_PARTITIONS
    assert beat(m, HeartbeatResponse()).member_epoch == -1
    assert m.state is S.UNSUBSCRIBED


def test_leave_before_anything_was_sent_says_nothing() -> None:
    m = member()
    m.join(0.0)
    m.leave(0.0)
    m.leave_now(0.0)
    assert (m.state, m.next_wakeup()) == (S.UNSUBSCRIBED, None)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.INVALID_REQUEST]
)
def test_heartbeat_refused_while_leaving_ends_it_with_an_event(code: ErrorCode) -> None:
    m = in_state(S.STABLE)
    assert m.poll_heartbeat(m.next_wakeup() or 0.0) is not None
    m.leave(6.0)
    m.leave_now(6.0)
    m.handle_response(refused(code), 6.1)
    assert m.state is S.UNSUBSCRIBED
    assert {MemberLeft, MemberFailed} & {type(each) for each in m.poll_events()}


def test_epoch_of_an_answer_is_taken_even_while_leaving() -> None:
    m = in_state(S.STABLE)
    assert m.poll_heartbeat(m.next_wakeup() or 0.0) is not None
    m.leave(6.0)
    m.handle_response(accepted(4), 6.1)
    assert (m.state, m.member_epoch) == (S.PREPARE_LEAVING, 4)


def waits(m: Member) -> list[tuple[float, float]]:
    """When it said that it waits, and until when."""
    found = [each for each in m.poll_events() if isinstance(each, InstanceUnreleased)]
    assert {each.instance_id for each in found} <= {"i1"}
    return [(each.at, each.deadline) for each in found]


def test_instance_id_is_awaited_up_to_twice_the_session_timeout_of_a_dead_holder() -> None:
    m = member(instance_id="i1", session_timeout_ms=3_000)
    m.join(0.0)
    while m.state is S.JOINING:
        assert m.instance_deadline in (None, 7.0)
        beat(m, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert m.state is S.FATAL
    assert "kafka.group.instance.id" in (m.failure or "")
    assert "its holder is alive" in (m.failure or "")
    assert 7.0 < (m.pace.last_sent_at or 0.0) < 9.0
    assert waits(m) == [(0.0, 7.0)]
    assert m.instance_deadline is None


def test_wait_for_an_instance_id_is_reported_at_once_and_then_every_ten_seconds() -> None:
    m = member(instance_id="i1", session_timeout_ms=15_000)
    m.join(0.0)
    while m.state is S.JOINING:
        beat(m, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    said = waits(m)
    assert {deadline for _, deadline in said} == {31.0}
    assert [at for at, _ in said] == pytest.approx([0.0, 10.0, 20.0, 30.0], abs=1.1)


def test_wait_for_an_instance_id_follows_the_session_timeout_as_it_is_known() -> None:
    m = member(instance_id="i1", session_timeout_ms=3_000)
    m.join(0.0)
    beat(m, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    m.session_timeout_ms = 30_000
    assert m.instance_deadline == 61.0
    while (m.pace.last_sent_at or 0.0) < 50.0:
        beat(m, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert m.state is S.JOINING


def test_instance_id_that_is_not_to_be_awaited_fails_at_once() -> None:
    m = member(instance_id="i1", await_instance=False)
    m.join(0.0)
    beat(m, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert m.state is S.FATAL
    assert "UNRELEASED_INSTANCE_ID" in (m.failure or "")
    assert waits(m) == []


def test_returns_to_the_group_under_a_new_id() -> None:
    m = in_state(S.LEAVING)
    beat(m, accepted(-1))
    m.return_to_group(50.0)
    request = beat(m, accepted(7, parts(0)))
    assert (request.member_id, request.member_epoch, is_full(request)) == ("m2", 0, True)
    assert (m.member_epoch, m.owned) == (7, parts(0))


def test_member_that_fails_while_it_prepares_to_leave_says_good_bye_all_the_same() -> None:
    m = in_state(S.PREPARE_LEAVING)
    m.fail("a commit was refused", 5.0)
    assert (m.state, m.owned, m.failure) == (S.LEAVING, NO_PARTITIONS, "a commit was refused")
    assert (m.next_wakeup() or 99.0) <= 5.0
    assert beat(m, accepted(-1)).member_epoch == -1
    assert m.state is S.UNSUBSCRIBED


def test_instance_id_that_is_released_in_time() -> None:
    m = member(instance_id="i1")
    m.join(0.0)
    for _ in range(5):
        beat(m, refused(ErrorCode.UNRELEASED_INSTANCE_ID))
    request = beat(m, accepted(3, parts(0)))
    assert (request.member_id, request.instance_id, m.state) == ("m1", "i1", S.ACKNOWLEDGING)


def test_session_is_proven_since_the_accepted_heartbeat_was_sent() -> None:
    m = in_state(S.STABLE)
    due_at = m.next_wakeup() or 0.0
    assert m.poll_heartbeat(due_at) is not None
    m.handle_response(accepted(3), due_at + 2.0)
    assert m.last_accepted_sent_at == due_at
    beat(m, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert m.last_accepted_sent_at == due_at
    m.lose("reason", 30.0, new_id=False)
    assert m.last_accepted_sent_at is None


def test_acknowledging_nothing_is_a_bug_of_the_caller() -> None:
    m = in_state(S.STABLE)
    with pytest.raises(IllegalTransitionError):
        m.acknowledge(10.0)


def test_failure_is_kept_and_nothing_is_sent_any_more() -> None:
    m = in_state(S.FATAL)
    assert (m.failure, m.poll_heartbeat(1e9), m.next_wakeup()) == ("no", None, None)
    m.lose("late", 5.0, new_id=True)
    m.fail("later", 5.0)
    assert (m.state, m.failure) == (S.FATAL, "no")


ALICE = Identity(principal="User:alice", bootstrap_servers=("a:9092", "b:9092"))
GROUP, TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
COMMAND = "kafka-acls.sh --bootstrap-server a:9092,b:9092 --command-config admin.properties --add"


def test_a_right_on_the_group_is_granted_to_the_principal() -> None:
    assert remedy_of(GROUP, ALICE, group_id="all flights") == (
        "the principal User:alice needs READ and DESCRIBE on the group; grant it by:"
        f" {COMMAND} --allow-principal User:alice --operation Read --operation Describe"
        " --group 'all flights'"
    )


def test_a_right_on_topics_names_them_up_to_a_bound() -> None:
    said = remedy_of(TOPIC, ALICE, group_id="g", topics={"b", "a"})
    assert said.endswith("--operation Describe --topic a --topic b")
    many = [f"t{number}" for number in range(TOPICS_MAX + 5)]
    assert remedy_of(TOPIC, ALICE, group_id="g", topics=many).count("--topic") == TOPICS_MAX
    assert remedy_of(TOPIC, ALICE, group_id="g").endswith("--topic TOPIC")


def test_a_principal_that_only_brokers_know_is_left_to_be_looked_up() -> None:
    unknown = Identity(principal="", bootstrap_servers=("a:9092",))
    said = remedy_of(GROUP, unknown, group_id="g")
    assert "--allow-principal User:NAME " in said
    assert said.endswith("the broker's log says which principal User:NAME is")


def test_an_error_other_than_a_missing_right_has_its_own_remedy() -> None:
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
    assert remedy_of(code, ALICE, group_id="g") == rule_for(code).remedy
    assert remedy_of(GROUP, None, group_id="g") == rule_for(GROUP).remedy
    assert remedy_of(-77, ALICE, group_id="g") == rule_for(-77).remedy
