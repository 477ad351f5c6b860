"""When heartbeats are due. Time is an argument: the tests jump to the next instant."""

from __future__ import annotations

import pytest

from spark_groups.group.member.backoff import MAX_BACKOFF_S, Backoff
from spark_groups.group.member.pace import (
    BATCH_END_INTERVAL_S,
    DEFAULT_INTERVAL_S,
    FAST_INTERVAL_S,
    FAST_PERIOD_S,
    Pace,
)


def beat(pace: Pace, now: float, *, interval_ms: int = 5_000, throttle_ms: int = 0) -> float:
    """Send one, get the answer at once; return when the next is due."""
    pace.sent(now)
    pace.answered(now, interval_ms=interval_ms, throttle_ms=throttle_ms)
    due_at = pace.due_at()
    assert due_at is not None
    return due_at


def started(**arguments: bool) -> Pace:
    pace = Pace(**arguments)
    pace.at_once(0.0)
    assert pace.due_at() == 0.0
    return pace


def test_nothing_is_due_before_the_first_was_asked_for() -> None:
    assert Pace().due_at() is None


def test_nothing_is_due_while_one_is_under_way() -> None:
    pace = started()
    pace.sent(0.0)
    assert pace.due_at() is None


def test_one_that_was_asked_for_meanwhile_is_sent_as_soon_as_the_answer_is_there() -> None:
    pace = started()
    pace.sent(0.0)
    pace.at_once(0.1)
    pace.answered(0.2, interval_ms=5_000, throttle_ms=0)
    due_at = pace.due_at()
    assert due_at is not None
    assert due_at <= 0.2


def test_interval_is_the_brokers() -> None:
    assert beat(started(), 0.0, interval_ms=3_000) == pytest.approx(3.0)


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_interval_that_is_none_is_ignored(interval_ms: int) -> None:
    assert beat(started(), 0.0, interval_ms=interval_ms) == DEFAULT_INTERVAL_S


def test_fast_for_ten_seconds_then_doubling_up_to_the_interval() -> None:
    pace, now, gaps = started(), 0.0, []
    pace.expect_assignment(now, more=True)
    while now < 60:
        due_at = beat(pace, now)
        gaps.append((now, due_at - now))
        now = due_at
    fast = [gap for at, gap in gaps if at <= FAST_PERIOD_S]
    slow = [gap for at, gap in gaps if at > FAST_PERIOD_S]
    assert fast == pytest.approx([FAST_INTERVAL_S] * len(fast))
    assert len(fast) == 34
    assert slow == pytest.approx([0.6, 1.2, 2.4, 4.8] + [5.0] * (len(slow) - 4))


def test_fast_pace_ends_when_nothing_more_is_expected() -> None:
    pace = started()
    pace.expect_assignment(0.0, more=True)
    assert beat(pace, 0.0) == pytest.approx(FAST_INTERVAL_S)
    pace.expect_assignment(0.1, more=False)
    assert beat(pace, 0.3) == pytest.approx(5.3)


def test_expecting_again_begins_fast_again() -> None:
    pace = started()
    pace.expect_assignment(0.0, more=True)
    assert beat(pace, 20.0) == pytest.approx(20.6)
    pace.expect_assignment(20.1, more=False)
    pace.expect_assignment(20.2, more=True)
    assert beat(pace, 20.3) == pytest.approx(20.6)


def test_fast_pace_can_be_refused() -> None:
    pace = started(fast=False)
    pace.expect_assignment(0.0, more=True)
    assert beat(pace, 0.0) == pytest.approx(5.0)
    pace.at_batch_end(1.0)
    assert pace.due_at() == pytest.approx(5.0)


def test_fast_pace_is_never_slower_than_the_broker_asks_for() -> None:
    pace = started()
    pace.expect_assignment(0.0, more=True)
    assert beat(pace, 0.0, interval_ms=100) == pytest.approx(0.1)


@pytest.mark.parametrize(("at", "due_at"), [(0.2, BATCH_END_INTERVAL_S), (0.7, 0.7), (4.9, 4.9)])
def test_end_of_a_batch_is_reported_soon_but_not_at_once_after_another_heartbeat(
    at: float, due_at: float
) -> None:
    pace = started()
    beat(pace, 0.0)
    pace.at_batch_end(at)
    assert pace.due_at() == pytest.approx(due_at)


def test_end_of_a_batch_does_not_put_off_an_earlier_heartbeat() -> None:
    pace = started()
    beat(pace, 0.0, interval_ms=300)
    pace.at_batch_end(0.2)
    assert pace.due_at() == pytest.approx(0.3)


def test_throttle_delays_even_a_heartbeat_due_at_once() -> None:
    pace = started()
    pace.expect_assignment(0.0, more=True)
    assert beat(pace, 0.0, throttle_ms=2_000) == pytest.approx(2.0)
    pace.at_once(0.5)
    assert pace.due_at() == pytest.approx(2.0)


def test_failures_wait_longer_each_time_and_an_answer_forgives_them() -> None:
    pace, now, gaps = started(), 0.0, []
    for _ in range(6):
        pace.sent(now)
        pace.failed(now)
        due_at = pace.due_at()
        assert due_at is not None
        gaps.append(due_at - now)
        now = due_at
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, MAX_BACKOFF_S, MAX_BACKOFF_S])
    beat(pace, now)
    pace.failed(now)
    assert pace.due_at() == pytest.approx(now + 0.1)


def test_throttle_of_a_refusal_is_obeyed() -> None:
    pace = started()
    pace.sent(0.0)
    pace.refused(0.0, throttle_ms=3_000)
    assert pace.due_at() == pytest.approx(3.0)
    pace.at_once(1.0)
    assert pace.due_at() == pytest.approx(3.0)


def test_fast_period_restarts_on_progress() -> None:
    pace, now = started(), 0.0
    pace.expect_assignment(now, more=True)
    while now < 3 * FAST_PERIOD_S:
        now = beat(pace, now)
    assert beat(pace, now) - now > 1.0
    pace.renew(now)
    assert pace.due_at() == pytest.approx(now + FAST_INTERVAL_S)
    assert beat(pace, now + FAST_INTERVAL_S) == pytest.approx(now + 2 * FAST_INTERVAL_S)


def test_nothing_is_renewed_that_is_not_awaited() -> None:
    pace = started()
    pace.renew(0.0)
    assert beat(pace, 0.0) == pytest.approx(5.0)


def test_pauses_double_up_to_their_limit_and_restart() -> None:
    backoff, pauses = Backoff(), []
    assert backoff.not_before == 0.0
    for _ in range(6):
        backoff.failed(10.0)
        pauses.append(backoff.not_before - 10.0)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    backoff.succeeded()
    assert backoff.not_before == 0.0
    backoff.failed(20.0)
    assert backoff.not_before == pytest.approx(20.1)
