"""The connection of a runner or a worker to the JVM, and how its messages are not delayed.

Over TCP the JVM holds a small message back until its previous one is acknowledged, and Linux delays
acknowledgements by up to 40 ms, once for each task. So this side acknowledges at once, and sends
without such delays. Unix sockets (`spark.python.unix.domain.socket.enabled`) have no delay.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

logger = logging.getLogger(__name__)

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
"""Read when an application starts; Spark 4.1 and newer."""
_STANDARD_STREAMS: Final = (0, 1, 2)
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux only."""
_OLDEST_GENERATION: Final = 2


def jvm_connection() -> socket.socket | None:
    """Return a duplicate of the connection to the JVM.

    Call it before the process opens other connections; None unless there is exactly one. A worker
    may have others from earlier tasks: there the only one with several descriptors counts.
    """
    found = list(_connections())
    if len(found) > 1:
        several = [each for each in found if len(each) > 1]
        found = several if len(several) == 1 else []
    if not found:
        return None
    try:
        return socket.socket(fileno=os.dup(found[0][0]))
    except OSError:
        return None


def has_hung_up(connection: socket.socket) -> bool:
    """Return whether the peer closed a connection, without consuming its data."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def acknowledge_calls_at_once(connection: socket.socket | None) -> None:
    """Make a runner send, and acknowledge the JVM's calls, without delay; only TCP needs it.

    Starts a thread, because Linux delays acknowledgements again after each response.
    """
    if connection is None or not _send_at_once(connection):
        return
    if _QUICK_ACK is not None and hasattr(select, "epoll"):
        threading.Thread(
            target=_acknowledge_each_call,
            args=(connection,),
            name="kafka-group-acknowledge",
            daemon=True,
        ).start()


@cache
def acknowledge_tasks_at_once() -> None:
    """Make a worker send its rows, and acknowledge the messages of each later task, without delay.

    PySpark collects garbage between two tasks, after the last write of the first one: there the
    acknowledgements are set again.
    """
    connection = jvm_connection()
    if connection is None or not _send_at_once(connection) or _QUICK_ACK is None:
        return

    def between_tasks(phase: str, about: Mapping[str, int]) -> None:
        if phase == "stop" and about["generation"] == _OLDEST_GENERATION:
            _acknowledge_at_once(connection)

    gc.callbacks.append(between_tasks)


def _send_at_once(connection: socket.socket) -> bool:
    """Return whether a connection uses TCP, and now sends without delay."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        logger.debug("TCP_NODELAY cannot be set on the connection to the JVM: %s", error)
        return False
    return True


def _acknowledge_at_once(connection: socket.socket) -> bool:
    assert _QUICK_ACK is not None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
    except OSError:
        return False
    return True


def _acknowledge_each_call(connection: socket.socket) -> None:
    with select.epoll() as arrivals:
        # Edge-triggered, because another thread reads the data.
        arrivals.register(connection, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        while _acknowledge_at_once(connection):
            if any(event & ~select.EPOLLIN for _, event in arrivals.poll()):
                return


def _connections() -> Iterator[list[int]]:
    """Yield the descriptors of each connected socket of this process."""
    by_inode: dict[int, list[int]] = {}
    for descriptor in _sockets():
        with contextlib.suppress(OSError):
            with socket.socket(fileno=os.dup(descriptor)) as duplicate:
                duplicate.getpeername()
            by_inode.setdefault(os.fstat(descriptor).st_ino, []).append(descriptor)
    yield from by_inode.values()


def _sockets() -> list[int]:
    """Return the descriptors of this process's sockets."""
    try:
        descriptors = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return []
    return [
        descriptor
        for descriptor in descriptors
        if descriptor not in _STANDARD_STREAMS and _is_socket(descriptor)
    ]


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
