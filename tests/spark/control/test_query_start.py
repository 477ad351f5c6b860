"""Whether a start is repeated: only if the Python process of the source connected too late."""

from __future__ import annotations

import pytest

from spark_groups.spark.control.query_start import (
    FIRST_PAUSE_S,
    PAUSE_MAX_S,
    STARTS_MAX,
    Next,
    NextStart,
    after_failure,
    connected_too_late,
)

TOO_LATE = "[STREAM_FAILED] Query terminated: Python worker failed to connect back. SQLSTATE: XXKST"


def test_a_process_that_connects_too_late_is_started_again() -> None:
    assert after_failure(TOO_LATE, starts=1) == NextStart(Next.AGAIN, FIRST_PAUSE_S)


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [after_failure(TOO_LATE, starts=each).pause_s for each in range(1, STARTS_MAX)]
    assert pauses == sorted(pauses)
    assert pauses[:3] == [1, 2, 4]
    assert pauses[-1] == PAUSE_MAX_S


def test_the_last_start_is_not_followed_by_another() -> None:
    assert after_failure(TOO_LATE, starts=STARTS_MAX) == NextStart(Next.GIVE_UP)
    assert after_failure(TOO_LATE, starts=1, starts_max=1) == NextStart(Next.GIVE_UP)


def test_nothing_is_repeated_after_a_batch() -> None:
    assert after_failure(TOO_LATE, starts=1, has_run_batch=True) == NextStart(Next.REPORT)


@pytest.mark.parametrize(
    "error",
    [
        "java.net.SocketTimeoutException: Accept timed out",
        "Timed out while waiting for the Python worker to connect back after 60000 ms",
        "Streaming Runner initialization failed. Socket connection timeout. Cause: Read timed out",
        "[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] ...",
    ],
)
def test_every_text_of_the_limit_is_known(error: str) -> None:
    assert connected_too_late(error)


@pytest.mark.parametrize(
    "error",
    [
        "",
        "GroupError: the coordinator refused this member",
        "Python worker exited unexpectedly (crashed)",
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source",
        "java.net.SocketTimeoutException: Read timed out",
    ],
)
def test_other_errors_are_reported_as_they_are(error: str) -> None:
    assert after_failure(error, starts=1) == NextStart(Next.REPORT)
