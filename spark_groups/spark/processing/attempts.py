"""Trying a record, again and again, until it is processed or its deadline is there."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Final

from spark_groups.errors import UnprocessableError
from spark_groups.spark.processing.letters import ERROR_BYTES_MAX
from spark_groups.spark.processing.record import Record

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
LEAST_S: Final = 0.001
AGAIN_S: Final = 5.0
"""How long what is interrupted may take to clean up, before that is interrupted, too."""

Handle = Callable[[Record], object]


@dataclass(frozen=True, slots=True)
class Attempted:
    """How trying a record ended.

    Args:
        attempts: How often it was tried.
        error: Why it was not processed; None: it was.
    """

    attempts: int
    error: str | None


class _DeadlineReached(BaseException):
    """Ends what runs on; no application takes it for an error of its own."""


def attempt(handle: Handle, record: Record, deadline_s: float) -> Attempted:
    """Try a record until it is processed or its deadline is there; each failure is logged.

    Args:
        handle: The application's function. What it does at the deadline is interrupted.
        record: What it is called with.
        deadline_s: On the monotonic clock; infinite: there is none, and it ends with a success.
    """
    attempts, pause_s = 0, FIRST_PAUSE_S
    error = "its time was up before it was tried"
    while (left_s := deadline_s - time.monotonic()) > 0:
        attempts += 1
        is_hopeless = False
        try:
            with _interrupted_after(left_s):
                handle(record)
            return Attempted(attempts, None)
        except _DeadlineReached:
            error = f"TimeoutError: not processed by its deadline, attempt {attempts}"
        except Exception as failure:
            error = _told(failure)
            is_hopeless = isinstance(failure, UnprocessableError)
        if time.monotonic() + pause_s >= deadline_s or (is_hopeless and deadline_s != inf):
            break
        logger.warning("%s, attempt %d: %s; again in %g s", record, attempts, error, pause_s)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return Attempted(attempts, error)


def _told(failure: Exception) -> str:
    """Return an error as text that UTF-8 can hold: records decide what is in it."""
    try:
        text = f"{type(failure).__name__}: {failure}"
    except Exception:
        text = type(failure).__name__
    told = text[:ERROR_BYTES_MAX].encode("utf-8", "backslashreplace")[:ERROR_BYTES_MAX]
    return told.decode("utf-8", "ignore")


@contextmanager
def _interrupted_after(limit_s: float) -> Iterator[None]:
    """Raise _DeadlineReached in the block after a while, again and again until it is left.

    A task runs on its main thread.
    """
    if limit_s == inf:
        yield
        return
    is_left = False

    def interrupt(*_: object) -> None:
        if not is_left:
            raise _DeadlineReached

    before = signal.signal(signal.SIGALRM, interrupt)
    others = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(limit_s, LEAST_S), AGAIN_S)
        yield
    finally:
        is_left = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)
