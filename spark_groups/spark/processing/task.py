"""Processes the records of a task: calls the function, and applies the strategy to failures."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

import pyarrow as pa

from spark_groups.errors import UnprocessableError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.counts import FateCounts
from spark_groups.spark.processing.kafka_record import Record, records_of
from spark_groups.spark.processing.letters import (
    Addresses,
    Letter,
    dead_letter,
    error_text,
    expiry_ms,
    own_origin,
    recirculated,
)
from spark_groups.spark.processing.record_writer import WRITERS, RecordWriter
from spark_groups.spark.processing.strategies import Fate, Recirculate, Strategy, fate_of_failed
from spark_groups.types import TopicPartition

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
LEAST_S: Final = 0.001
AGAIN_S: Final = 5.0
"""How long an interrupted function may clean up before another interrupt."""

Handle = Callable[[Record], object]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempted:
    """The outcome of all attempts at a record.

    Args:
        error: None if the record was processed.
    """

    attempts: int
    error: str | None


class _DeadlineReached(BaseException):
    """Interrupts the function; a BaseException, so that applications do not catch it."""


def attempt(handle: Handle, record: Record, deadline_s: float) -> Attempted:
    """Retry a record until it is processed or its deadline passes; log each failure.

    Args:
        deadline_s: On the monotonic clock; if infinite, the function retries until it succeeds.
    """
    attempts, pause_s = 0, FIRST_PAUSE_S
    error = "its deadline passed before the first attempt"
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
            error = error_text(failure)
            is_hopeless = isinstance(failure, UnprocessableError)
        if time.monotonic() + pause_s >= deadline_s or (is_hopeless and deadline_s != inf):
            break
        logger.warning("%s, attempt %d: %s; retrying in %g s", record, attempts, error, pause_s)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return Attempted(attempts, error)


@contextmanager
def _interrupted_after(limit_s: float) -> Iterator[None]:
    """Raise _DeadlineReached in the block after a limit, repeatedly until it is left.

    Requires the main thread, on which Spark runs tasks.
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


@dataclass(frozen=True)
class Task:
    """Processes records in the tasks of one batch; pickled to executors.

    Args:
        addresses: Retry and dead-letter topics, by the topic that was read.
        record_s: Seconds per record; infinite means no limit.
        batch_ends_at_s: The batch deadline, in seconds since 1970.
        committed_offsets: Offsets that other members have committed since the batch was planned.
    """

    handle: Handle
    strategy: Strategy
    group_id: str
    addresses: Mapping[str, Addresses]
    record_s: float
    batch_ends_at_s: float
    connection: RangeSettings
    committed_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the records of a task in order, and yield counts when all letters are written.

        Raises:
            DeliveryError: A letter could not be written.
        """
        counts = FateCounts()
        with ExitStack() as stack:
            writing = _Writing(stack, self.connection)
            is_over = False
            for record in records_of(batches):
                if record.offset < self.committed_offsets.get(
                    TopicPartition(record.topic, record.partition), 0
                ):
                    continue
                if is_over:
                    counts.add(
                        record, Fate.RELINQUISHED, "the batch was relinquished before this record"
                    )
                    continue
                tried = attempt(self.handle, record, self._deadline_s())
                if tried.error is None:
                    counts.add(record, Fate.PROCESSED, attempts=tried.attempts)
                    continue
                fate = self._resolve(record, tried, writing)
                counts.add(record, fate, tried.error, attempts=tried.attempts)
                is_over = fate is Fate.RELINQUISHED
            writing.await_delivery()
        yield counts.rows()

    def _deadline_s(self) -> float:
        """Return the deadline of a record that starts now, on the monotonic clock."""
        left_s = inf if self.batch_ends_at_s == inf else self.batch_ends_at_s - time.time()
        return time.monotonic() + min(left_s, self.record_s)

    def _resolve(self, record: Record, tried: Attempted, writing: _Writing) -> Fate:
        """Apply the strategy to a failed record, and return its fate."""
        error = tried.error or ""
        origin = own_origin(record, self.addresses[record.topic].first)
        expire_after_s = None
        if isinstance(self.strategy, Recirculate):
            expire_after_s = self.strategy.expire_after_s
        expires_ms = expiry_ms(origin, expire_after_s)
        fate = fate_of_failed(
            self.strategy, retries=origin.retries, expires_ms=expires_ms, now_ms=time.time() * 1000
        )
        logger.warning("%s is %s after %d attempts: %s", record, fate.value, tried.attempts, error)
        history = replace(origin, group_id=self.group_id, expires_ms=expires_ms)
        addresses = self.addresses[record.topic]
        if fate is Fate.RECIRCULATED and addresses.retry is not None:
            writing.write(recirculated(record, history, error, addresses.retry))
        elif fate is Fate.DEAD_LETTERED and addresses.dead_letter is not None:
            writing.write(dead_letter(record, history, error, addresses.dead_letter))
        return fate


class _Writing:
    """A writer that is borrowed on first use."""

    def __init__(self, stack: ExitStack, connection: RangeSettings) -> None:
        self._stack = stack
        self._connection = connection
        self._writer: RecordWriter | None = None

    def write(self, letter: Letter) -> None:
        if self._writer is None:
            self._writer = self._stack.enter_context(WRITERS.borrow(self._connection))
        self._writer.write(letter)

    def await_delivery(self) -> None:
        if self._writer is not None:
            self._writer.await_delivery()
