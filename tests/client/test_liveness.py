"""What is taken for a query that lives, and what is not."""

from __future__ import annotations

from math import inf

from spark_groups.client.liveness import (
    FIRST_REPORT_S,
    LEAST_IDLE_S,
    Liveness,
    LivenessLimits,
    Sign,
)
from spark_groups.types import BatchPlan

PLAN = BatchPlan("g", "m1", 3)


def called(liveness: Liveness, now: float, plan: BatchPlan | None = None) -> None:
    """A call that is answered at once, with a batch or without."""
    liveness.call_began(now)
    liveness.follow(plan, now)
    liveness.call_ended(now)


def test_query_that_never_called_is_not_judged() -> None:
    liveness = Liveness(LivenessLimits(max_idle_s=1.0))
    assert (liveness.judge(1e6), liveness.next_wakeup()) == (Sign.NONE, None)


def test_silence_without_a_batch_is_an_end() -> None:
    liveness = Liveness(LivenessLimits(max_idle_s=30.0))
    called(liveness, 10.0)
    assert liveness.next_wakeup() == 40.0
    assert liveness.judge(39.9) is Sign.NONE
    assert liveness.judge(40.0) is Sign.GONE
    assert liveness.idle_s(40.0) == 30.0
    called(liveness, 41.0)
    assert liveness.judge(50.0) is Sign.NONE


def test_call_that_takes_long_is_no_silence() -> None:
    liveness = Liveness(LivenessLimits(max_idle_s=30.0))
    liveness.call_began(0.0)
    assert (liveness.judge(100.0), liveness.next_wakeup()) == (Sign.NONE, None)
    liveness.call_ended(100.0)
    assert liveness.judge(129.0) is Sign.NONE
    assert liveness.judge(130.0) is Sign.GONE


def test_slow_trigger_is_not_taken_for_a_dead_query() -> None:
    liveness = Liveness(LivenessLimits())
    called(liveness, 0.0, PLAN)
    called(liveness, 3_600.0)
    assert liveness.idle_limit_s == 4 * 3_600.0
    assert liveness.judge(2 * 3_600.0) is Sign.NONE
    assert liveness.judge(5 * 3_600.0) is Sign.GONE


def test_quick_trigger_is_given_ten_minutes_and_forgets_one_long_batch() -> None:
    liveness = Liveness(LivenessLimits())
    called(liveness, 0.0, PLAN)
    called(liveness, 7_200.0)
    for each in range(20):
        called(liveness, 7_201.0 + each)
    assert liveness.idle_limit_s == LEAST_IDLE_S
    assert liveness.next_wakeup() == 7_220.0 + LEAST_IDLE_S


def test_trigger_that_is_known_needs_no_call_to_be_measured() -> None:
    liveness = Liveness(LivenessLimits())
    liveness.call_began(0.0)
    liveness.call_ended(0.0)
    liveness.expect_calls_every(3600.0)
    assert liveness.judge(3600.0) is Sign.NONE
    assert liveness.judge(4 * 3600.0) is Sign.GONE


def test_limit_can_be_switched_off() -> None:
    liveness = Liveness(LivenessLimits(max_idle_s=inf))
    called(liveness, 0.0)
    assert (liveness.judge(1e9), liveness.next_wakeup()) == (Sign.NONE, None)


def test_batch_is_never_taken_for_a_dead_query_but_told_of_in_growing_intervals() -> None:
    liveness = Liveness(LivenessLimits(max_idle_s=30.0))
    called(liveness, 100.0, PLAN)
    told = []
    for _ in range(4):
        now = liveness.next_wakeup()
        assert now is not None
        assert liveness.judge(now - 0.001) is Sign.NONE
        assert liveness.judge(now) is Sign.LONG_BATCH
        told.append(liveness.batch_age_s(now))
    assert told == [FIRST_REPORT_S * each for each in (1, 2, 4, 8)]
    assert liveness.idle_s(1e6) is None


def test_batch_has_a_limit_of_its_own() -> None:
    liveness = Liveness(LivenessLimits(max_batch_s=60.0))
    called(liveness, 0.0, PLAN)
    assert liveness.next_wakeup() == 60.0
    assert liveness.judge(60.0) is Sign.OVERDUE_BATCH
    called(liveness, 61.0)
    assert liveness.judge(62.0) is Sign.NONE
    assert liveness.batch_age_s(62.0) is None


def test_silence_counts_from_the_end_of_the_batch_if_that_is_heard_of_in_between() -> None:
    liveness = Liveness(LivenessLimits(max_idle_s=30.0))
    called(liveness, 0.0, PLAN)
    liveness.follow(None, 100.0)
    assert liveness.judge(129.0) is Sign.NONE
    assert liveness.judge(130.0) is Sign.GONE
