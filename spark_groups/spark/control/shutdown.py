"""Ends a Spark driver cleanly: the batch ends, its offsets are committed, the member leaves.

SIGTERM to spark-submit reaches the JVM, not Python, and Spark's hooks stop the SparkContext during
the batch. A hook of Hadoop's ShutdownHookManager with a higher priority runs before them, and py4j
calls this module in the driver's Python:

1. ask the runners to plan no more batches, over the control channel;
2. wait for the running batch, for a limited time;
3. report the last plan that Spark has committed;
4. stop the query, so that its runner commits that plan and leaves the group;
5. close the listeners, while this process can still serve calls.
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
from spark_groups.spark.control.channel import (
    LAST_MESSAGES_S,
    ControlServer,
    Link,
    directories_of_driver,
)
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Drain,
    Draining,
    Listening,
    Message,
    NothingMoreReported,
    RunEnded,
)
from spark_groups.spark.control.listener import (
    EVENTS_TIMEOUT_S,
    close_listeners,
    log_end,
    log_ends_to_stderr,
)

logger = logging.getLogger(__name__)

HOOK_PRIORITY: Final = 100
"""Higher runs first: before the hooks of Spark (40) and the file system (10)."""
LEAVE_TIMEOUT_S: Final = 10.0
"""How long a runner may take to commit and leave after its query has stopped."""
REACH_RUNNERS_S: Final = 2.0
"""How long runners may take to connect; they poll for drivers twice a second."""
RUNNER_MODULE: Final = "python_streaming_source_runner"

_POLL_S: Final = 0.02


class CleanEnd:
    """Ends all queries of a session when the driver ends; `stop_on_sigterm` returns one.

    Attributes:
        signal_number: The signal that this process received; None: none, or only the JVM did.
    """

    signal_number: int | None = None

    def __init__(self, spark: SparkSession, timeout_s: float) -> None:
        self._spark = spark
        self._timeout_s = timeout_s
        # Runners connect now, rather than during the shutdown.
        directories = directories_of_driver(spark.sparkContext._jvm)
        self._drain = _Drain(int(_jvm_process(spark).pid()), directories)
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._end_timeout_s = timeout_s + LEAVE_TIMEOUT_S + EVENTS_TIMEOUT_S
        self._hook = _Hook(spark, self.end, int(self._end_timeout_s) + 5)

    def await_termination(self, query: StreamingQuery) -> None:
        """Wait for the end of a query like `query.awaitTermination()`, and for a clean end.

        The driver's Python must stay alive during the shutdown, because it ends the queries.

        Raises:
            StreamingQueryException: The query failed.
        """
        if self._begun.locked():
            # The signal came before the query started, so that its end may have missed it.
            self._done.wait(self._end_timeout_s)
            query.stop()
            # The runner leaves the group before this process, its ancestor, ends.
            _await_runners(_jvm_process(self._spark), time.monotonic() + LEAVE_TIMEOUT_S)
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
            # The JVM is exiting, so no caller can handle an error.
            logger.exception("the queries could not be ended cleanly")
        finally:
            self._done.set()


class _Action:
    """A java.lang.Runnable."""

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
        # Hadoop compares hooks by identity; a thread, never started, is one object in Java.
        self._hook = jvm.java.lang.Thread(_Action(action))
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        self._hooks.addShutdownHook(self._hook, HOOK_PRIORITY, timeout_s, seconds)
        atexit.register(self._remove)

    def _remove(self) -> None:
        # This fails if the JVM is ending or gone.
        with contextlib.suppress(Exception):
            self._hooks.removeShutdownHook(self._hook)


def stop_on_sigterm(spark: SparkSession, *, timeout_s: float = 30.0) -> CleanEnd:
    """Make SIGTERM and Ctrl-C end the session's queries after their batch.

    Call it once, in the main thread, and wait with the result's `await_termination`. It works with
    spark-submit, where the JVM receives the signal, and with `python`. A signal to the process
    group must spare Spark's Python workers, which the batch needs (systemd: `KillMode=mixed`).

    Args:
        timeout_s: Seconds that running batches may take to end.

    Raises:
        OptionsError: The session is a Spark Connect session, or the timeout is not positive.
    """
    if timeout_s <= 0:
        raise OptionsError(f"timeout_s must be positive, not {timeout_s:g}")
    if getattr(getattr(spark, "_sc", None), "_gateway", None) is None:
        raise OptionsError(
            "stop_on_sigterm() requires a classic session: with Spark Connect, call query.stop()"
        )
    log_ends_to_stderr()
    end = CleanEnd(spark, timeout_s)

    def on_signal(number: int, _: object) -> None:
        end.signal_number = number
        # py4j has one connection per thread, and this thread may be waiting on its connection.
        threading.Thread(target=end.end, name="clean-end", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return end


def _end_queries(spark: SparkSession, drain: _Drain, timeout_s: float) -> None:
    jvm_process = _jvm_process(spark)
    queries = spark.streams.active
    logger.info("ending %d queries within %g s", len(queries), timeout_s)
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
        # This process may exit next, and cannot receive Spark's events then.
        close_listeners()


class _Drain:
    """Stops planning in the runners of a JVM, and reports their last committed plans."""

    def __init__(self, jvm_pid: int, directories: Sequence[Path]) -> None:
        listening = Listening(reported_groups=(), holds_revocations=False)
        self._server = ControlServer(jvm_pid, listening, self._received, directories)
        self._changed = threading.Condition()
        self._draining: set[Link] = set()
        self._server.start(
            "on a clean end the runners cannot commit the last batch: the next run from the same"
            " checkpoint commits it"
        )

    def begin(self, runner_pids: list[int]) -> None:
        """Send `Drain` to all runners, and wait for their responses."""
        self._server.await_runners(set(runner_pids), REACH_RUNNERS_S)
        reached = self._server.broadcast(Drain())
        with self._changed:
            self._changed.wait_for(lambda: len(self._draining) >= reached, REACH_RUNNERS_S)

    def report(self, queries: Sequence[StreamingQuery]) -> None:
        """Report the last plans that Spark has committed."""
        for query in queries:
            for plan in _finished_plans(query):
                report = BatchReported(
                    plan=plan,
                    query_id=str(query.id),
                    is_stateful=False,
                    trigger_interval_s=0.0,
                )
                self._server.broadcast(report)
        self._server.broadcast(NothingMoreReported(query_id="", had_reports=True))

    def end(self) -> None:
        """Close the socket, after the last messages of runners that have ended."""
        self._server.await_ends(None, LAST_MESSAGES_S)
        self._server.close()

    def _received(self, link: Link, message: Message) -> None:
        if isinstance(message, RunEnded):
            log_end(message)
        elif isinstance(message, Draining):
            with self._changed:
                self._draining.add(link)
                self._changed.notify_all()


def _await_batch(query: StreamingQuery, deadline_s: float) -> None:
    """Wait until a query is between triggers; later triggers plan no batch."""
    while query.isActive and query.status["isTriggerActive"]:
        if time.monotonic() > deadline_s:
            logger.warning(
                "query %s: the batch did not end in time and stays uncommitted; the next owner of"
                " its partitions reads it again",
                query.id,
            )
            return
        time.sleep(_POLL_S)


def _finished_plans(query: StreamingQuery) -> list[str]:
    """Return the last plans that Spark has committed, as in the checkpoint."""
    progress: Any = query._jsq.lastProgress()
    if progress is None:
        return []
    # Spark reports a batch when it is in the sink.
    return [str(source.endOffset()) for source in progress.sources()]


def _await_runners(jvm_process: Any, deadline_s: float) -> None:
    """Wait until the runners have left the group and exited."""
    while runners := _runner_pids(jvm_process):
        if time.monotonic() > deadline_s:
            logger.warning("runners %s are still running; they leave on their own", runners)
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
