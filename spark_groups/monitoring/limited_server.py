"""An HTTP server with a thread for each connection, and limits against slow and foreign clients."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

HEAD_TIMEOUT_S: Final = 5.0
"""How long a client may take to send the whole head of its request."""
_PLACE_TIMEOUT_S: Final = 0.5
"""How long a new connection waits for the place of one that was closed for it."""


def is_loopback(host: str) -> bool:
    """Tell whether an address or a name is that of this machine for itself."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def names_loopback(host_header: str) -> bool:
    """Tell whether a request was made to a loopback address.

    A server on a loopback address refuses any other: a page of another site whose name resolves
    to this machine (DNS rebinding) must not read what is here.
    """
    try:
        return is_loopback(urlsplit(f"//{host_header}").hostname or "")
    except ValueError:
        return False


class LimitedRequest(BaseHTTPRequestHandler):
    """A request whose server limits the time for its head."""

    def parse_request(self) -> bool:
        """Read the head of the request; from here on the connection keeps its place."""
        is_whole = super().parse_request()
        cast(LimitedServer, self.server).end_head(self.connection)
        return is_whole


class LimitedServer(ThreadingHTTPServer):
    """Serves a limited number of connections at a time.

    A connection has `HEAD_TIMEOUT_S` for the head of its request. Where all places are taken, a
    new connection takes the place of the oldest one whose head is not there yet, so that clients
    that send a byte now and then cannot shut a probe out; if there is none, it is closed.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(
        self,
        address: tuple[str, int],
        request: type[LimitedRequest],
        *,
        connections_max: int,
    ) -> None:
        self._places = threading.BoundedSemaphore(connections_max)
        self._heads: dict[socket.socket, float] = {}
        """Connections whose head is not there yet, and when they began; the oldest first."""
        super().__init__(address, request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, unless there are too many."""
        if not self._places.acquire(blocking=False) and not self._take_place():
            logger.warning("too many connections: that of %s is closed", client_address)
            self.shutdown_request(request)
            return
        self._heads[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except Exception:
            # There is no thread that would; after an interrupt there may be one.
            self.end_head(request)
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.end_head(request)
            self._places.release()

    def end_head(self, request: Any) -> None:
        """Note that the head of a connection's request is there, or that the connection ends."""
        self._heads.pop(request, None)

    def service_actions(self) -> None:
        """Close connections whose head takes too long; the serving loop calls this regularly."""
        late = time.monotonic() - HEAD_TIMEOUT_S
        for request, began_at in list(self._heads.items()):
            if began_at <= late:
                self._close_head(request)

    def _take_place(self) -> bool:
        """Close the oldest connection without a whole head, and take its place."""
        has_closed = any(self._close_head(each) for each in list(self._heads))
        return has_closed and self._places.acquire(timeout=_PLACE_TIMEOUT_S)

    def _close_head(self, request: socket.socket) -> bool:
        """Close a connection, unless its head has come meanwhile."""
        if self._heads.pop(request, None) is None:
            return False
        # Its thread wakes up, and closes it.
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say what went wrong where somebody wants to know: mostly a peer has gone."""
        logger.debug("the connection of %s failed", client_address, exc_info=True)
