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
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
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
)
from spark_groups.spark.control.listener import (
    EVENTS_TIMEOUT_S,
    close_listeners,
    driver_log_to_stderr,
)
from spark_groups.spark.control.spark_log import NOT_CANCELLED, drop_lines

logger = logging.getLogger(__name__)

HOOK_PRIORITY: Final = 100
"""Higher runs first: before the hooks of Spark (40) and the file system (10)."""
END_TIMEOUT_S: Final = 30.0
"""How long running batches may take to end, unless configured."""
LEAVE_TIMEOUT_S: Final = 10.0
"""How long a runner may take to commit and leave after its query has stopped."""
REACH_RUNNERS_S: Final = 2.0
"""How long runners may take to connect; they poll for drivers twice a second."""
RUNNER_MODULE: Final = "python_streaming_source_runner"
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
JVM_DYING_S: Final = 10.0
"""How long a JVM may take to end after its connections were closed."""
LOST_JVM: Final = 1
"""The exit code of an application whose JVM has ended."""

_POLL_S: Final = 0.02
_LOOK_S: Final = 0.2
"""How often a waiting thread asks whether its query has ended."""
_SAY_AFTER_S: Final = 2.0
AT_ONCE: Final = (
    b"\nkafka-group: ended at once by the second Ctrl-C: the running batch is read again\n"
)


@dataclass
class _Progress:
    """How far a clean end has come; written by the thread that ends the queries."""

    began_s: float = 0.0
    waits_for: str = "the runners"
    runners: int = 0
    unfinished: list[str] = field(default_factory=list)
    """Queries whose batch did not end, and runners that did not."""


class CleanEnd:
    """Ends all queries of a SparkContext when the driver ends; `stop_on_sigterm` returns one.

    Attributes:
        signal_number: The signal that this process received; None: none, or only the JVM did.
        handles_signals: Whether signals to this process end the queries.
    """

    signal_number: int | None = None
    handles_signals = False

    def __init__(self, spark: SparkSession, timeout_s: float) -> None:
        self.context = spark.sparkContext
        drop_lines(self.context._jvm, NOT_CANCELLED)
        self._spark = spark
        self._timeout_s = timeout_s
        self._jvm_process = _jvm_process(spark)
        self._jvm_pid = int(self._jvm_process.pid())
        gateway: Any = self.context._gateway
        self._launched = getattr(gateway, "proc", None)
        """The process of the JVM, unless the JVM started this process, as with spark-submit."""
        self._is_child_of_jvm = os.getppid() == self._jvm_pid
        # Runners connect now, rather than during the shutdown.
        directories = directories_of_driver(self.context._jvm)
        self._drain = _Drain(self._jvm_pid, directories)
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._progress = _Progress()
        self._has_reported = False
        self._hook = _Hook(spark, self.end, int(self._end_timeout_s) + 5)
        # A signal handler may only write: it can interrupt the holder of any lock, and py4j has one
        # connection for each thread.
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        self._wake: int | None = wake
        self._before: dict[signal.Signals, Any] = {}
        """The handlers of signals before its own."""
        threading.Thread(target=self._end_when_woken, name="clean-end", daemon=True).start()

    @property
    def has_begun(self) -> bool:
        """Whether the queries are ending, or have ended so."""
        return self._begun.locked()

    @property
    def _end_timeout_s(self) -> float:
        """Seconds that the whole end may take."""
        return self._timeout_s + LEAVE_TIMEOUT_S + EVENTS_TIMEOUT_S

    def set_timeout(self, timeout_s: float) -> None:
        """Set the seconds that running batches may take to end."""
        if timeout_s == self._timeout_s:
            return
        self._timeout_s = timeout_s
        self._hook.remove()
        # The JVM refuses a hook while it is ending.
        with contextlib.suppress(Py4JJavaError):
            self._hook = _Hook(self._spark, self.end, int(self._end_timeout_s) + 5)

    def await_termination(self, query: StreamingQuery) -> None:
        """Wait for the end of a query like `query.awaitTermination()`, and for a clean end.

        The driver's Python must stay alive during the shutdown, because it ends the queries.

        Raises:
            StreamingQueryException: The query failed.
            SystemExit: The JVM has ended.
        """
        if self.has_begun:
            # The signal came before the query started, so that its end may have missed it.
            self._done.wait(self._end_timeout_s)
            query.stop()
            # The runner leaves the group before this process, its ancestor, ends.
            _await_runners(self._jvm_process, time.monotonic() + LEAVE_TIMEOUT_S)
        try:
            self._await_inactive(query)
        except (Py4JError, OSError) as error:
            if isinstance(error, Py4JJavaError) or not self._jvm_has_ended(JVM_DYING_S):
                raise
        if not self.has_begun and self._jvm_has_ended():
            logger.error(
                "the application ends, because its JVM (pid %d) has ended: killed, or out of"
                " memory; the next run from the same checkpoint continues",
                self._jvm_pid,
            )
            raise SystemExit(LOST_JVM)
        if self.has_begun:
            self.await_done()
            if not self._has_reported:
                self._has_reported = True
                logger.info("%s", self._summary())

    def _await_inactive(self, query: StreamingQuery) -> None:
        """Wait until a query or the JVM has ended, or a clean end has taken too long."""
        has_said = False
        while not self._jvm_has_ended() and _is_active(query):
            time.sleep(_LOOK_S)
            if not self.has_begun or not self._progress.began_s:
                continue
            waited_s = time.monotonic() - self._progress.began_s
            if waited_s > self._end_timeout_s:
                return
            if waited_s > _SAY_AFTER_S and not has_said:
                has_said = True
                logger.info(
                    "ending: waiting for %s, for at most %g s%s",
                    self._progress.waits_for,
                    self._timeout_s,
                    "; Ctrl-C again ends at once" if self.signal_number == signal.SIGINT else "",
                )
        if not self._jvm_has_ended():
            # At once, with the query's error.
            query.awaitTermination()

    def _jvm_has_ended(self, timeout_s: float = 0.0) -> bool:
        """Return whether the JVM has ended; its connections close before."""

        def has_ended() -> bool:
            if self._launched is not None:
                return self._launched.poll() is not None
            return self._is_child_of_jvm and os.getppid() != self._jvm_pid

        return holds_by(time.monotonic() + timeout_s, has_ended)

    def await_done(self) -> None:
        """Wait until an end that has begun is done, or has taken too long."""
        began_s = self._progress.began_s or time.monotonic()
        left_s = began_s + self._end_timeout_s - time.monotonic()
        if not self._done.wait(max(0.0, left_s)):
            self._progress.unfinished.append(self._progress.waits_for)

    def _summary(self) -> str:
        by = "" if self.signal_number is None else f" by {signal.Signals(self.signal_number).name}"
        if self._progress.unfinished:
            return f"ended{by} without waiting longer for {', '.join(self._progress.unfinished)}"
        return f"ended{by}: the running batch is finished"

    @contextlib.contextmanager
    def signals_handled(self) -> Iterator[None]:
        """End the queries on signals to this process meanwhile; only in the main thread."""
        if self.handles_signals or not in_main_thread():
            yield
            return
        self.handle_signals()
        try:
            yield
        finally:
            self._restore_signals()

    def handle_signals(self) -> None:
        """End the queries on signals to this process."""
        self.handles_signals = True
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}

    def _restore_signals(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.handles_signals, self._before = False, {}

    def _on_signal(self, number: int, _: object) -> None:
        if self.signal_number is not None and number == signal.SIGINT:
            os.write(2, AT_ONCE)
            if self._launched is not None:
                # Its own end would report everything that is gone; runners see that it has ended.
                os.kill(self._jvm_pid, signal.SIGKILL)
            os._exit(128 + number)
        if self.signal_number is None:
            self.signal_number = number
            if self._wake is not None:
                os.write(self._wake, b".")

    def _end_when_woken(self) -> None:
        was_woken = os.read(self._woken, 1) == b"."
        os.close(self._woken)
        if was_woken:
            self.end()

    def end(self) -> None:
        """End all queries, once; a second call waits for the first."""
        if not self._begun.acquire(blocking=False):
            self._done.wait(self._end_timeout_s)
            return
        self._progress.began_s = time.monotonic()
        try:
            self._end_queries()
        except Exception:
            # The JVM is exiting, so no caller can handle an error.
            logger.exception("the queries could not be ended cleanly")
            self._progress.unfinished.append(self._progress.waits_for)
        finally:
            self._done.set()

    def close(self) -> None:
        """Forget this end, after it has been used."""
        global _current  # noqa: PLW0603
        if _current is not self:
            return
        _current = None
        self._hook.remove()
        if in_main_thread():
            self._restore_signals()
        wake, self._wake = self._wake, None
        if wake is not None:
            os.close(wake)

    def _queries(self) -> list[StreamingQuery]:
        """Return the active queries of all sessions of the SparkContext."""
        active: Any = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        # One may end meanwhile.
        found = map(active.get, active.keySet().toArray())
        return [StreamingQuery(each) for each in found if each is not None]

    def _end_queries(self) -> None:
        queries = self._queries()
        logger.debug("ending %d queries within %g s", len(queries), self._timeout_s)
        deadline_s = time.monotonic() + self._timeout_s
        progress = self._progress
        runner_pids = _runner_pids(self._jvm_process)
        progress.runners = len(runner_pids)
        self._drain.begin(runner_pids)
        try:
            for query in queries:
                progress.waits_for = f"the running batch of query {query.id}"
                if not _await_batch(query, deadline_s):
                    progress.unfinished.append(progress.waits_for)
            self._drain.report(queries)
            for query in queries:
                progress.waits_for = f"Spark to stop query {query.id}"
                query.stop()
            progress.waits_for = "the members to leave their groups"
            if not _await_runners(self._jvm_process, time.monotonic() + LEAVE_TIMEOUT_S):
                progress.unfinished.append(progress.waits_for)
        finally:
            self._drain.end()
            # This process may exit next, and cannot receive Spark's events then.
            close_listeners()


_current: CleanEnd | None = None
"""The clean end of the SparkContext; a process has one context at a time."""


def current_end() -> CleanEnd | None:
    """Return the clean end of this process's SparkContext, if there is one."""
    return _current


def clean_end(spark: SparkSession, *, timeout_s: float | None) -> CleanEnd:
    """Return the clean end of a session's SparkContext; the first call creates it.

    Args:
        timeout_s: Seconds that running batches may take to end; None: the last limit.

    Raises:
        OptionsError: The timeout is not positive.
    """
    if timeout_s is not None and timeout_s <= 0:
        raise OptionsError(f"timeout_s must be positive, not {timeout_s:g}")
    global _current  # noqa: PLW0603
    if _current is not None and _current.context is spark.sparkContext:
        if timeout_s is not None:
            _current.set_timeout(timeout_s)
        return _current
    if _current is not None:
        _current.close()
    _current = CleanEnd(spark, END_TIMEOUT_S if timeout_s is None else timeout_s)
    return _current


def in_main_thread() -> bool:
    """Return whether this thread may handle signals."""
    return threading.current_thread() is threading.main_thread()


def _is_active(query: StreamingQuery) -> bool:
    """Return whether a query is active; the error of a JVM that has ended is not logged as well.

    py4j logs it by the root logger, and configures logging for that.
    """
    root = logging.getLogger()
    is_configured = bool(root.handlers)
    root.addFilter(_is_not_of_py4j)
    try:
        return bool(query.isActive)
    except (Py4JError, OSError):
        if not is_configured:
            for each in tuple(root.handlers):
                root.removeHandler(each)
        raise
    finally:
        root.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


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
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove the hook."""
        # This fails if the JVM is ending or gone.
        with contextlib.suppress(Exception):
            self._hooks.removeShutdownHook(self._hook)


def stop_on_sigterm(spark: SparkSession, *, timeout_s: float = END_TIMEOUT_S) -> CleanEnd:
    """Make SIGTERM and Ctrl-C end the session's queries after their batch.

    Call it once, in the main thread, and wait with the result's `await_termination`. It works with
    spark-submit, where the JVM receives the signal, and with `python`. A signal to the process
    group must spare Spark's Python workers, which the batch needs (systemd: `KillMode=mixed`).

    Args:
        timeout_s: Seconds that running batches may take to end.

    Raises:
        OptionsError: The session is a Spark Connect session, or the timeout is not positive.
    """
    if getattr(getattr(spark, "_sc", None), "_gateway", None) is None:
        raise OptionsError(
            "stop_on_sigterm() requires a classic session: with Spark Connect, call query.stop()"
        )
    driver_log_to_stderr()
    end = clean_end(spark, timeout_s=timeout_s)
    end.handle_signals()
    return end


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
        if isinstance(message, Draining):
            with self._changed:
                self._draining.add(link)
                self._changed.notify_all()


def _await_batch(query: StreamingQuery, deadline_s: float) -> bool:
    """Wait until a query is between triggers; later triggers plan no batch."""
    has_ended = holds_by(
        deadline_s, lambda: not (query.isActive and query.status["isTriggerActive"])
    )
    if not has_ended:
        logger.warning(
            "query %s: the batch did not end in time and stays uncommitted; the next owner of"
            " its partitions reads it again",
            query.id,
        )
    return has_ended


def _finished_plans(query: StreamingQuery) -> list[str]:
    """Return the last plans that Spark has committed, as in the checkpoint."""
    progress: Any = query._jsq.lastProgress()
    if progress is None:
        return []
    # Spark reports a batch when it is in the sink.
    return [str(source.endOffset()) for source in progress.sources()]


def _await_runners(jvm_process: Any, deadline_s: float) -> bool:
    """Wait until the runners have left the group and exited."""
    have_ended = holds_by(deadline_s, lambda: not _runner_pids(jvm_process))
    if not have_ended:
        runners = _runner_pids(jvm_process)
        logger.warning("runners %s are still running; they leave on their own", runners)
    return have_ended


def holds_by(deadline_s: float, condition: Callable[[], bool]) -> bool:
    """Return whether a condition holds before a deadline of `time.monotonic`."""
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _jvm_process(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.java.lang.ProcessHandle.current()


def _runner_pids(jvm_process: Any) -> list[int]:
    return [
        int(child.pid())
        for child in jvm_process.children().toArray()
        if RUNNER_MODULE in child.info().commandLine().orElse("") and child.isAlive()
    ]
