"""`start` and `await_end`: the two calls with which an application runs its query.

`start` repeats a start that Spark gave up because the machine was busy; `await_end` ends the query
cleanly on Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups.errors import OptionsError, QueryStartError
from spark_groups.spark.control.listener import driver_log_to_stderr
from spark_groups.spark.control.query_start import (
    CONNECT_LIMIT_S,
    STARTS_MAX,
    connected_too_late,
    pause_before_s,
)
from spark_groups.spark.control.running_query import brokers_of
from spark_groups.spark.control.shutdown import (
    AT_ONCE,
    SIGNALS,
    clean_end,
    current_end,
    holds_by,
    in_main_thread,
)
from spark_groups.spark.control.spark_log import NOT_CANCELLED, drop_lines

logger = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 300.0
"""How long `start` waits for one start: Spark itself needs seconds, and limits only the process."""
SAY_EVERY_S: Final = 10.0
_LOOK_S: Final = 0.05


def start(writer: DataStreamWriter, *, starts_max: int = STARTS_MAX) -> StreamingQuery:
    """Start a query, again where the machine was too busy, and return it.

    Spark gives the process of the query's source 10 s to connect back, and ends the query if it is
    later. Such a query has read nothing: it is started again, after a growing pause, with a WARN.
    The call returns when that process has connected. Any other failure of the query is reported
    where Spark reports it: by `awaitTermination` and `await_end`.

    Args:
        writer: Its query name, trigger, path and checkpoint are set.
        starts_max: How often the query may be started.

    Raises:
        QueryStartError: Each start failed by Spark's limit.
        OptionsError: `starts_max` is not positive.
        PySparkException: Spark refuses the query.
    """
    if starts_max < 1:
        raise OptionsError(f"starts_max must be positive, not {starts_max}")
    driver_log_to_stderr()
    drop_lines(getattr(getattr(writer, "_spark", None), "_jvm", None), NOT_CANCELLED)
    logger.info("%s", _starting(writer))
    starts = 0
    with _signals_noted() as noted:
        while True:
            starts += 1
            query, error = _start_once(writer, noted)
            if error is None or not connected_too_late(str(error)):
                if query is None:
                    assert error is not None
                    raise error
                noted.end_if_signalled(query)
                return query
            if starts == starts_max:
                raise QueryStartError(
                    f"the query did not start: {starts} times its Python process did not connect"
                    f" back to Spark within {CONNECT_LIMIT_S} s, a limit that no setting changes."
                    " The machine is too busy, or that Python does not start: give the driver more"
                    " CPU, start applications one after the other, and run `spark-groups doctor`"
                ) from error
            pause_s = pause_before_s(starts)
            logger.warning(
                "start %d of %d failed: the query's Python process did not connect back within"
                " %d s. That limit is Spark's, no setting changes it, and the machine is busy."
                " Nothing was read; start %d follows in %g s",
                starts,
                starts_max,
                CONNECT_LIMIT_S,
                starts + 1,
                pause_s,
            )
            _pause(pause_s, noted)


def await_end(query: StreamingQuery, *, timeout_s: float | None = None) -> None:
    """Wait until a query ends; on Ctrl-C or SIGTERM end it cleanly, and return.

    The running batch ends, its offsets are committed, and the member leaves its group, all with one
    line in the log. All queries of the application end. A batch that takes longer than `timeout_s`
    is given up, and its records are read again. A second Ctrl-C ends the application at once.

    Args:
        query: A query of a classic session, not Spark Connect.
        timeout_s: Seconds that running batches may take to end; None: the last limit, or 30.

    Raises:
        StreamingQueryException: The query failed.
        OptionsError: The session is a Spark Connect session, or the timeout is not positive.
        SystemExit: The JVM has ended.
    """
    driver_log_to_stderr()
    with _signals_noted() as noted:
        end = clean_end(_session_of(query), timeout_s=timeout_s)
        try:
            with end.signals_handled():
                noted.pass_on()
                end.await_termination(query)
        finally:
            if end.signal_number == signal.SIGINT:
                # In a notebook another query may follow.
                end.close()


class _Noted:
    """The signal that came while a query was starting; None: none."""

    number: int | None = None

    def note(self, number: int, _: object) -> None:
        """Handle a signal: a second Ctrl-C ends the application at once."""
        if self.number is not None and number == signal.SIGINT:
            os.write(2, AT_ONCE)
            os._exit(128 + number)
        self.number = number

    def pass_on(self) -> None:
        """Raise the signal again, for the handler that there is now."""
        number, self.number = self.number, None
        if number is not None:
            signal.raise_signal(number)

    def end_if_signalled(self, query: StreamingQuery | None = None) -> bool:
        """Return False if there was no signal; else end the application.

        Raises:
            SystemExit: A signal came.
        """
        number = self.number
        end = current_end()
        if number is None and end is not None and end.has_begun:
            # It stops this query and the others.
            end.await_done()
            number = end.signal_number or signal.SIGTERM
        if number is None:
            return False
        self.number = None
        if query is not None:
            # An end that has begun may have missed it.
            with suppress(Py4JError, OSError):
                query.stop()
        logger.info("ended by %s before the query had started", signal.Signals(number).name)
        sys.exit(128 + number)


@contextmanager
def _signals_noted() -> Iterator[_Noted]:
    """Note signals instead of acting on them, unless the application handles them itself.

    PySpark's own handler of Ctrl-C calls the JVM on a connection that may be in use.
    """
    noted = _Noted()
    end = current_end()
    if not in_main_thread() or (end is not None and end.handles_signals):
        yield noted
        return
    before = {number: signal.signal(number, noted.note) for number in SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        noted.pass_on()


def _start_once(
    writer: DataStreamWriter, noted: _Noted
) -> tuple[StreamingQuery | None, Exception | None]:
    """Start the query; return it, and why it failed before its first batch, if it did."""
    try:
        query = writer.start()
    except Exception as error:
        return None, error
    _await_source(query, noted)
    if query.isActive or query.lastProgress is not None:
        return query, None
    return query, query.exception()


_NOT_CONNECTED: Final = ("Initializing", "Terminated")
"""How the texts of Spark's status begin while no source has connected."""


def _await_source(query: StreamingQuery, noted: _Noted) -> None:
    """Wait until the process of the query's source has connected, or the query has ended."""
    began_s = time.monotonic()
    said = 0
    while query.isActive:
        status = query.status
        # Spark connects to the sources of a query between the first text and the next. A query that
        # fails has the last one while it is still active.
        if status["isTriggerActive"] or not str(status["message"]).startswith(_NOT_CONNECTED):
            return
        noted.end_if_signalled(query)
        waited_s = time.monotonic() - began_s
        if waited_s > START_TIMEOUT_S:
            logger.warning(
                "the query has not started after %.0f s: %s", waited_s, status["message"]
            )
            return
        if waited_s > (said + 1) * SAY_EVERY_S:
            said += 1
            logger.info("the query has been starting for %.0f s: %s", waited_s, status["message"])
        time.sleep(_LOOK_S)


def _pause(pause_s: float, noted: _Noted) -> None:
    holds_by(time.monotonic() + pause_s, noted.end_if_signalled)


def _starting(writer: DataStreamWriter) -> str:
    """Return the line of a start, which has no other one until its source has a process."""
    frame: Any = getattr(writer, "_df", None)
    brokers = brokers_of(frame) if hasattr(frame, "_jdf") else ""
    then = f", which connects to {brokers}" if brokers else ""
    return f"starting the query: Spark starts the process of its source{then}"


def _session_of(query: StreamingQuery) -> SparkSession:
    """Return the session of a query.

    Raises:
        OptionsError: It is a Spark Connect session.
    """
    of_jvm: Any = getattr(query, "_jsq", None)
    context = SparkContext._active_spark_context
    if of_jvm is None or context is None:
        raise OptionsError(
            "await_end() requires a classic session: with Spark Connect, call"
            " query.awaitTermination() and query.stop()"
        )
    return SparkSession(context, of_jvm.sparkSession())
