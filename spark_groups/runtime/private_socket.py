"""Unix sockets between processes of one user, in directories of that user alone.

A socket that refuses connections is a leftover, which any client removes; so a new one becomes
visible only once it listens. A socket whose path is too long for the system is reached through its
open directory.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark_groups.runtime.directories import make_private

UNREADY_SUFFIX: Final = ".new"
PATH_BYTES_MAX: Final = 103
"""The longest path of a socket that every system takes (macOS; Linux takes 107)."""


def listen_at(path: Path, backlog: int) -> socket.socket:
    """Return a listening socket, in a directory that is made private.

    Raises:
        OSError: It cannot be created, or its directory belongs to another user.
    """
    make_private(path.parent)
    unready = path.with_suffix(UNREADY_SUFFIX)
    unready.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(unready) as address:
            listener.bind(address)
        listener.listen(backlog)
        unready.rename(path)
    except OSError:
        listener.close()
        raise
    return listener


def end_listening(listener: socket.socket, path: Path) -> None:
    """Wake up a blocked `accept`, and remove the socket."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    path.unlink(missing_ok=True)


def connect_to(path: Path, timeout_s: float) -> socket.socket:
    """Return a connection; remove the socket if no process listens on it any more.

    Args:
        timeout_s: Applies to connecting and to each later call.

    Raises:
        OSError: The connection was not accepted.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _address(path) as address:
            connection.connect(address)
    except OSError as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError):
            path.unlink(missing_ok=True)
        raise
    return connection


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a name of the socket that is short enough."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
