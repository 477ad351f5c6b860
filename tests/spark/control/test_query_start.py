"""Whether a start is repeated: only if the Python process of the source connected too late."""

from __future__ import annotations

import pytest

from spark_groups.spark.control.query_start import (
    PAUSE_MAX_S,
    STARTS_MAX,
    connected_too_late,
    pause_before_s,
)


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause_before_s(each) for each in range(1, STARTS_MAX)]
    assert pauses == sorted(pauses)
    assert pauses[:3] == [1, 2, 4]
    assert pauses[-1] == PAUSE_MAX_S


@pytest.mark.parametrize(
    "error",
    [
        "[STREAM_FAILED] Query terminated: Python worker failed to connect back. SQLSTATE: XXKST",
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
    assert not connected_too_late(error)
