"""Snapshots of the members on this host, over unix sockets in a private directory.

A runner publishes its snapshot; the CLI, notebooks and health checks read it. Each connection
carries one JSON document.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from spark_groups.runtime.directories import is_private, user_directory
from spark_groups.runtime.private_socket import connect_to, end_listening, listen_at

logger = logging.getLogger(__name__)

READ_TIMEOUT_S: Final = 1.0
PAUSE_S: Final = 0.5
"""How long to pause after an error."""
BACKLOG: Final = 8
MAX_SNAPSHOT_BYTES: Final = 64 * 1024 * 1024
_numbers = itertools.count()


def snapshot_directory() -> Path:
    """Return this user's directory of sockets; it may not exist."""
    return user_directory("spark-groups")


class SnapshotPublisher:
    """Sends a snapshot to every process of this user that connects.

    Args:
        take: Returns the snapshot as plain values.
        directory: None for this user's own directory.
    """

    def __init__(self, take: Callable[[], dict[str, Any]], directory: Path | None = None) -> None:
        self._take = take
        self._path = (directory or snapshot_directory()) / f"{os.getpid()}-{next(_numbers)}.sock"
        self._listener: socket.socket | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Start publishing; without a socket, log a warning and continue without."""
        try:
            self._listener = listen_at(self._path, BACKLOG)
        except OSError as error:
            logger.warning("cannot publish the member's snapshot: %s", error)
            return
        threading.Thread(target=self._serve, name="kafka-group-snapshot", daemon=True).start()

    def close(self) -> None:
        """Stop publishing and remove the socket."""
        listener, self._listener = self._listener, None
        self._ended.set()
        if listener is not None:
            end_listening(listener, self._path)

    def _serve(self) -> None:
        while (listener := self._listener) is not None:
            self._try_to_send(listener)

    def _try_to_send(self, listener: socket.socket) -> None:
        try:
            self._send_snapshot(listener)
        except Exception as error:
            if self._listener is not None:
                # It may be temporary, such as a lack of file descriptors.
                logger.warning("could not send a snapshot: %r", error)
                self._ended.wait(PAUSE_S)

    def _send_snapshot(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(READ_TIMEOUT_S)
            view = {**self._take(), "pid": os.getpid()}
            connection.sendall(json.dumps(view).encode("utf-8"))


def read_snapshots(
    group_id: str | None = None, *, directory: Path | None = None
) -> list[dict[str, Any]]:
    """Return the snapshots of this user's members on this host, sorted by member id.

    Args:
        group_id: Only members of this group.
        directory: None for this user's own directory.
    """
    place = directory or snapshot_directory()
    paths = sorted(place.glob("*.sock")) if is_private(place) else []
    found = [view for path in paths for view in _read(path)]
    return sorted(
        (view for view in found if group_id in (None, view.get("group"))),
        key=lambda view: str(view.get("member_id")),
    )


def _read(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with connect_to(path, READ_TIMEOUT_S) as connection:
            received = b""
            while chunk := connection.recv(1 << 16):
                received += chunk
                if len(received) > MAX_SNAPSHOT_BYTES:
                    return
            view = json.loads(received)
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(view, dict):
        yield view
