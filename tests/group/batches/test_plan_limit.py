"""The rate limit, beside Spark's own rules for it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from spark_groups.group.batches.available_now_wait import (
    BEYOND_SESSION_S,
    AvailableNowWait,
    WhenUnsettled,
)
from spark_groups.group.batches.plan_limit import PlanLimit, divide

OFFSETS = some.integers(0, 2**53)
LOGS = some.dictionaries(some.integers(0, 50), some.tuples(OFFSETS, OFFSETS), max_size=20)


def sizes(ranges: dict[int, tuple[int, int]]) -> dict[int, int]:
    return {key: until - start for key, (start, until) in ranges.items()}


def sparks_rate_limit(backlog: dict[int, int], limit: int) -> dict[int, int]:
    """KafkaMicroBatchStream.rateLimit, line by line."""
    total = float(sum(backlog.values()))
    sized = {}
    for key, size in backlog.items():
        prorate = limit * (size / total)
        prorate_long = math.ceil(prorate) if prorate < 1 else math.floor(prorate)
        sized[key] = min(size, prorate_long)
    return sized


def test_no_limit_reads_all_there_is() -> None:
    assert divide({1: 5, 2: 0}, {1: 9, 2: 3}, None) == {1: (5, 9), 2: (0, 3)}


def test_partitions_without_an_end_or_a_backlog_are_left_out() -> None:
    assert divide({1: 5, 2: 5, 3: 5, 4: 5}, {1: 5, 2: 4, 3: 6, 9: 1}, 10) == {3: (5, 6)}


def test_limit_is_divided_in_proportion_and_small_ones_do_not_starve() -> None:
    ranges = divide({1: 0, 2: 100, 3: 0}, {1: 9_000, 2: 1_099, 3: 1}, 100)
    assert sizes(ranges) == {1: 90, 2: 9, 3: 1}


def test_limit_above_the_backlog_is_none() -> None:
    assert divide({1: 0, 2: 0}, {1: 7, 2: 3}, 10) == {1: (0, 7), 2: (0, 3)}


@settings(derandomize=True)
@given(logs=LOGS, limit=some.none() | some.integers(1, 10**9))
def test_ranges_begin_at_the_position_and_never_pass_the_end(
    logs: dict[int, tuple[int, int]], limit: int | None
) -> None:
    positions = {key: position for key, (position, _) in logs.items()}
    ends = {key: end for key, (_, end) in logs.items()}
    ranges = divide(positions, ends, limit)
    assert set(ranges) == {key for key in logs if ends[key] > positions[key]}
    for key, (start, until) in ranges.items():
        assert start == positions[key]
        assert start < until <= ends[key], "every backlog moves, or it would starve"
    if limit is not None:
        assert sum(sizes(ranges).values()) <= limit + len(ranges)


@settings(derandomize=True)
@given(logs=LOGS, limit=some.integers(1, 10**9))
def test_same_division_as_sparks(logs: dict[int, tuple[int, int]], limit: int) -> None:
    positions = {key: position for key, (position, _) in logs.items()}
    ends = {key: end for key, (_, end) in logs.items()}
    backlog = {key: ends[key] - positions[key] for key in logs if ends[key] > positions[key]}
    ranges = sizes(divide(positions, ends, limit))
    if limit >= sum(backlog.values()):
        assert ranges == backlog
    else:
        assert ranges == sparks_rate_limit(backlog, limit)


@pytest.mark.parametrize(
    ("limit", "backlog", "waited_s", "does"),
    [
        (PlanLimit(), 0, 0.0, False),
        (PlanLimit(min_offsets=10), 9, 0.0, True),
        (PlanLimit(min_offsets=10), 10, 0.0, False),
        (PlanLimit(min_offsets=10), 9, 899.9, True),
        (PlanLimit(min_offsets=10), 9, 900.0, False),
        (PlanLimit(min_offsets=10, max_trigger_delay_s=5.0), 9, 5.0, False),
        (PlanLimit(max_offsets=1), 9, 0.0, False),
    ],
)
def test_small_backlog_is_held_back(
    limit: PlanLimit, backlog: int, waited_s: float, does: bool
) -> None:
    assert limit.holds_back(backlog, waited_s) is does


@pytest.mark.parametrize("when", [WhenUnsettled.WARN, WhenUnsettled.FAIL])
def test_session_means_nothing_to_who_does_not_wait_for_it(when: WhenUnsettled) -> None:
    assert AvailableNowWait(7.0, when).limit_s(45_000) == 7.0


def test_who_waits_does_so_for_the_session_and_a_little_longer_but_never_shorter() -> None:
    assert AvailableNowWait(7.0, WhenUnsettled.WAIT).limit_s(45_000) == 45.0 + BEYOND_SESSION_S
    assert AvailableNowWait(99.0, WhenUnsettled.WAIT).limit_s(45_000) == 99.0
