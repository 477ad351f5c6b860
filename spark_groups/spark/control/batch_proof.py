"""A function that Spark calls with a batch reports that it is done: its offsets can be committed.

Without this, and without a listener, the query's runner learns it from the next trigger. Through
Spark Connect the runner is connected, because the function has asked it for the batch; in a classic
session the driver opens a channel with its first report, which runners find within half a second.
"""

from __future__ import annotations

import atexit
import threading
from typing import Any, Final

from pyspark import SparkContext

from spark_groups.spark.control.channel import ControlServer, directories_of_driver
from spark_groups.spark.control.control_messages import BatchWritten, Listening
from spark_groups.spark.control.listener import reported_groups
from spark_groups.spark.control.running_query import RunningQuery
from spark_groups.spark.control.served_query import batch_channel, is_called_by_spark, is_served

RUNS_MAX: Final = 16
"""How many runs of queries may have a last report that a late runner gets."""


class DriverChannel:
    """The control channel of a driver's process, for the current SparkContext."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._server: ControlServer | None = None
        self._last: dict[str, BatchWritten] = {}
        """The last report of each run, for runners that have not connected yet."""

    def report(self, run_id: str, done: BatchWritten) -> None:
        """Report a batch to the runners of the application.

        Args:
            run_id: The run of the query.
            done: The report.
        """
        with self._lock:
            self._last.pop(run_id, None)
            if len(self._last) >= RUNS_MAX:
                del self._last[next(iter(self._last))]
            self._last[run_id] = done
            if (context := SparkContext._active_spark_context) is not self._context:
                self._open(context)
            if self._server is not None:
                self._server.broadcast(done)

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._open(None)

    def _open(self, context: SparkContext | None) -> None:
        if self._server is not None:
            self._server.close()
        self._context, self._server = context, None
        if context is None:
            return
        jvm: Any = context._jvm
        self._server = ControlServer(
            int(jvm.java.lang.ProcessHandle.current().pid()),
            Listening(reported_groups=(), holds_revocations=False),
            lambda *_: None,
            directories_of_driver(jvm),
            lambda: tuple(self._last.values()),
        )
        self._server.start("offsets are committed at the next trigger")


_CHANNEL: Final = DriverChannel()
atexit.register(_CHANNEL.close)


def report_done(running: RunningQuery) -> None:
    """Report a batch with which all is done that the calling function does; call it last.

    A function of the user's that calls the caller may do more, which only the next trigger proves.
    Where a listener reports the batches of the group, Spark's progress proves them.

    Args:
        running: The query of the batch.
    """
    if not is_called_by_spark(3):
        return
    done = BatchWritten(plan=running.plan, trigger_interval_s=running.trigger_interval_s)
    if is_served():
        batch_channel().report(done)
    elif running.checked.group_id not in reported_groups():
        _CHANNEL.report(running.run_id, done)
