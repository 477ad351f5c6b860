"""How it stands with a member: every deadline turns it negative at half, and nothing else does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from spark_groups.group.batches.liveness import LivenessLimits
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.member import messages as m
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel
from spark_groups.group.snapshot import MemberSnapshot, take_snapshot
from spark_groups.monitoring.health import NOT_LIVE, READY, SHARE, Condition, assess
from tests.group.harness import ClientHarness, accepted, all_of, ends, parts

WELL = MemberSnapshot(
    group="g",
    state=MemberState.STABLE,
    assigned=("orders-0",),
    last_heartbeat_age_s=1.0,
    heartbeat_overdue_s=0.0,
    proven_for_s=45.0,
    rebalance_timeout_ms=300_000,
)


def health_of(harness: ClientHarness) -> Condition:
    return assess(take_snapshot(harness.client, harness.now)).condition


def own(**options: Any) -> ClientHarness:
    harness = ClientHarness(**options)
    harness.own(0, 1)
    harness.client.called(harness.now)
    harness.client.parts.liveness.activity.call_ended(harness.now)
    return harness


def beat_for(
    harness: ClientHarness, seconds: float, assigned: m.HeartbeatResponse | None = None
) -> None:
    """Let time pass with heartbeats that are accepted."""
    end = harness.now + seconds
    while True:
        due_at = harness.client.parts.member.next_wakeup()
        if due_at is not None and due_at > end:
            break
        harness.beat(assigned or accepted(2))
        if harness.now >= end:
            break
    harness.wait(max(0.0, end - harness.now))


def test_member_with_partitions_reads_and_one_without_stands_by() -> None:
    assert assess(WELL).condition is Condition.READING
    standby = assess(replace(WELL, assigned=()))
    assert standby.condition is Condition.STANDBY
    assert (standby.is_live, standby.is_ready, standby.reasons) == (True, True, ())


@pytest.mark.parametrize(
    ("changes", "condition", "words"),
    [
        ({"failure": "not authorized"}, Condition.FAILED, "not authorized"),
        ({"last_heartbeat_age_s": 22.5, "heartbeat_overdue_s": 9.0}, Condition.STUCK, "overdue"),
        (
            {"last_heartbeat_age_s": 22.5, "unreachable_age_s": 9.0, "unreachable_reason": "gone"},
            Condition.CUT_OFF,
            "(limit: 45 s): gone",
        ),
        ({"last_heartbeat_age_s": 22.5}, Condition.CUT_OFF, "no answer yet"),
        (
            {"revocation_age_s": 150.0, "revocation_timeout_s": 300.0, "revoking": ("orders-1",)},
            Condition.STUCK,
            "1 partitions",
        ),
        ({"idle_s": 300.0, "idle_limit_s": 600.0}, Condition.STUCK, "maxIdleTime"),
        ({"left_because_idle": True, "state": MemberState.UNSUBSCRIBED}, Condition.STUCK, "left"),
        ({"batch_age_s": 30.0, "batch_limit_s": 60.0}, Condition.STUCK, "maxBatchTime"),
        ({"uncommitted_age_s": 150.0, "uncommitted": ("orders-0",)}, Condition.STUCK, "committed"),
        ({"batch_age_s": 150.0}, Condition.SLOW, "rebalance timeout is 300 s"),
        (
            {"state": MemberState.JOINING, "instance_wait_left_s": 12.0},
            Condition.OUTSIDE,
            "waits up to 12 s",
        ),
    ],
)
def test_a_problem_is_reported_at_half_of_its_deadline(
    changes: dict[str, Any], condition: Condition, words: str
) -> None:
    health = assess(replace(WELL, **changes))
    assert health.condition is condition
    assert words in " ".join(health.reasons)
    assert health.is_live == (condition not in NOT_LIVE)
    assert not health.is_ready
    earlier = {
        name: value * 0.99 if name.endswith("age_s") or name == "idle_s" else value
        for name, value in changes.items()
    }
    if earlier != changes:
        assert assess(replace(WELL, **earlier)).condition is Condition.READING


@pytest.mark.parametrize(
    "waiting",
    [
        {"uncommitted_age_s": 170.0, "uncommitted": ("orders-0",)},
        {"revocation_age_s": 170.0, "revocation_timeout_s": 300.0, "revoking": ("orders-0",)},
    ],
)
def test_what_only_silent_brokers_keep_waiting_is_no_reason_to_restart(
    waiting: dict[str, Any],
) -> None:
    silent = {"last_heartbeat_age_s": 180.0, "unreachable_age_s": 175.0}
    health = assess(replace(WELL, **silent, **waiting))
    assert (health.condition, health.is_live) == (Condition.CUT_OFF, True)


def test_the_gravest_condition_counts_and_all_reasons_are_reported() -> None:
    health = assess(replace(WELL, batch_age_s=200.0, batch_limit_s=300.0, failure="refused"))
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
    condition = assess(replace(WELL, state=state)).condition
    inside = (MemberState.STABLE, MemberState.RECONCILING, MemberState.ACKNOWLEDGING)
    # A failed member always has a reason.
    expected = Condition.READING if state in (*inside, MemberState.FATAL) else Condition.OUTSIDE
    assert condition is expected
    assert (condition in READY) == (expected is Condition.READING)


def test_member_that_was_never_started_is_outside_and_live() -> None:
    health = assess(MemberSnapshot(group="g", state=MemberState.UNSUBSCRIBED))
    assert (health.condition, health.is_live, health.is_ready) == (Condition.OUTSIDE, True, False)


def test_a_real_member_is_well_from_join_to_batch() -> None:
    harness = ClientHarness()
    assert health_of(harness) is Condition.OUTSIDE
    harness.own(0, 1)
    assert health_of(harness) is Condition.READING
    beat_for(harness, 100.0)
    assert health_of(harness) is Condition.READING


def test_silent_broker_cuts_off_before_the_session_ends_and_is_no_reason_to_restart() -> None:
    harness = own()
    session_s = take_snapshot(harness.client, harness.now).proven_for_s
    beat_for(harness, 1.0)
    accepted_at = harness.client.parts.member.last_accepted_sent_at
    assert accepted_at is not None
    while harness.now < accepted_at + SHARE * session_s:
        harness.until(m.HeartbeatRequest)
        harness.now += 1.0
        harness.fail(Channel.HEARTBEAT)
        harness.cluster()
    health = assess(take_snapshot(harness.client, harness.now))
    assert health.condition is Condition.CUT_OFF
    assert health.is_live
    assert harness.now < accepted_at + session_s


def test_driver_that_keeps_no_time_any_more_is_stuck_before_the_session_ends() -> None:
    harness = own()
    session_s = take_snapshot(harness.client, harness.now).proven_for_s
    beat_for(harness, 1.0)
    accepted_at = harness.client.parts.member.last_accepted_sent_at
    assert accepted_at is not None
    # Without polling, due requests are not sent.
    harness.under_way.pop(Channel.HEARTBEAT, None)
    view = take_snapshot(harness.client, accepted_at + SHARE * session_s)
    assert assess(view).condition is Condition.STUCK


def test_revocation_that_a_batch_holds_up_is_stuck_at_half_of_its_time() -> None:
    harness = own(rebalance_timeout_ms=60_000)
    plan = harness.client.plan(PlanLimit(), ends({0: 5, 1: 5}), harness.now)
    assert plan is not None
    harness.pump()
    harness.beat(accepted(2, parts(1)))
    beat_for(harness, 20.0, accepted(2, parts(1)))
    assert health_of(harness) is Condition.READING
    beat_for(harness, 10.0, accepted(2, parts(1)))
    assert health_of(harness) is Condition.STUCK
    harness.client.finish(plan, harness.now)
    harness.pump()
    harness.until(m.OffsetCommitRequest)
    harness.answer(Channel.OFFSETS, all_of(harness.request(Channel.OFFSETS)))
    assert health_of(harness) is Condition.READING


def test_query_that_does_not_call_is_stuck_before_its_member_leaves() -> None:
    harness = own(liveness=LivenessLimits(max_idle_s=60.0))
    beat_for(harness, 29.0)
    assert health_of(harness) is Condition.READING
    beat_for(harness, 2.0)
    assert health_of(harness) is Condition.STUCK
    assert not harness.client.parts.liveness.is_absent


def test_long_batch_is_slow_without_a_limit_and_stuck_with_one() -> None:
    for limits, condition in (
        (LivenessLimits(), Condition.SLOW),
        (LivenessLimits(max_batch_s=100.0), Condition.STUCK),
    ):
        harness = own(liveness=limits, rebalance_timeout_ms=60_000)
        harness.client.plan(PlanLimit(), ends({0: 5, 1: 5}), harness.now)
        harness.pump()
        beat_for(harness, 55.0)
        assert health_of(harness) is condition
