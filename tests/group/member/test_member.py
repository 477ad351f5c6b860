"""The heartbeat state machine: every state with every error, and how partitions come and go."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest

from spark_groups.errors import ERROR_RULES, ErrorCode, Reaction, rule_for
from spark_groups.group.member.backoff import MAX_BACKOFF_S
from spark_groups.group.member.events import (
    EpochChanged,
    HeartbeatRefused,
    InstanceUnreleased,
    MemberFailed,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RevocationRequested,
)
from spark_groups.group.member.instance_wait import EXPIRY_S, REPORT_AGAIN_S, InstanceWait
from spark_groups.group.member.member import FAILED_JOIN_PAUSE_S
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.group.member.reported_state import ReportedState
from spark_groups.group.member.subscription import Subscription
from spark_groups.types import NO_PARTITIONS, Assignment
from tests.group.member.members import (
    SENDING,
    accepted,
    beat,
    in_state,
    is_full,
    member,
    names,
    parts,
    refused,
)

S = MemberState

CODES = sorted({*ERROR_RULES, 9_999} - {0})


@pytest.mark.parametrize("state", MemberState, ids=lambda each: each.name)
def test_states_are_reached_by_legal_inputs(state: MemberState) -> None:
    assert in_state(state).state is state


@pytest.mark.parametrize(
    ("state", "code"),
    list(product(SENDING, CODES)),
    ids=names,
)
def test_every_error_in_every_state(state: MemberState, code: int) -> None:
    m = in_state(state)
    id_before, epoch_before, owned_before = m.member_id, m.member_epoch, m.owned
    reaction = rule_for(code).heartbeat
    beat(m, refused(code))
    events = {type(each) for each in m.poll_events()}
    if state is S.LEAVING:
        passing = reaction in (Reaction.RETRY, Reaction.REDISCOVER)
        assert m.state is (S.LEAVING if passing else S.UNSUBSCRIBED)
        return
    if state is S.JOINING and code == ErrorCode.GROUP_ID_NOT_FOUND:
        reaction = Reaction.FAIL
    if reaction is Reaction.FAIL:
        assert m.state is (S.LEAVING if state is S.PREPARE_LEAVING else S.FATAL)
        assert m.owned == m.assigned == NO_PARTITIONS
        assert "why" in (m.failure or "")
        assert MemberFailed in events
        assert (PartitionsLost in events) is bool(owned_before), "nothing is no loss"
        assert (m.next_wakeup() is None) is (m.state is S.FATAL)
    elif reaction in (Reaction.REJOIN_SAME_ID, Reaction.REJOIN_NEW_ID):
        assert m.owned == m.assigned == NO_PARTITIONS
        assert PartitionsLost in events
        if state is S.PREPARE_LEAVING:
            assert m.state is S.PREPARE_LEAVING
            return
        assert (m.state, m.member_epoch) == (S.FENCED, 0)
        new_id = reaction is Reaction.REJOIN_NEW_ID or state is S.JOINING
        assert (m.member_id != id_before) == new_id
    else:
        assert (m.state, m.member_epoch, m.owned) == (state, epoch_before, owned_before)
        assert m.member_id == id_before
        assert events <= {HeartbeatRefused, InstanceUnreleased}
        assert is_full(beat(m, None))


def test_join_acknowledge_then_only_what_changed() -> None:
    m = member(rack_id="r1", server_assignor="range")
    m.join(0.0)
    join = beat(m, accepted(3, parts(0, 1)))
    assert is_full(join)
    assert (join.member_epoch, join.topic_partitions) == (0, NO_PARTITIONS)
    assert (join.rack_id, join.server_assignor) == ("r1", "range")
    assert m.next_wakeup() == 0.0, "an assignment is acknowledged at once"
    acknowledgement = beat(m, accepted(3))
    assert (acknowledgement.member_epoch, acknowledgement.topic_partitions) == (3, parts(0, 1))
    assert acknowledgement.rebalance_timeout_ms == -1
    assert acknowledgement.subscribed_topic_names is None
    assert acknowledgement.rack_id is None
    assert m.state is S.STABLE
    bare = beat(m, accepted(3))
    assert bare == HeartbeatRequest(group_id="g", member_id="m1", member_epoch=3)
    kinds = [type(each) for each in m.poll_events()]
    assert kinds == [EpochChanged, PartitionsAssigned]


def test_empty_assignment_is_stable() -> None:
    m = member()
    m.join(0.0)
    beat(m, accepted(1, NO_PARTITIONS))
    assert m.state is S.STABLE


def test_revocation_is_withheld_until_it_is_acknowledged() -> None:
    m = in_state(S.RECONCILING)
    assert (m.assigned, m.owned, m.revoking) == (parts(0), parts(0, 1), parts(1))
    for _ in range(3):
        assert beat(m, accepted(3)).topic_partitions is None
        assert m.state is S.RECONCILING
    requested_at, now = m.revocation_requested_at, m.pace.last_sent_at
    assert requested_at is not None
    assert now is not None
    assert m.revocation_deadline == requested_at + 300.0
    m.acknowledge(now)
    assert m.next_wakeup() == now
    request = beat(m, accepted(4))
    assert (request.member_epoch, request.topic_partitions) == (3, parts(0))
    assert (m.state, m.member_epoch, m.revocation_deadline) == (S.STABLE, 4, None)
    kinds = [type(each) for each in m.poll_events()]
    assert kinds == [PartitionsRevoked, EpochChanged]


def test_repeated_revocation_keeps_its_deadline_and_a_larger_one_renews_it() -> None:
    m = in_state(S.RECONCILING)
    requested_at = m.revocation_requested_at
    beat(m, accepted(3, parts(0)))
    assert m.revocation_requested_at == requested_at
    assert not m.poll_events()
    beat(m, accepted(3, NO_PARTITIONS))
    (event,) = m.poll_events()
    assert isinstance(event, RevocationRequested)
    assert event.partitions == parts(0, 1)
    assert m.revocation_requested_at != requested_at


def test_budget_of_a_revocation_counts_from_the_question_not_from_a_late_answer() -> None:
    m = in_state(S.STABLE)
    asked_at = m.next_wakeup()
    assert asked_at is not None
    m.poll_heartbeat(asked_at)
    m.handle_response(accepted(3, parts(0)), asked_at + 4.0)
    assert m.revocation_requested_at == asked_at


def test_budget_of_a_revocation_counts_from_the_first_question_whose_answer_was_lost() -> None:
    m = in_state(S.STABLE)
    asked_at = m.next_wakeup()
    beat(m, None)
    beat(m, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    beat(m, accepted(3, parts(0)))
    assert m.revocation_requested_at == asked_at


def test_budget_of_a_revocation_does_not_count_refused_heartbeats() -> None:
    m = in_state(S.STABLE)
    beat(m, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    asked_at = m.next_wakeup()
    beat(m, accepted(3, parts(0)))
    assert m.revocation_requested_at == asked_at


def test_partition_that_comes_back_before_it_was_given_up_is_acknowledged() -> None:
    m = in_state(S.RECONCILING)
    beat(m, accepted(4, parts(0, 1)))
    assert not [e for e in m.poll_events() if isinstance(e, PartitionsAssigned)]
    assert (m.state, m.revoking, m.revocation_deadline) == (S.ACKNOWLEDGING, NO_PARTITIONS, None)
    request = beat(m, accepted(4))
    assert request.topic_partitions == parts(0, 1)
    assert m.state is S.STABLE


def test_a_then_b_then_a_is_acknowledged_each_time() -> None:
    m = in_state(S.STABLE)
    for wanted in (parts(0), parts(0, 1), parts(0), parts(0, 1)):
        beat(m, accepted(m.member_epoch, wanted))
        if m.revoking:
            m.acknowledge(m.pace.last_sent_at or 0.0)
        assert beat(m, accepted(m.member_epoch + 1)).topic_partitions == wanted
        assert (m.state, m.owned) == (S.STABLE, wanted)


def test_same_assignment_in_a_full_answer_changes_nothing() -> None:
    m = in_state(S.STABLE)
    beat(m, accepted(3, parts(0, 1)))
    assert m.state is S.STABLE
    assert not m.poll_events()


@pytest.mark.parametrize("state", [S.JOINING, S.ACKNOWLEDGING, S.STABLE, S.RECONCILING])
def test_lost_answer_makes_the_next_heartbeat_full(state: MemberState) -> None:
    m = in_state(state)
    beat(m, None)
    request = beat(m, accepted(m.member_epoch or 3, m.assigned))
    assert is_full(request)
    assert request.topic_partitions == m.owned


def test_lost_acknowledgement_is_repeated_in_full() -> None:
    m = in_state(S.RECONCILING)
    m.acknowledge(10.0)
    beat(m, None)
    request = beat(m, accepted(4, parts(0)))
    assert is_full(request)
    assert (request.member_epoch, request.topic_partitions) == (3, parts(0))
    assert (m.state, m.member_epoch) == (S.STABLE, 4)


def test_full_report_while_withholding_acknowledges_nothing() -> None:
    m = in_state(S.RECONCILING)
    beat(m, None)
    assert beat(m, accepted(3, parts(0))).topic_partitions == parts(0, 1)
    assert m.state is S.RECONCILING


def test_wait_is_reported_at_once_and_then_periodically() -> None:
    wait = InstanceWait()
    said = [second for second in range(35) if wait.refused(100.0 + second)]
    assert said == [0, REPORT_AGAIN_S, 2 * REPORT_AGAIN_S, 3 * REPORT_AGAIN_S]
    assert wait.since == 100.0


def test_deadline_counts_from_the_first_refusal_and_ends_with_the_wait() -> None:
    wait = InstanceWait()
    assert wait.deadline(45_000) is None
    wait.refused(5.0)
    wait.refused(9.0)
    assert wait.deadline(45_000) == 95.0 + EXPIRY_S
    wait.reset()
    assert wait.deadline(45_000) is None
    assert wait.refused(70.0), "the next wait is reported again"
    assert wait.deadline(1_000) == 72.0 + EXPIRY_S


EVERYTHING = MemberConfig(
    group_id="g",
    subscription=Subscription.of_names("orders"),
    instance_id="i1",
    rack_id="r1",
    server_assignor="range",
)
BARE = HeartbeatRequest(group_id="g", member_id="m1", member_epoch=3, instance_id="i1")


def reported(
    report: ReportedState, owned: Assignment, *, acknowledge: bool = False
) -> HeartbeatRequest:
    return report.next_heartbeat(
        "m1", 3, owned=owned, rebalance_timeout_ms=5_000, acknowledge=acknowledge
    )


def test_first_says_everything_and_is_repeated_until_it_is_accepted() -> None:
    report = ReportedState(EVERYTHING)
    first = reported(report, parts(0))
    assert reported(report, parts(0)) == first
    assert (first.rack_id, first.server_assignor, first.instance_id) == ("r1", "range", "i1")
    assert (first.topic_partitions, first.rebalance_timeout_ms) == (parts(0), 5_000)
    report.accepted(first)
    assert reported(report, parts(0)) == BARE
    report.forget()
    assert reported(report, parts(0)) == first


def test_heartbeats_report_only_changes() -> None:
    report = ReportedState(EVERYTHING)
    report.accepted(reported(report, parts(0)))
    assert report.knows(parts(0))
    assert not report.knows(parts(1))
    assert reported(report, parts(0, 1)).topic_partitions == parts(0, 1)
    assert reported(report, parts(0), acknowledge=True).topic_partitions == parts(0)
    longer = report.next_heartbeat(
        "m1", 3, owned=parts(0), rebalance_timeout_ms=9_000, acknowledge=False
    )
    assert (longer.rebalance_timeout_ms, longer.topic_partitions) == (9_000, None)


def test_defaults_are_those_of_kafka() -> None:
    config = MemberConfig(group_id="g", subscription=Subscription.of_names("orders"))
    assert (config.rebalance_timeout_ms, config.session_timeout_ms) == (300_000, 45_000)
    assert (config.instance_id, config.rack_id, config.server_assignor) == (None, None, None)
    assert config.fast_heartbeats
    assert config.await_instance, "a crash must not cost a query its static membership"


OWNED = Assignment(frozenset())


@pytest.mark.parametrize(
    ("said", "is_full"),
    [
        ({}, False),
        ({"topic_partitions": OWNED, "rebalance_timeout_ms": 1}, False),
        ({"topic_partitions": OWNED, "subscribed_topic_names": ()}, False),
        ({"rebalance_timeout_ms": 1, "subscribed_topic_names": ()}, False),
        *(
            ({"topic_partitions": OWNED, "rebalance_timeout_ms": 1, **topics}, True)
            for topics in ({"subscribed_topic_names": ()}, {"subscribed_topic_regex": "a.*"})
        ),
    ],
)
def test_a_heartbeat_is_full_that_says_all_three(said: dict[str, Any], is_full: bool) -> None:
    request = HeartbeatRequest(group_id="g", member_id="m", member_epoch=1, **said)
    assert request.is_full is is_full


@pytest.mark.parametrize(
    ("code", "longest_s"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, FAILED_JOIN_PAUSE_S),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MAX_BACKOFF_S),
    ],
)
def test_a_join_that_the_coordinator_fails_on_outlasts_the_initial_rebalance_delay(
    code: ErrorCode, longest_s: float
) -> None:
    m = in_state(S.JOINING)
    due = []
    for _ in range(11):
        assert beat(m, refused(code)).member_epoch == 0
        due.append(m.next_wakeup() or 0.0)
    pauses = [later - earlier for earlier, later in pairwise([0.0, *due])]
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert pauses[-2:] == pytest.approx([longest_s, longest_s])
