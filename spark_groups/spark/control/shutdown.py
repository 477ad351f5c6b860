"""A clean end of a Spark driver: the running batch ends, its offsets are committed, the group left.

SIGTERM to spark-submit reaches the JVM, and no signal of Python's ever sees it. Spark's own hooks
then stop the SparkContext under the running batch. A hook of Hadoop's ShutdownHookManager with a
higher priority comes before them, and py4j calls it back here, in the driver's Python:

1. the runners are asked to plan nothing more, over the control channel (`control`);
2. the batch that runs ends, in a bounded time;
3. the runners are told which plan was the last one that Spark has committed;
4. the query is stopped; its runner commits that plan's offsets and leaves the group;
5. listeners are closed, before this process can be called no more.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.errors import OptionsError
from spark_groups.spark.control.channel import ControlServer, Link, directories_of_driver
from spark_groups.spark.control.listener import EVENTS_TIMEOUT_S, close_listeners
from spark_groups.spark.control.messages import (
    BatchReported,
    Drain,
    Draining,
    Listening,
    Message,
    NothingMoreReported,
)

logger = logging.getLogger(__name__)

HOOK_PRIORITY: Final = 100
"""Before Spark's own hook (40) and the file system's (10): higher ones run first."""
LEAVE_TIMEOUT_S: Final = 10.0
"""How long a runner may take to commit and to leave once its query is stopped."""
REACH_RUNNERS_S: Final = 2.0
"""How long runners may take to be told: they look for a driver that listens twice a second."""
RUNNER_MODULE: Final = "python_streaming_source_runner"

_POLL_S: Final = 0.02


class CleanEnd:
    """Ends all queries of a session when the driver is told to end; `stop_on_sigterm` makes one.

    Args:
        timeout_s: Seconds that running batches may take to end.
    """

    def __init__(self, spark: SparkSession, timeout_s: float) -> None:
        self._spark = spark
        self._timeout_s = timeout_s
        # Runners find it now, and need not look for it when every second counts.
        directories = directories_of_driver(spark.sparkContext._jvm)
        self._drain = _Drain(int(_jvm_process(spark).pid()), directories)
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._end_timeout_s = timeout_s + LEAVE_TIMEOUT_S + EVENTS_TIMEOUT_S
        self._hook = _Hook(spark, self.end, int(self._end_timeout_s) + 5)

    def await_termination(self, query: StreamingQuery) -> None:
        """Wait for a query's end as `query.awaitTermination()` does, and for the clean one.

        While the JVM ends, the driver's Python has to stay: it is what ends the queries.

        Raises:
            StreamingQueryException: The query failed.
        """
        query.awaitTermination()
        if self._begun.locked():
            self._done.wait(self._end_timeout_s)

    def end(self) -> None:
        """End all queries, once; a second call waits for the first."""
        if not self._begun.acquire(blocking=False):
            self._done.wait(self._end_timeout_s)
            return
        try:
            _end_queries(self._spark, self._drain, self._timeout_s)
        except Exception:
            # Nobody is left to take an error: the JVM is on its way out.
            logger.exception("the queries could not be ended cleanly")
        finally:
            self._done.set()


class _Action:
    """A java.lang.Runnable that Java calls."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def run(self) -> None:
        self._action()

    class Java:
        implements = ("java.lang.Runnable",)


class _Hook:
    """Registers a JVM shutdown hook, and removes it when this process exits by itself."""

    def __init__(self, spark: SparkSession, action: Callable[[], None], timeout_s: int) -> None:
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        jvm = gateway.jvm
        self._hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        # Hadoop compares hooks by identity: a thread is one object in Java, and is never started.
        self._hook = jvm.java.lang.Thread(_Action(action))
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        self._hooks.addShutdownHook(self._hook, HOOK_PRIORITY, timeout_s, seconds)
        atexit.register(self._remove)

    def _remove(self) -> None:
        # It fails where the JVM is ending, and where it is gone.
        with contextlib.suppress(Exception):
            self._hooks.removeShutdownHook(self._hook)


def stop_on_sigterm(spark: SparkSession, *, timeout_s: float = 30.0) -> CleanEnd:
    """Make SIGTERM and Ctrl-C end the session's queries cleanly instead of under their batch.

    Call it once, from the main thread; then wait with `await_termination` of what it returns.
    It holds for spark-submit, where the JVM gets the signal, and for plain `python`, where Python
    does. A whole process group may be signalled as well, as long as Spark's Python workers are
    spared: without them no batch can end (systemd: `KillMode=mixed`).

    Args:
        timeout_s: Seconds that running batches may take to end.

    Raises:
        OptionsError: The session is one of Spark Connect, or the time-out is not positive.
    """
    if timeout_s <= 0:
        raise OptionsError(f"the time-out of a clean end has to be positive, not {timeout_s:g} s")
    if getattr(getattr(spark, "_sc", None), "_gateway", None) is None:
        raise OptionsError(
            "a session of Spark Connect has no driver here that a signal could end: call"
            " query.stop()"
        )
    end = CleanEnd(spark, timeout_s)

    def on_signal(*_: object) -> None:
        # py4j gives each thread one connection, and this one may be waiting on its own.
        threading.Thread(target=end.end, name="clean-end", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return end


def _end_queries(spark: SparkSession, drain: _Drain, timeout_s: float) -> None:
    jvm_process = _jvm_process(spark)
    queries = spark.streams.active
    logger.info("ending %d queries, in at most %g s", len(queries), timeout_s)
    deadline_s = time.monotonic() + timeout_s
    drain.begin(_runner_pids(jvm_process))
    try:
        for query in queries:
            _await_batch(query, deadline_s)
        drain.report(queries)
        for query in queries:
            query.stop()
        _await_runners(jvm_process, time.monotonic() + LEAVE_TIMEOUT_S)
    finally:
        drain.end()
        # Spark's events come to this process, which may end as soon as this is over.
        close_listeners()


class _Drain:
    """Asks the runners of a JVM to plan nothing more, and tells them what they may commit."""

    def __init__(self, jvm_pid: int, directories: Sequence[Path]) -> None:
        listening = Listening(reports_batches=False, holds_revocations=False)
        self._server = ControlServer(jvm_pid, listening, self._received, directories)
        self._changed = threading.Condition()
        self._draining: set[Link] = set()
        self._server.start(
            "a clean end cannot tell the runners what to commit last: the next run from the same"
            " checkpoint commits it"
        )

    def begin(self, runner_pids: list[int]) -> None:
        """Ask all runners, once they have found this socket, and wait until they obey."""
        self._server.await_runners(set(runner_pids), REACH_RUNNERS_S)
        reached = self._server.broadcast(Drain())
        with self._changed:
            self._changed.wait_for(lambda: len(self._draining) >= reached, REACH_RUNNERS_S)

    def report(self, queries: Sequence[StreamingQuery]) -> None:
        """Tell the runners which plans Spark has committed last."""
        for query in queries:
            for plan in _finished_plans(query):
                report = BatchReported(
                    plan=plan,
                    query_id=str(query.id),
                    is_stateful=False,
                    is_asynchronous=False,
                    trigger_interval_s=0.0,
                )
                self._server.broadcast(report)
        self._server.broadcast(NothingMoreReported(query_id="", had_reports=True))

    def end(self) -> None:
        """Close the socket."""
        self._server.close()

    def _received(self, link: Link, message: Message) -> None:
        if isinstance(message, Draining):
            with self._changed:
                self._draining.add(link)
                self._changed.notify_all()


def _await_batch(query: StreamingQuery, deadline_s: float) -> None:
    """Wait until a query is between two triggers: every later one plans nothing more."""
    while query.isActive and query.status["isTriggerActive"]:
        if time.monotonic() > deadline_s:
            logger.warning(
                "query %s: its batch did not end in time and is given up; the next owner of its"
                " partitions reads it again",
                query.id,
            )
            return
        time.sleep(_POLL_S)


def _finished_plans(query: StreamingQuery) -> list[str]:
    """Return the last plan that Spark has committed, as it stands in the checkpoint."""
    progress: Any = query._jsq.lastProgress()
    if progress is None:
        return []
    # Spark reports a batch after it has written the commit log.
    return [str(source.endOffset()) for source in progress.sources()]


def _await_runners(jvm_process: Any, deadline_s: float) -> None:
    """Wait until the processes that were the members have left and are gone."""
    while runners := _runner_pids(jvm_process):
        if time.monotonic() > deadline_s:
            logger.warning("the runners %s still run; they leave by themselves", runners)
            return
        time.sleep(_POLL_S)


def _jvm_process(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.java.lang.ProcessHandle.current()


def _runner_pids(jvm_process: Any) -> list[int]:
    return [
        int(child.pid())
        for child in jvm_process.children().toArray()
        if RUNNER_MODULE in child.info().commandLine().orElse("") and child.isAlive()
    ]
