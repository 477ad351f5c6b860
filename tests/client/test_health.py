"""How it stands with a member: every deadline turns it negative at half, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_groups.client import Channel
from spark_groups.client.health import NOT_LIVE, READY, SHARE, Condition, assess
from spark_groups.client.liveness import LivenessLimits
from spark_groups.client.snapshot import take_snapshot
from spark_groups.offsets.planning import PlanLimit
from spark_groups.protocol import messages as m
from spark_groups.protocol.membership import MemberState
from tests.client.hands import Hands, accepted, all_of, ends, parts

WELL: dict[str, Any] = {
    "state": "STABLE",
    "assigned": ["orders-0"],
    "last_heartbeat_age_s": 1.0,
    "heartbeat_overdue_s": 0.0,
    "proven_for_s": 45.0,
    "rebalance_timeout_ms": 300_000,
}


def health_of(hands: Hands) -> Condition:
    return assess(take_snapshot(hands.client, hands.now)).condition


def own(**options: Any) -> Hands:
    hands = Hands(**options)
    hands.own(0, 1)
    hands.client.called(hands.now)
    hands.client.call_ended(hands.now)
    return hands


def beat_for(hands: Hands, seconds: float, assigned: m.HeartbeatResponse | None = None) -> None:
    """Let time pass with heartbeats that are accepted."""
    end = hands.now + seconds
    while True:
        due_at = hands.client.member.next_wakeup()
        if due_at is not None and due_at > end:
            break
        hands.beat(assigned or accepted(2))
        if hands.now >= end:
            break
    hands.wait(max(0.0, end - hands.now))


def test_member_with_partitions_reads_and_one_without_stands_by() -> None:
    assert assess(WELL).condition is Condition.READING
    standby = assess({**WELL, "assigned": []})
    assert standby.condition is Condition.STANDBY
    assert (standby.is_live, standby.is_ready, standby.reasons) == (True, True, ())


@pytest.mark.parametrize(
    ("changes", "condition", "words"),
    [
        ({"failure": "not authorized"}, Condition.FAILED, "not authorized"),
        ({"last_heartbeat_age_s": 22.5, "heartbeat_overdue_s": 9.0}, Condition.STUCK, "not sent"),
        (
            {"last_heartbeat_age_s": 22.5, "unreachable_age_s": 9.0, "unreachable_reason": "gone"},
            Condition.CUT_OFF,
            "session of 45 s: gone",
        ),
        ({"last_heartbeat_age_s": 22.5}, Condition.CUT_OFF, "no answer yet"),
        (
            {"revocation_age_s": 150.0, "revocation_timeout_s": 300.0, "revoking": ["orders-1"]},
            Condition.STUCK,
            "1 partitions",
        ),
        ({"idle_s": 300.0, "idle_limit_s": 600.0}, Condition.STUCK, "maxIdleTime"),
        ({"left_because_idle": True, "state": "UNSUBSCRIBED"}, Condition.STUCK, "left"),
        ({"batch_age_s": 30.0, "batch_limit_s": 60.0}, Condition.STUCK, "maxBatchTime"),
        ({"uncommitted_age_s": 150.0, "uncommitted": ["orders-0"]}, Condition.STUCK, "committed"),
        ({"batch_age_s": 150.0}, Condition.SLOW, "rebalance time-out is 300 s"),
        ({"state": "JOINING", "instance_wait_left_s": 12.0}, Condition.OUTSIDE, "waits 12 s"),
    ],
)
def test_what_is_wrong_is_found_at_half_of_its_deadline(
    changes: dict[str, Any], condition: Condition, words: str
) -> None:
    health = assess({**WELL, **changes})
    assert health.condition is condition
    assert words in " ".join(health.reasons)
    assert health.is_live == (condition not in NOT_LIVE)
    assert not health.is_ready
    earlier = {
        name: value * 0.99 if name.endswith("age_s") or name == "idle_s" else value
        for name, value in changes.items()
    }
    if earlier != changes:
        assert assess({**WELL, **earlier}).condition is Condition.READING


@pytest.mark.parametrize(
    "waiting",
    [
        {"uncommitted_age_s": 170.0, "uncommitted": ["orders-0"]},
        {"revocation_age_s": 170.0, "revocation_timeout_s": 300.0, "revoking": ["orders-0"]},
    ],
)
def test_what_only_silent_brokers_keep_waiting_is_no_reason_to_restart(
    waiting: dict[str, Any],
) -> None:
    silent = {"last_heartbeat_age_s": 180.0, "unreachable_age_s": 175.0}
    health = assess({**WELL, **silent, **waiting})
    assert (health.condition, health.is_live) == (Condition.CUT_OFF, True)


def test_the_gravest_counts_and_all_reasons_are_told() -> None:
    health = assess({**WELL, "batch_age_s": 200.0, "batch_limit_s": 300.0, "failure": "refused"})
    assert health.condition is Condition.FAILED
    assert len(health.reasons) == 3
    assert json.loads(json.dumps(health.as_plain())) == {
        "condition": "FAILED",
        "is_live": False,
        "is_ready": False,
        "reasons": list(health.reasons),
    }


@pytest.mark.parametrize("state", MemberState)
def test_every_state_has_its_word(state: MemberState) -> None:
    condition = assess({**WELL, "state": state.name}).condition
    inside = (MemberState.STABLE, MemberState.RECONCILING, MemberState.ACKNOWLEDGING)
    # A member that was refused for good always says why, too.
    expected = Condition.READING if state in (*inside, MemberState.FATAL) else Condition.OUTSIDE
    assert condition is expected
    assert (condition in READY) == (expected is Condition.READING)


def test_member_that_was_never_started_is_outside_and_live() -> None:
    health = assess({"group": "g", "state": "UNSUBSCRIBED"})
    assert (health.condition, health.is_live, health.is_ready) == (Condition.OUTSIDE, True, False)


def test_a_real_member_is_well_from_join_to_batch() -> None:
    hands = Hands()
    assert health_of(hands) is Condition.OUTSIDE
    hands.own(0, 1)
    assert health_of(hands) is Condition.READING
    beat_for(hands, 100.0)
    assert health_of(hands) is Condition.READING


def test_silent_broker_cuts_off_before_the_session_ends_and_is_no_reason_to_restart() -> None:
    hands = own()
    session_s = take_snapshot(hands.client, hands.now)["proven_for_s"]
    beat_for(hands, 1.0)
    accepted_at = hands.client.member.last_accepted_sent_at
    assert accepted_at is not None
    while hands.now < accepted_at + SHARE * session_s:
        hands.until(m.HeartbeatRequest)
        hands.now += 1.0
        hands.fail(Channel.HEARTBEAT)
        hands.cluster()
    health = assess(take_snapshot(hands.client, hands.now))
    assert health.condition is Condition.CUT_OFF
    assert health.is_live
    assert hands.now < accepted_at + session_s


def test_driver_that_keeps_no_time_any_more_is_stuck_before_the_session_ends() -> None:
    hands = own()
    session_s = take_snapshot(hands.client, hands.now)["proven_for_s"]
    beat_for(hands, 1.0)
    accepted_at = hands.client.member.last_accepted_sent_at
    assert accepted_at is not None
    # Nobody polls: what is due is not sent.
    hands.under_way.pop(Channel.HEARTBEAT, None)
    view = take_snapshot(hands.client, accepted_at + SHARE * session_s)
    assert assess(view).condition is Condition.STUCK


def test_revocation_that_a_batch_holds_up_is_stuck_at_half_of_its_time() -> None:
    hands = own(rebalance_timeout_ms=60_000)
    plan = hands.client.plan(PlanLimit(), ends({0: 5, 1: 5}), hands.now)
    assert plan is not None
    hands.pump()
    hands.beat(accepted(2, parts(1)))
    beat_for(hands, 20.0, accepted(2, parts(1)))
    assert health_of(hands) is Condition.READING
    beat_for(hands, 10.0, accepted(2, parts(1)))
    assert health_of(hands) is Condition.STUCK
    hands.client.finish(plan, hands.now)
    hands.pump()
    hands.until(m.OffsetCommitRequest)
    hands.answer(Channel.OFFSETS, all_of(hands.request(Channel.OFFSETS)))
    assert health_of(hands) is Condition.READING


def test_query_that_does_not_call_is_stuck_before_its_member_leaves() -> None:
    hands = own(liveness=LivenessLimits(max_idle_s=60.0))
    beat_for(hands, 29.0)
    assert health_of(hands) is Condition.READING
    beat_for(hands, 2.0)
    assert health_of(hands) is Condition.STUCK
    assert not hands.client.attendance.is_absent


def test_long_batch_is_slow_without_a_limit_and_stuck_with_one() -> None:
    for limits, condition in (
        (LivenessLimits(), Condition.SLOW),
        (LivenessLimits(max_batch_s=100.0), Condition.STUCK),
    ):
        hands = own(liveness=limits, rebalance_timeout_ms=60_000)
        hands.client.plan(PlanLimit(), ends({0: 5, 1: 5}), hands.now)
        hands.pump()
        beat_for(hands, 55.0)
        assert health_of(hands) is condition
