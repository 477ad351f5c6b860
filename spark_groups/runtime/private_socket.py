"""Unix sockets by which processes of one user talk, in directories of that user alone.

A socket that refuses is one whose process is gone: whoever meets it removes it. So one that is new
is seen only once it listens. Directories may have long names: where the path of a socket is longer
than the system takes, the socket is reached by way of its open directory.
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
    """Return a socket that listens, in a directory that is made private.

    Args:
        path: Where it is to be found.
        backlog: How many connections may wait to be accepted.

    Raises:
        OSError: It cannot be made, or its directory is somebody else's.
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
    """Wake up whoever accepts, and remove the socket.

    Args:
        listener: The socket.
        path: Where it was to be found.
    """
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    path.unlink(missing_ok=True)


def connect_to(path: Path, timeout_s: float) -> socket.socket:
    """Return a connection; a socket whose process is gone is removed.

    Args:
        path: Where it is.
        timeout_s: How long connecting may take, and everything after it.

    Raises:
        OSError: Nobody accepts the connection.
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
    """Give a name for a socket that is short enough."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
