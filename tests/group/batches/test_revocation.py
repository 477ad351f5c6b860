"""How much time a revocation has, and how a rebalance listener holds its acknowledgement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.revocation import (
    MAX_REBALANCE_TIMEOUT_MS,
    RevocationBudget,
    RevocationHold,
    timeout_for_gap,
)
from spark_groups.group.ledger.events import PartitionsGivenUp, RevocationHeld
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import PartitionsRevoked
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel
from spark_groups.types import BatchPlan, OffsetRange
from tests.group.harness import TOPIC, ClientHarness, accepted, all_of, ends, key, parts


def plan(count: int) -> BatchPlan:
    return BatchPlan("g", "m", 1, (OffsetRange(TOPIC, "orders", 0, 0, count),))


def percents(budget: RevocationBudget, requested_at: float, now: float) -> list[int]:
    return [each.percent for each in budget.warnings(requested_at, 100.0, parts(0), now)]


def test_each_warning_comes_once_for_each_revocation() -> None:
    budget = RevocationBudget()
    assert percents(budget, 0.0, 49.9) == []
    assert percents(budget, 0.0, 50.0) == [50]
    assert percents(budget, 0.0, 60.0) == []
    assert percents(budget, 0.0, 85.0) == [80]
    assert percents(budget, 0.0, 95.0) == []
    assert percents(budget, 200.0, 290.0) == [50, 80]


def test_marks_come_in_turn() -> None:
    budget = RevocationBudget()
    marks = [budget.next_mark(0.0, 100.0, now) for now in (0.0, 50.0, 80.0, 90.0)]
    assert marks == [50.0, 80.0, 90.0, None]


@settings(derandomize=True)
@given(
    requested_at=some.floats(0, 1e7, allow_nan=False),
    timeout_s=some.floats(0.5, 4_000, allow_nan=False),
)
def test_it_is_over_at_the_very_mark_it_asked_to_be_woken_at(
    requested_at: float, timeout_s: float
) -> None:
    budget, now = RevocationBudget(), requested_at
    said: list[int] = []
    while (mark := budget.next_mark(requested_at, timeout_s, now)) is not None:
        assert not budget.is_over(requested_at, timeout_s, now)
        now = mark
        said += [e.percent for e in budget.warnings(requested_at, timeout_s, parts(0), now)]
    assert budget.is_over(requested_at, timeout_s, now)
    assert said == [50, 80]


def test_fitting_limit_is_known_from_the_batch_that_runs_or_ran() -> None:
    budget = RevocationBudget()
    (unknown,) = budget.warnings(0.0, 100.0, parts(0), 50.0)
    assert unknown.fitting_offsets is None
    budget.batch_began(plan(1_000), 100.0)
    (running,) = budget.warnings(100.0, 100.0, parts(0), 150.0)
    assert running.fitting_offsets == 1_000, "20 a second, for half the timeout"
    budget.batch_finished(110.0)
    (ran,) = budget.warnings(200.0, 100.0, parts(0), 250.0)
    assert ran.fitting_offsets == 5_000


@pytest.mark.parametrize(
    ("gap_s", "timeout_ms", "wanted"),
    [
        (5.0, 10_000, None),
        (5.1, 10_000, 20_400),
        (150.0, 300_000, None),
        (400.0, 300_000, 1_600_000),
        (5_000.0, 300_000, MAX_REBALANCE_TIMEOUT_MS),
        (5_000.0, MAX_REBALANCE_TIMEOUT_MS, None),
    ],
)
def test_calls_too_far_apart_need_a_larger_timeout(
    gap_s: float, timeout_ms: int, wanted: int | None
) -> None:
    assert timeout_for_gap(gap_s, timeout_ms) == wanted


def test_nothing_is_held_without_a_listener() -> None:
    hold = RevocationHold()
    assert hold.begin(parts(1), 9.0, 0.0) is None
    assert not hold.holds()


def test_a_revocation_is_held_until_it_is_released() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    held = hold.begin(parts(1, 2), 9.0, 1.0)
    assert held == RevocationHeld(1.0, 1, (key(1), key(2)), 9.0)
    assert hold.begin(parts(1, 2), 9.0, 2.0) is None, "reported once"
    hold.release(7)
    assert hold.holds()
    hold.release(1)
    assert not hold.holds()


def test_more_to_give_up_is_another_revocation() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    hold.begin(parts(1), 9.0, 0.0)
    held = hold.begin(parts(1, 2), 9.0, 1.0)
    assert held is not None
    assert held.number == 2
    hold.release(1)
    assert hold.holds()


def test_a_listener_that_is_gone_holds_nothing() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    hold.begin(parts(1), 9.0, 0.0)
    hold.is_wanted = False
    assert not hold.holds()


def test_the_same_partitions_can_be_revoked_again() -> None:
    hold = RevocationHold()
    hold.is_wanted = True
    hold.begin(parts(1), 9.0, 0.0)
    hold.forget()
    assert not hold.holds()
    assert hold.begin(parts(1), 19.0, 10.0) is not None


def revoking(rebalance_timeout_ms: int = 10_000) -> ClientHarness:
    """A client that is to give up partition 1, which no batch reads, and for which one listens."""
    harness = ClientHarness(rebalance_timeout_ms=rebalance_timeout_ms)
    harness.own(0, 1)
    harness.client.hold_revocations(True, harness.now)
    harness.beat(accepted(2, parts(0)))
    return harness


def test_the_acknowledgement_waits_for_the_listener() -> None:
    harness = revoking()
    harness.wait(5.0)
    assert harness.client.parts.member.state is MemberState.RECONCILING
    (held,) = harness.find(RevocationHeld)
    assert isinstance(held, RevocationHeld)
    assert (held.partitions, held.deadline - held.at) == ((key(1),), pytest.approx(9.0))
    harness.client.release_revocation(held.number, harness.now)
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING
    harness.pump()
    assert len(harness.find(PartitionsRevoked)) == 1


def test_the_acknowledgement_waits_no_longer_than_its_budget() -> None:
    harness = revoking()
    (held,) = harness.find(RevocationHeld)
    while not harness.find(PartitionsRevoked):
        harness.until(m.HeartbeatRequest)
        harness.wait(0.05)
        if Channel.HEARTBEAT in harness.under_way and not harness.find(PartitionsRevoked):
            harness.answer(Channel.HEARTBEAT, accepted(2))
    (revoked,) = harness.find(PartitionsRevoked)
    assert isinstance(held, RevocationHeld)
    assert revoked.at == pytest.approx(held.deadline)
    assert not harness.find(PartitionsGivenUp), "nothing uncommitted was in it"


def test_the_acknowledgement_follows_at_once_when_the_listener_dies() -> None:
    harness = revoking()
    harness.client.hold_revocations(False, harness.now)
    assert harness.client.parts.member.state is MemberState.ACKNOWLEDGING


def test_the_listener_is_notified_only_when_the_batch_is_committed() -> None:
    harness = ClientHarness()
    harness.own(0, 1)
    harness.client.hold_revocations(True, harness.now)
    plan = harness.client.plan(PlanLimit(), ends({0: 5, 1: 5}), harness.now)
    assert plan is not None
    harness.pump()
    harness.beat(accepted(2, parts(0)))
    assert not harness.find(RevocationHeld)
    harness.client.finish(plan, harness.now)
    harness.pump()
    assert not harness.find(RevocationHeld)
    harness.answer(Channel.OFFSETS, all_of(harness.until(m.OffsetCommitRequest)))
    assert len(harness.find(RevocationHeld)) == 1
    assert harness.client.parts.member.state is MemberState.RECONCILING
