"""The channel between a driver and its runners: unix sockets in a private directory.

The directory is the JVM's `XDG_RUNTIME_DIR`, or is below the files of the SparkContext; unlike
`/tmp`, no other user can write there. Both sides know both directories from their JVM: a driver
uses the first that works, a runner polls all. A function of Spark Connect does not know the second
one: it has Spark's directory for blocks in its place. Socket names start with the JVM's pid, and
those of functions end with a hash of the key of their stream, so that only its runner connects.
Line length, queues and the number of runners are bounded. Each side of a connection has a read
thread and a write thread, so a side that does not read blocks no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.core.files import SparkFiles

from spark_groups.runtime.directories import is_private, runtime_directory
from spark_groups.runtime.private_socket import connect_to, end_listening, listen_at
from spark_groups.spark.control.control_messages import (
    Introduced,
    Listening,
    Message,
    RunEnded,
    as_line,
    from_line,
)

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 1.0
LAST_MESSAGES_S: Final = 1.0
"""How long the last messages of a runner may take, on both sides."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MAX_WAITING_MESSAGES: Final = 256
MAX_LINKS: Final = 256
SUFFIX: Final = "sock"
"""The end of the name of a listener's socket: every runner of its JVM connects."""
_numbers = itertools.count()


def control_directories(
    runtime: str | None, files: Path | None, local: str | None = None
) -> tuple[Path, ...]:
    """Return candidate directories for drivers' sockets, in order of preference.

    Args:
        runtime: The JVM's `XDG_RUNTIME_DIR`.
        files: The directory of the SparkContext's files.
        local: The `SPARK_LOCAL_DIRS` that Spark gives to processes on the driver's host.
    """
    blocks = Path(local.split(",")[0]) if local else None
    # On systems with a temporary directory per user (macOS), it has short paths.
    places = (runtime_directory(runtime), runtime_directory(tempfile.gettempdir()), files, blocks)
    return tuple(place / "spark-groups-control" for place in places if place is not None)


def directories_of_driver(jvm: Any) -> tuple[Path, ...]:
    """Return candidate directories for a driver's sockets."""
    files = Path(jvm.org.apache.spark.SparkFiles.getRootDirectory())
    return control_directories(jvm.java.lang.System.getenv("XDG_RUNTIME_DIR"), files)


def directories_of_runner() -> tuple[Path, ...]:
    """Return the directories to look for drivers in; a runner has the JVM's environment."""
    return control_directories(
        os.environ.get("XDG_RUNTIME_DIR"), files_directory(), os.environ.get("SPARK_LOCAL_DIRS")
    )


def files_directory() -> Path | None:
    """Return the directory of the SparkContext's files, if a runner knows it."""
    root = SparkFiles._root_directory
    directory = Path(root).parent if root else None
    return directory if directory is not None and directory.exists() else None


def suffix_of(key: str) -> str:
    """Return the end of the name of a function's socket: only runners with the key connect."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def _sweep(directory: Path) -> None:
    """Remove the sockets of dead processes."""
    for path in directory.glob("*-*-*.*"):
        pid = path.name.split("-")[1]
        try:
            if pid.isdigit():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            path.unlink(missing_ok=True)
        except OSError:
            # Another user's process has this pid now.
            continue


class Link:
    """One side of a connection between a driver and a runner.

    Args:
        received: Called with each message on the link's read thread; must not raise.
        closed: Called once, when the connection ends.
    """

    def __init__(
        self,
        connection: socket.socket,
        received: Callable[[Link, Message], None],
        closed: Callable[[Link], None],
    ) -> None:
        self._connection = connection
        self._received = received
        self._closed = closed
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_MESSAGES)
        self._ending = threading.Lock()
        self._is_written = threading.Event()
        self.is_open = True

    def start(self) -> None:
        """Start the read and write threads."""
        for target, name in ((self._read, "read"), (self._write, "write")):
            threading.Thread(target=target, name=f"kafka-group-link-{name}", daemon=True).start()

    def send(self, message: Message) -> None:
        """Queue a message; close the link if the other side does not read."""
        if not self.is_open:
            return
        try:
            self._waiting.put_nowait(as_line(message))
        except queue.Full:
            logger.warning("closing a control link whose other side does not read")
            # In a thread, because the caller may hold locks that `closed` acquires.
            threading.Thread(target=self.close, name="kafka-group-link-cut", daemon=True).start()

    def finish(self, timeout_s: float) -> None:
        """Close the connection once all queued messages are written, or after a timeout."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._is_written.wait(timeout_s)
        self.close()

    def close(self) -> None:
        """Close the connection; idempotent."""
        if not self._ending.acquire(blocking=False):
            return
        self.is_open = False
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._closed(self)

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    logger.warning("closing a control link: message above %d bytes", MAX_LINE_BYTES)
                    break
                try:
                    message = from_line(line)
                except ValueError as error:
                    logger.warning("ignoring a line on a control link: %s", error)
                else:
                    self._received(self, message)
        self.close()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (line := self._waiting.get()) is not None and self.is_open:
                self._connection.sendall(line)
        self._is_written.set()
        self.close()


class ControlServer:
    """The driver's side: a socket for the runners of its JVM; it logs how their runs ended.

    Args:
        listening: The first message that each runner receives, after `greetings`.
        directories: Candidate directories for the socket, in order of preference.
        greetings: Called for each runner that connects; returns messages to send first.
        suffix: The end of the socket's name.
    """

    def __init__(
        self,
        jvm_pid: int,
        listening: Listening,
        received: Callable[[Link, Message], None],
        directories: Sequence[Path],
        greetings: Callable[[], Iterable[Message]] = tuple,
        *,
        suffix: str = SUFFIX,
    ) -> None:
        self._greetings = greetings
        self.listening = listening
        self._received = received
        self._directories = directories
        self._name = f"{jvm_pid}-{os.getpid()}-{next(_numbers)}.{suffix}"
        self._path: Path | None = None
        self._changed = threading.Condition()
        self._introduced: dict[Link, Introduced | None] = {}
        self._socket: socket.socket | None = None

    def start(self, missing: str) -> None:
        """Listen; warn and continue if no directory can hold the socket.

        Args:
            missing: What users lose without the channel, for the warning.
        """
        problems: list[str] = []
        self._socket = listener = self._listen(problems)
        if listener is None:
            logger.warning(
                "no control channel to the runners of this application's queries, so %s. The"
                " queries run without it. In the environment of the driver's JVM, set"
                " XDG_RUNTIME_DIR to a directory of its user with mode 0700, or set spark.local.dir"
                " to a writable directory, and restart the application (%s)",
                missing,
                "; ".join(problems) or "no candidate directory",
            )
            return
        threading.Thread(
            target=self._accept, args=(listener,), name="kafka-group-control", daemon=True
        ).start()

    def broadcast(self, message: Message) -> int:
        """Send a message to all runners, and return their number."""
        with self._changed:
            links = list(self._introduced)
        for link in links:
            link.send(message)
        return len(links)

    @property
    def has_runners(self) -> bool:
        """Whether a runner is connected."""
        return bool(self._introduced)

    def await_runners(self, pids: set[int], timeout_s: float) -> bool:
        """Wait until runners with these pids are connected; return False on timeout."""
        if self._socket is None:
            return False
        with self._changed:
            return self._changed.wait_for(
                lambda: pids <= {each.pid for each in self._known()}, timeout_s
            )

    def await_ends(self, group_ids: Collection[str] | None, timeout_s: float) -> bool:
        """Wait until no runner of these groups is connected; return False on timeout.

        One that has not introduced itself yet may be of any group.

        Args:
            group_ids: None means all groups.
        """

        def have_ended() -> bool:
            return not any(
                each is None or group_ids is None or each.group_id in group_ids
                for each in self._introduced.values()
            )

        if group_ids is not None and not group_ids:
            return True

        with self._changed:
            return self._changed.wait_for(have_ended, timeout_s)

    def _known(self) -> Iterator[Introduced]:
        return (each for each in self._introduced.values() if each is not None)

    def close(self) -> None:
        """Stop listening, close all links and remove the socket."""
        listener, self._socket = self._socket, None
        if listener is None or self._path is None:
            return
        end_listening(listener, self._path)
        with self._changed:
            links = list(self._introduced)
        for link in links:
            link.close()

    def _listen(self, problems: list[str]) -> socket.socket | None:
        for directory in self._directories:
            self._path = directory / self._name
            try:
                listener = listen_at(self._path, MAX_LINKS)
            except OSError as error:
                problems.append(f"{directory}: {error}")
            else:
                _sweep(directory)
                return listener
        return None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._socket is None:
                    return
                # Probably too many open files: retry the pending connection later.
                logger.warning("cannot accept the connection of a runner: %s", error)
                with self._changed:
                    self._changed.wait(LOOK_EVERY_S)
                continue
            link = Link(connection, self._take, self._forget)
            with self._changed:
                is_full = len(self._introduced) >= MAX_LINKS
                if not is_full and self._socket is not None:
                    self._introduced[link] = None
            if is_full or self._socket is None:
                link.close()
                continue
            for message in (*self._greetings(), self.listening):
                link.send(message)
            link.start()

    def _take(self, link: Link, message: Message) -> None:
        if isinstance(message, Introduced):
            with self._changed:
                if link in self._introduced:
                    self._introduced[link] = message
                self._changed.notify_all()
        if isinstance(message, RunEnded):
            # Spark has closed the stderr of a runner whose query it stops.
            logger.info(
                "group %s: %s", message.group_id, message.line, extra={"query_id": message.query_id}
            )
        self._received(link, message)

    def _forget(self, link: Link) -> None:
        with self._changed:
            self._introduced.pop(link, None)
            self._changed.notify_all()


class ControlClient:
    """The runner's side: a link to every listening driver of its JVM.

    Args:
        introduced: The first message that each driver receives.
        suffixes: The ends of the names of the sockets to connect to.
    """

    def __init__(
        self,
        jvm_pid: int,
        introduced: Introduced,
        received: Callable[[Link, Message], None],
        closed: Callable[[Link], None],
        directories: Sequence[Path],
        *,
        suffixes: Collection[str] = (SUFFIX,),
    ) -> None:
        self._jvm_pid = jvm_pid
        self._suffixes = suffixes
        self._introduced = introduced
        self._received = received
        self._closed = closed
        self._directories = directories
        self._links: dict[Path, Link] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self) -> int:
        """Connect to all listening drivers and poll for new ones; return the current number."""
        found = self._look()
        threading.Thread(target=self._keep_looking, name="kafka-group-look", daemon=True).start()
        return found

    def broadcast(self, message: Message) -> None:
        """Send a message to all drivers."""
        for link in self.links():
            link.send(message)

    def links(self) -> list[Link]:
        """Return the open links."""
        with self._lock:
            return [link for link in self._links.values() if link.is_open]

    def close(self) -> None:
        """Close all links, after their last messages, and stop polling."""
        self._ended.set()
        for link in self.links():
            link.finish(LAST_MESSAGES_S)

    def _keep_looking(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._try_to_look()

    def _try_to_look(self) -> None:
        try:
            self._look()
        except Exception as error:
            # Too many open files or threads: the next poll may succeed.
            logger.warning("cannot look for listening drivers: %r", error)

    def _look(self) -> int:
        with self._lock:
            self._links = {path: link for path, link in self._links.items() if link.is_open}
            known = set(self._links)
        for directory in self._directories:
            found = sorted(directory.glob(f"{self._jvm_pid}-*.*"))
            paths = [path for path in found if path.suffix[1:] in self._suffixes]
            if not paths or not is_private(directory):
                continue
            for path in paths:
                if path not in known and len(known) < MAX_LINKS:
                    self._connect(path)
        return len(self.links())

    def _connect(self, path: Path) -> None:
        try:
            connection = connect_to(path, CONNECT_TIMEOUT_S)
        except OSError:
            return
        connection.settimeout(None)
        link = Link(connection, self._received, self._closed)
        with self._lock:
            self._links[path] = link
        link.send(self._introduced)
        link.start()
