"""Whether a query that failed at its start is started again: Spark gives a Python process 10 s.

Spark starts the process that runs a query's source on the driver's host, and waits 10 s until it
connects back (`PythonWorkerFactory.createSimpleWorker`); no setting changes that. A busy machine
takes longer. The source was not called then: there is no member of the group, and no batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
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


class Next(Enum):
    """What follows the failure of a start."""

    AGAIN = "start the query again, after a pause"
    GIVE_UP = "it failed as often as allowed"
    REPORT = "another error, or a batch has run: nothing is repeated"


@dataclass(frozen=True, slots=True)
class NextStart:
    """What follows the failure of a start.

    Args:
        step: What to do.
        pause_s: Seconds to wait before the next start; 0 unless the query is started again.
    """

    step: Next
    pause_s: float = 0.0


def after_failure(
    error: str, *, starts: int, starts_max: int = STARTS_MAX, has_run_batch: bool = False
) -> NextStart:
    """Return what follows the failure of a start.

    Args:
        error: The text of Spark's error.
        starts: How often the query was started, with this time.
        starts_max: How often it may be started.
        has_run_batch: Whether this run has finished a batch.
    """
    if has_run_batch or not connected_too_late(error):
        return NextStart(Next.REPORT)
    if starts >= starts_max:
        return NextStart(Next.GIVE_UP)
    return NextStart(Next.AGAIN, min(FIRST_PAUSE_S * 2 ** (starts - 1), PAUSE_MAX_S))


def connected_too_late(error: str) -> bool:
    """Return whether an error of Spark is its limit for a Python process to connect back."""
    return any(each.lower() in error.lower() for each in _TOO_LATE)
