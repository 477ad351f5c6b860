"""Whether a query that failed at its start is started again: Spark gives a Python process 10 s.

Spark starts the process that runs a query's source on the driver's host, and waits 10 s until it
connects back (`PythonWorkerFactory.createSimpleWorker`); no setting changes that. A busy machine
takes longer. The source was not called then: there is no member of the group, and no batch.
"""

from __future__ import annotations

from typing import Final

STARTS_MAX: Final = 8
CONNECT_LIMIT_S: Final = 10
"""Spark's limit for a Python process to connect back."""
FIRST_PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
_TOO_LATE: Final = (
    # Spark 4.0 to 4.3, of every process that is not forked by PySpark's daemon.
    "Python worker failed to connect back",
    # Its cause, from Spark 4.0 on; before, java.net.ServerSocket's own text.
    "Timed out while waiting for the Python worker to connect back",
    "Accept timed out",
    # The process of a query's source or of foreachBatch connected, and was not ready in time.
    "STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE",
    "Streaming Runner initialization failed. Socket connection timeout",
)


def pause_before_s(starts: int) -> float:
    """Return the seconds to wait after a start that failed.

    Args:
        starts: How often the query was started.
    """
    return min(FIRST_PAUSE_S * 2.0 ** (starts - 1), PAUSE_MAX_S)


def connected_too_late(error: str) -> bool:
    """Return whether an error of Spark is its limit for a Python process to connect back."""
    return any(each.lower() in error.lower() for each in _TOO_LATE)
