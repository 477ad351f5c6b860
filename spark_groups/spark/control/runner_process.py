"""A runner's process: how it ends, and how it logs.

It ends by its JVM's SIGTERM, by its JVM's death, or because Spark was stopped.

Spark ends a runner with two SIGTERM a millisecond apart and closes its connection; it never calls
`stop()` before that. A SIGTERM from anybody else (a service manager that signals a whole group),
and SIGINT, are left to the JVM, so that the batch can end first.

Who sent a SIGTERM can be read where every thread blocks it. Libraries that were imported before
(numpy is one) have threads that do not: then the connection is asked, whether the JVM hung up. A
SparkContext that is stopped leaves the runners of its queries alive (measured), but it deletes the
directory of its files: that is how it is noticed.

Spark configures no logging in a runner's process, where Python by itself shows warnings only,
without time and level. So its log is lines on its stderr, which is the driver's log, with time,
level and query.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from spark_groups.spark.options.values import LogLevel

logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 0.25
ALERT_EVERY_S: Final = 0.01
ALERT_S: Final = 2.0
"""How long the connection is looked at more often after a SIGTERM of an unknown sender."""
TOUCH_EVERY_S: Final = 3600.0
_STANDARD_STREAMS: Final = (0, 1, 2)
PACKAGE: Final = "spark_groups"
TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"
"""As Spark's own lines have it."""
_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.OFF: logging.CRITICAL + 1,
}


class RunnerEnd:
    """Leaves once, whatever ends the runner, and then ends the process.

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
        """Begin to watch; has to be called in the main thread, before other threads are made."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._alerted.set())
        if hasattr(signal, "sigwaitinfo"):
            # Blocked here and in every thread made from now on, so that its sender can be read.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            self._spawn(self._read_sigterms, "sigterm")
        self._spawn(self._watch, "watch")

    def end(self, reason: str) -> None:
        """Leave and end the process; only the first call does anything."""
        if not self._ending.acquire(blocking=False):
            return
        logger.info("the runner ends: %s", reason)
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
                # The JVM sends a second one, which must find this thread waiting again.
                self._spawn(lambda: self.end("the JVM stopped the query"), "end")
            else:
                logger.info("SIGTERM from process %d is left to the JVM", sender)

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
                # What removes old temporary files must not be taken for a stop.
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


def jvm_connection() -> socket.socket | None:
    """Return the connection to the JVM: the one that a runner has before it makes its own.

    Returns:
        A duplicate of the socket, only to be asked whether it was hung up; None if there is not
        exactly one connection.
    """
    connections = list(_connections())
    if len(connections) == 1:
        return connections[0]
    for connection in connections:
        connection.close()
    return None


def has_hung_up(connection: socket.socket) -> bool:
    """Tell whether the other side closed a connection; takes nothing of what it sent."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def _connections() -> Iterator[socket.socket]:
    for descriptor in _sockets():
        try:
            found = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        try:
            found.getpeername()
        except OSError:
            found.close()
        else:
            yield found


def _sockets() -> list[int]:
    """Return the descriptors of this process that are sockets, before any is duplicated."""
    try:
        descriptors = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return []
    return [each for each in descriptors if each not in _STANDARD_STREAMS and _is_socket(each)]


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def log_to_stderr(
    level: LogLevel | None,
    query_id: Callable[[], str | None],
    *,
    stream: TextIO | None = None,
    package: str = PACKAGE,
) -> None:
    """Write what this package logs to stderr, unless this process has a logging of its own.

    Args:
        level: None means INFO, or the level that the process has configured.
        query_id: Returns Spark's query ID, or None while it is unknown.
    """
    logger = logging.getLogger(package)
    is_configured = logger.hasHandlers()
    if level is not None or not is_configured:
        logger.setLevel(_LEVELS[level or LogLevel.INFO])
    if is_configured:
        return
    lines = logging.StreamHandler(stream or sys.stderr)
    lines.setFormatter(_Lines(query_id))
    # Whoever configures logging later has the lines, and nobody has them twice.
    lines.addFilter(lambda _: not logging.getLogger().handlers)
    logger.addHandler(lines)


class _Lines(logging.Formatter):
    """Begins each line with time, level and query, in Spark's words."""

    def __init__(self, query_id: Callable[[], str | None]) -> None:
        super().__init__("%(asctime)s %(spark_level)s kafka-group [%(query)s]: %(message)s")
        self.datefmt = TIME_FORMAT
        self._query_id = query_id

    def format(self, record: Any) -> str:
        found = self._query_id()
        record.query = f"query {found}" if found else f"runner {os.getpid()}"
        record.spark_level = "WARN" if record.levelno == logging.WARNING else record.levelname
        return super().format(record)
