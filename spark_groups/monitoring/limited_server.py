"""An HTTP server with a thread per connection, and limits against slow and foreign clients."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
import time
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

HEAD_TIMEOUT_S: Final = 5.0
"""How long a client may take to send its request head."""
_SLOT_TIMEOUT_S: Final = 0.5
"""How long a new connection waits for a slot that was freed for it."""


def is_loopback(host: str) -> bool:
    """Return whether an address or a host name is a loopback address."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def names_loopback(host_header: str) -> bool:
    """Return whether a Host header names a loopback address.

    A server on a loopback address refuses other names against DNS rebinding: a foreign page whose
    host name resolves to this machine.
    """
    try:
        return is_loopback(urlsplit(f"//{host_header}").hostname or "")
    except ValueError:
        return False


def is_of_another_site(headers: Message) -> bool:
    """Return whether a page of another site made a browser send a request.

    Browsers send `Sec-Fetch-Site` to loopback addresses and over TLS, and `Origin` with requests
    whose answers a script may read.

    Args:
        headers: The headers of the request.
    """
    if headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        return True
    origin = headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != headers.get("Host", "")


class LimitedRequest(BaseHTTPRequestHandler):
    """A request with a time limit for its head."""

    def parse_request(self) -> bool:
        """Read the request head; afterwards the connection keeps its slot."""
        is_whole = super().parse_request()
        cast(LimitedServer, self.server).end_head(self.connection)
        return is_whole


class LimitedServer(ThreadingHTTPServer):
    """Serves a limited number of connections at a time.

    A connection has `HEAD_TIMEOUT_S` to send its request head. If all slots are taken, a new
    connection replaces the oldest one without a complete head, so that clients that send a few
    bytes at a time cannot block probes; if there is none, the server closes the new connection.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(
        self,
        address: tuple[str, int],
        request: type[LimitedRequest],
        *,
        connections_max: int,
    ) -> None:
        self._slots = threading.BoundedSemaphore(connections_max)
        self._heads: dict[socket.socket, float] = {}
        """Connections without a complete head, by their start, oldest first."""
        super().__init__(address, request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it if there are too many."""
        if not self._slots.acquire(blocking=False) and not self._take_slot():
            logger.warning("too many connections: closing the one from %s", client_address)
            self.shutdown_request(request)
            return
        self._heads[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except Exception:
            # No thread started that would release the slot; after an interrupt there may be one.
            self.end_head(request)
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.end_head(request)
            self._slots.release()

    def end_head(self, request: Any) -> None:
        """Record that the request head is complete, or that the connection ends."""
        self._heads.pop(request, None)

    def service_actions(self) -> None:
        """Close connections without a head in time; the serving loop calls this regularly."""
        late = time.monotonic() - HEAD_TIMEOUT_S
        for request, began_at in list(self._heads.items()):
            if began_at <= late:
                self._close_head(request)

    def _take_slot(self) -> bool:
        """Close the oldest connection without a complete head, and take its slot."""
        has_closed = any(self._close_head(head) for head in list(self._heads))
        return has_closed and self._slots.acquire(timeout=_SLOT_TIMEOUT_S)

    def _close_head(self, request: socket.socket) -> bool:
        """Close a connection unless its head is complete."""
        if self._heads.pop(request, None) is None:
            return False
        # This wakes its thread, which closes it.
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log at debug level, because most failures are disconnected peers."""
        logger.debug("the connection from %s failed", client_address, exc_info=True)
