"""How much of the rebalance time-out is used up, what is said about it and when it is over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from spark_groups.client.revocation import (
    MAX_REBALANCE_TIMEOUT_MS,
    RevocationBudget,
    timeout_for_gap,
)
from spark_groups.types import BatchPlan, OffsetRange
from tests.client.hands import TOPIC, parts


def plan(count: int) -> BatchPlan:
    return BatchPlan("g", "m", 1, (OffsetRange(TOPIC, "orders", 0, 0, count),))


def percents(budget: RevocationBudget, told_at: float, now: float) -> list[int]:
    return [each.percent for each in budget.warnings(told_at, 100.0, parts(0), now)]


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
    told_at=some.floats(0, 1e7, allow_nan=False),
    timeout_s=some.floats(0.5, 4_000, allow_nan=False),
)
def test_it_is_over_at_the_very_mark_it_asked_to_be_woken_at(
    told_at: float, timeout_s: float
) -> None:
    budget, now = RevocationBudget(), told_at
    said: list[int] = []
    while (mark := budget.next_mark(told_at, timeout_s, now)) is not None:
        assert not budget.is_over(told_at, timeout_s, now)
        now = mark
        said += [e.percent for e in budget.warnings(told_at, timeout_s, parts(0), now)]
    assert budget.is_over(told_at, timeout_s, now)
    assert said == [50, 80]


def test_fitting_limit_is_known_from_the_batch_that_runs_or_ran() -> None:
    budget = RevocationBudget()
    (unknown,) = budget.warnings(0.0, 100.0, parts(0), 50.0)
    assert unknown.fitting_offsets is None
    budget.batch_began(plan(1_000), 100.0)
    (running,) = budget.warnings(100.0, 100.0, parts(0), 150.0)
    assert running.fitting_offsets == 1_000, "20 a second, for half the time-out"
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
