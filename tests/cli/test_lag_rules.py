"""Burrow's rules: a table of samples with expected statuses and reasons."""

from __future__ import annotations

import pytest

from spark_groups.cli.lag_rules import (
    STATUS_MEANINGS,
    LagSample,
    PartitionStatus,
    Verdict,
    judge_group,
    judge_partition,
)

OK, WARN, STOP, STALL, REWIND = PartitionStatus


def samples(
    committed: list[int | None], lags: list[int | None], batch_began_at_s: float | None = None
) -> list[LagSample]:
    """Return samples a second apart, the first at 0."""
    return [
        LagSample(float(at_s), offset, lag, batch_began_at_s)
        for at_s, (offset, lag) in enumerate(zip(committed, lags, strict=True))
    ]


@pytest.mark.parametrize(
    ("committed", "lags", "expected"),
    [
        # Rule 0: no lag now, regardless of earlier samples.
        ([1, 1, 1, 1], [9, 9, 9, 0], OK),
        ([5, 4, 4, 4], [9, 9, 9, 0], OK),
        # Rule 1: commits, then silence for longer than there were commits, and lag ever since.
        ([1, 2, 2, 2, 2, 2], [9, 8, 8, 8, 8, 8], STOP),
        # As long as it was active it may be silent: a batch may take that long.
        ([1, 2, 3, 3, 3], [9, 8, 7, 7, 7], OK),
        # There was no lag after the last commit: there was nothing to do.
        ([1, 2, 2, 2, 2, 2], [9, 0, 0, 0, 0, 3], OK),
        # Rule 2: back, and not come back.
        ([5, 6, 7, 3], [2, 2, 2, 6], REWIND),
        ([5, None, 5, None], [2, 7, 2, 7], REWIND),
        ([5, 3, 4, 7], [2, 4, 3, 1], OK),
        # Rule 3: there was no lag for a moment.
        ([5, 6, 6, 7], [1, 0, 2, 3], OK),
        # Rule 4: nothing is committed, and it lags.
        ([5, 5, 5, 5], [1, 2, 3, 4], STALL),
        ([5, 5, 5, 5], [3, 3, 3, 3], STALL),
        ([None, None, None], [1, 2, 3], STALL),
        # Rule 5: commits, and the lag never falls.
        ([5, 6, 7, 8], [1, 2, 2, 3], WARN),
        ([5, 6, 7, 8], [3, 2, 4, 5], OK),
        # The first commit that there is, in the last sample.
        ([None, None, 4], [4, 4, 2], OK),
        # Samples without a lag are ignored.
        ([5, None, 5], [None, None, None], None),
        ([5, None, 5], [3, None, None], None),
        ([5, None, 5], [None, None, 0], OK),
        ([5, None, 5], [3, None, 3], STALL),
        ([], [], None),
    ],
)
def test_rules_are_tried_in_order(committed, lags, expected) -> None:
    assert judge_partition(samples(committed, lags), now_s=len(lags) - 1.0) is expected


def test_a_lag_that_is_allowed_is_none() -> None:
    standing = samples([5, 5, 5], [10, 10, 10])
    assert judge_partition(standing, 2.0, allowed_lag=9) is STALL
    assert judge_partition(standing, 2.0, allowed_lag=10) is OK


@pytest.mark.parametrize(
    ("began_at_s", "expected"),
    [
        (None, STALL),
        # It began before the first sample, and may never end.
        (-60.0, STALL),
        # It began within the window: so the one before had ended.
        (2.0, WARN),
        (0.5, STOP),
    ],
)
def test_a_batch_that_began_in_the_window_is_a_sign_of_life(began_at_s, expected) -> None:
    assert judge_partition(samples([5] * 4, [3] * 4, began_at_s), 3.0) is expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], Verdict.OK),
        ([OK, OK], Verdict.OK),
        ([OK, None], Verdict.WARN),
        ([OK, WARN], Verdict.WARN),
        *(([WARN, each, None], Verdict.ERR) for each in (STOP, STALL, REWIND)),
    ],
)
def test_a_group_is_as_bad_as_its_worst_partition(statuses, expected) -> None:
    assert judge_group(statuses) is expected


def test_exit_codes_and_meanings() -> None:
    assert [each.value for each in Verdict] == [0, 1, 2]
    assert set(STATUS_MEANINGS) == set(PartitionStatus)
