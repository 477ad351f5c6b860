"""A read-only HTTP endpoint of one member: metrics for Prometheus, health for probes.

`/live` returns 503 once the process should be restarted, `/ready` unless the member is fully
functional; `/health` returns both with the reason, always with 200. No response contains secrets.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from spark_groups.errors import OptionsError
from spark_groups.group.snapshot import MemberSnapshot
from spark_groups.monitoring.families import families
from spark_groups.monitoring.health import Health, assess
from spark_groups.monitoring.limited_server import (
    LimitedRequest,
    LimitedServer,
    is_loopback,
    names_loopback,
)

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

logger = logging.getLogger(__name__)

PORT_WAIT_S: Final = 5.0
"""How long the previous run of the query may take to release its port."""
RETRY_S: Final = 0.1
CLIENT_TIMEOUT_S: Final = 5.0
MAX_CLIENTS: Final = 16
PROBES: Final[dict[str, Callable[[Health], bool]]] = {
    "/live": lambda health: health.is_live,
    "/ready": lambda health: health.is_ready,
    "/health": lambda _: True,
}
"""By path: whether a health is answered with 200."""

Take = Callable[[], MemberSnapshot]
Measure = Callable[[MemberSnapshot], MemberSnapshot]


class MonitoringEndpoint:
    """Serves the metrics and health of one member.

    Args:
        take: Returns the member's snapshot.
        port: 0 binds any free port.
        measure: Adds to a snapshot what only brokers know, for metrics; probes do without.
    """

    def __init__(
        self, take: Take, *, host: str, port: int, measure: Measure = lambda snapshot: snapshot
    ) -> None:
        self._take = take
        self._address = (host, port)
        self._server: _Server | None = None
        self._is_local = False
        registry = CollectorRegistry()
        registry.register(_Member(lambda: measure(take())))
        self._metrics = make_wsgi_app(registry)

    def start(self) -> None:
        """Start serving.

        Raises:
            OptionsError: The port is not available.
        """
        self._server = server = self._listen()
        # The bound address, because 127.1 and host names may also be loopback addresses.
        self._is_local = is_loopback(str(server.server_address[0]))
        server.set_app(self._answer)
        threading.Thread(
            target=server.serve_forever, name="kafka-group-metrics", daemon=True
        ).start()
        logger.info("metrics and health: http://%s:%d", self._address[0], self.port)

    @property
    def port(self) -> int:
        """The bound port; 0 before the start."""
        return 0 if self._server is None else self._server.server_port

    def close(self) -> None:
        """Stop serving and release the port; idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _listen(self) -> _Server:
        deadline_s = time.monotonic() + PORT_WAIT_S
        while True:
            try:
                return _Server(self._address)
            except OSError as error:
                is_taken = error.errno == errno.EADDRINUSE
                if not is_taken or time.monotonic() >= deadline_s:
                    host, port = self._address
                    raise OptionsError(
                        f"cannot bind metricsPort {port} of metricsHost {host}: {error}; each query"
                        " needs its own port, and 0 binds any free port"
                    ) from error
            time.sleep(RETRY_S)

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO"))
        # Probes may omit the Host header; browsers never do.
        name = environ.get("HTTP_HOST")
        is_foreign = name is not None and not names_loopback(str(name))
        if is_foreign and self._is_local:
            remedy = "request localhost, or set metricsHost to the address that clients use"
            return _reply(start, HTTPStatus.FORBIDDEN, {"error": remedy})
        if path == "/metrics":
            metrics: Iterable[bytes] = self._metrics(environ, start)
            return metrics
        if path not in PROBES:
            return _reply(start, HTTPStatus.NOT_FOUND, {"paths": ["/metrics", *PROBES]})
        health = assess(self._take())
        status = HTTPStatus.OK if PROBES[path](health) else HTTPStatus.SERVICE_UNAVAILABLE
        return _reply(start, status, health.as_plain())


def _reply(start: StartResponse, status: HTTPStatus, value: object) -> list[bytes]:
    body = json.dumps(value).encode("utf-8") + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start(f"{status.value} {status.phrase}", [*headers, ("Cache-Control", "no-store")])
    return [body]


class _Member(Collector):
    def __init__(self, take: Take) -> None:
        self._take = take

    def collect(self) -> Iterator[Metric]:
        return families(self._take())


class _Connection(LimitedRequest, WSGIRequestHandler):
    """One request, with a timeout, and logged at debug level only."""

    timeout = CLIENT_TIMEOUT_S

    def log_message(self, text: str, *args: Any) -> None:
        logger.debug(text, *args)


class _Server(LimitedServer, WSGIServer):
    """A thread per connection, so that probes do not wait for slow clients."""

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        super().__init__((str(found[0][4][0]), port), _Connection, connections_max=MAX_CLIENTS)
