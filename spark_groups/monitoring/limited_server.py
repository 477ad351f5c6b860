"""An HTTP server with a thread for each connection, and an end of connections."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

logger = logging.getLogger(__name__)


class LimitedServer(ThreadingHTTPServer):
    """Serves so many connections at a time: whoever is more is turned away, not kept waiting.

    Args:
        address: An address of this machine, and the port; 0: one that is free.
        request: Answers a connection.
        connections_max: How many are served at a time.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(
        self,
        address: tuple[str, int],
        request: type[BaseHTTPRequestHandler],
        *,
        connections_max: int,
    ) -> None:
        self._places = threading.BoundedSemaphore(connections_max)
        super().__init__(address, request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, unless there are too many."""
        if not self._places.acquire(blocking=False):
            logger.warning("too many connections: that of %s is closed", client_address)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except Exception:
            # There is no thread that would; after an interrupt there may be one.
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say what went wrong where somebody wants to know: mostly a peer has gone."""
        logger.debug("the connection of %s failed", client_address, exc_info=True)
