"""A runner's process: its end, and its log.

A runner ends on SIGTERM from its JVM, when the JVM dies, or when the SparkContext stops. Spark
sends two SIGTERM a millisecond apart and closes its connection; it does not call `stop()` first.
The JVM handles SIGINT, and SIGTERM from other senders such as a service manager, so that the batch
can end.

The sender of a SIGTERM is known only if every thread blocks the signal. Libraries imported earlier,
such as numpy, have threads that do not; then a closed connection identifies the JVM. A stopped
SparkContext leaves runners alive (measured) but deletes its files directory, which is polled.

Spark configures no logging in a runner, so this package writes lines with time, level and query to
stderr, which is the driver's log. On a terminal each line first clears the one that Spark's
progress bar has begun.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

from spark_groups.spark.control.jvm_connection import has_hung_up
from spark_groups.spark.options.option_values import LogLevel

logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 0.25
ALERT_EVERY_S: Final = 0.01
ALERT_S: Final = 2.0
"""How long the connection is polled more often after a SIGTERM from an unknown sender."""
TOUCH_EVERY_S: Final = 3600.0
PACKAGE: Final = "spark_groups"
TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"
"""Spark's own format."""
CLEARED: Final = "\r\x1b[K"
"""Returns to the start of a terminal's line, and clears it."""
_TERMINALS: Final = ("/dev/pts/", "/dev/tty", "/dev/console")
_UNCONFIGURED: Final = "spark-groups: no level was given"
_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.OFF: logging.CRITICAL + 1,
}


class RunnerEnd:
    """Leaves the group once, and ends the process.

    Args:
        leave: Leaves the group; must return within a bounded time.
        files_directory: A directory that Spark deletes when it stops the SparkContext.
        jvm_connection: The connection that carries Spark's calls; without it, a SIGTERM from an
            unknown sender counts as the JVM's.
    """

    def __init__(
        self,
        leave: Callable[[], None],
        *,
        files_directory: Path | None,
        jvm_connection: socket.socket | None = None,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._leave = leave
        self._files_directory = files_directory
        self._connection = jvm_connection
        self._exit_process = exit_process
        self._jvm_pid = os.getppid()
        self._ending = threading.Lock()
        self._alerted = threading.Event()
        self._touched_at = time.monotonic()

    def watch(self) -> None:
        """Start watching; call it in the main thread, before other threads start."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._alerted.set())
        if hasattr(signal, "sigwaitinfo"):
            # Blocked in this and all later threads, so that sigwaitinfo() returns the sender.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            self._spawn(self._read_sigterms, "sigterm")
        self._spawn(self._watch, "watch")

    def end(self, reason: str) -> None:
        """Leave the group and end the process, once."""
        if not self._ending.acquire(blocking=False):
            return
        logger.info("the runner is ending: %s", reason)
        try:
            self._leave()
        except Exception:
            logger.exception("the member could not leave its group cleanly")
        finally:
            self._exit_process(0)

    def _read_sigterms(self) -> None:
        while True:
            sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
            if sender == self._jvm_pid:
                # In a thread, because this one must receive the JVM's second SIGTERM.
                self._spawn(lambda: self.end("the JVM stopped the query"), "end")
            else:
                logger.info("ignoring SIGTERM from process %d, which the JVM handles", sender)

    def _watch(self) -> None:
        alert_until = 0.0
        while True:
            is_alert = time.monotonic() < alert_until
            if self._alerted.wait(ALERT_EVERY_S if is_alert else WATCH_EVERY_S):
                self._alerted.clear()
                alert_until = time.monotonic() + ALERT_S
                if self._connection is None:
                    self.end("SIGTERM")
                    return
            reason = self._reason_to_end()
            if reason is not None:
                self.end(reason)
                return

    def _reason_to_end(self) -> str | None:
        if os.getppid() != self._jvm_pid:
            return "the JVM is gone"
        if self._connection is not None and has_hung_up(self._connection):
            return "the JVM stopped the query"
        if self._files_directory is None:
            return None
        try:
            if time.monotonic() - self._touched_at > TOUCH_EVERY_S:
                # Touched so that cleaners of old temporary files do not remove it.
                self._touched_at = time.monotonic()
                os.utime(self._files_directory)
            self._files_directory.stat()
        except FileNotFoundError:
            return "the SparkContext was stopped"
        except OSError:
            return None
        return None

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        threading.Thread(target=target, name=f"kafka-group-{name}", daemon=True).start()


def log_to_stderr(
    level: LogLevel | None,
    query_id: Callable[[], str | None],
    *,
    stream: TextIO | None = None,
    package: str = PACKAGE,
    process: str = "runner",
    is_terminal: bool = False,
) -> None:
    """Log to stderr, unless logging is configured in this process; a second call does nothing.

    Args:
        level: None means INFO, or the level that the process has configured.
        query_id: Returns Spark's query ID, or None while it is unknown. A record may have its own,
            as `query_id`.
        process: What this process is, for lines without a query ID.
        is_terminal: Whether the lines end at a terminal, where Spark may show a progress bar.
    """
    logger = logging.getLogger(package)
    _give_way(logger)
    is_configured = logger.hasHandlers()
    if level is not None or not is_configured:
        logger.setLevel(_LEVELS[level or LogLevel.INFO])
    if is_configured:
        return
    lines = logging.StreamHandler(stream or sys.stderr)
    lines.setFormatter(_Lines(query_id, process, CLEARED if is_terminal else ""))
    lines.set_name(_UNCONFIGURED if level is None else package)
    lines.addFilter(lambda _: not _give_way(logger))
    logger.addHandler(lines)


def _give_way(logger: logging.Logger) -> bool:
    """If the process configures logging later, lines go there only, with the levels of there.

    Returns:
        Whether it has.
    """
    root = logging.getLogger()
    if not root.handlers:
        return False
    for each in logger.handlers:
        if each.name == _UNCONFIGURED and not _is_implicit(root):
            # Once: the application may then set a level of its own.
            each.set_name(logger.name)
            logger.setLevel(logging.NOTSET)
    return True


def _is_implicit(root: logging.Logger) -> bool:
    """Return whether logging has configured itself, which says nothing about levels.

    A call of `logging.error` does so, such as py4j's when Ctrl-C interrupts a call of the JVM.
    """
    if root.level != logging.WARNING or len(root.handlers) != 1:
        return False
    (only,) = root.handlers
    # The formatter has no public attribute for its format.
    written_as = vars(only.formatter).get("_fmt") if only.formatter else None
    return type(only) is logging.StreamHandler and written_as == logging.BASIC_FORMAT


def writes_to_terminal(pid: int, *, processes: Path = Path("/proc")) -> bool:
    """Return whether the stderr of another process is a terminal; False where nothing tells."""
    try:
        return os.readlink(processes / str(pid) / "fd" / "2").startswith(_TERMINALS)
    except OSError:
        return False


class _Lines(logging.Formatter):
    """Starts each line with time, level and query, in Spark's format."""

    def __init__(self, query_id: Callable[[], str | None], process: str, before: str) -> None:
        super().__init__(
            f"{before}%(asctime)s %(spark_level)s kafka-group [%(query)s]: %(message)s"
        )
        self.datefmt = TIME_FORMAT
        self._query_id = query_id
        self._process = f"{process} {os.getpid()}"

    def format(self, record: Any) -> str:
        found = getattr(record, "query_id", None) or self._query_id()
        record.query = f"query {found}" if found else self._process
        record.spark_level = "WARN" if record.levelno == logging.WARNING else record.levelname
        return super().format(record)
