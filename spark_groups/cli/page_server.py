"""The live page over HTTP: static files, and feeds as Server-Sent Events.

The server is read-only: it answers only GET. Connections and the time of a peer are limited.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from socket import AF_INET, AF_INET6
from typing import Any, Final
from urllib.parse import parse_qs

from spark_groups.cli.feeds import Feeds, TooManyFeedsError
from spark_groups.monitoring.limited_server import (
    LimitedRequest,
    LimitedServer,
    is_loopback,
    is_of_another_site,
    names_loopback,
)

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
PEER_TIMEOUT_S: Final = 10.0
"""The timeout for writes to a peer; for reading its request it is `HEAD_TIMEOUT_S`."""
KEEP_ALIVE_S: Final = 5.0
"""How long a stream is silent before it sends a comment, which detects closed connections."""
EVENTS_PATH: Final = "/events"
_STREAM: Final = "text/event-stream"
GROUP_LIST: Final = ""
"""The key of the feed of all groups; a group id is never empty."""
_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_files() -> dict[str, tuple[str, bytes]]:
    """Return content type and content of the page's files, by request path."""
    found = {}
    for each in files("spark_groups.cli").joinpath("page").iterdir():
        content_type = _TYPES.get(each.name.rpartition(".")[2])
        if content_type is not None:
            found[f"/{each.name}"] = content_type, each.read_bytes()
    found["/"] = found.pop("/index.html")
    return found


class PageServer(LimitedServer):
    """Serves the page and its streams, with a thread for each connection.

    Args:
        feeds: One feed per group id, and `GROUP_LIST`.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(self, host: str, port: int, feeds: Feeds) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.feeds = feeds
        self.files = page_files()
        super().__init__((host.strip("[]"), port), PageRequest, connections_max=CONNECTIONS_MAX)
        # The bound address: 127.1 and host names may be loopback addresses too.
        self.is_local = is_loopback(str(self.server_address[0]))

    @property
    def url(self) -> str:
        """The URL of the page."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


class PageRequest(LimitedRequest):
    """One request on a connection of its own."""

    server: PageServer
    timeout = PEER_TIMEOUT_S
    server_version = "spark-groups"
    sys_version = ""

    def __getattr__(self, name: str) -> Any:
        # The base class looks up a method for each HTTP method.
        if name.startswith("do_"):
            refused = HTTPStatus.METHOD_NOT_ALLOWED, "only GET is supported", {"Allow": "GET"}
            return partial(self._refuse, *refused)
        raise AttributeError(name)

    def do_GET(self) -> None:
        """Send a file or a stream."""
        if self.server.is_local and not names_loopback(self.headers.get("Host", "")):
            # Against DNS rebinding: a foreign host name that resolves to this address.
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for loopback addresses only")
            return
        path, _, query = self.path.partition("?")
        if path == EVENTS_PATH:
            self._answer_stream(parse_qs(query).get("group", [GROUP_LIST])[0])
        elif path in self.server.files:
            content_type, content = self.server.files[path]
            self._begin(HTTPStatus.OK, content_type, {"Content-Length": str(len(content))})
            self.wfile.write(content)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")

    def _answer_stream(self, group_id: str) -> None:
        """Send a stream, unless a page of another site asks, or too many groups are watched."""
        # Only scripts ask for this type, and one of another site has to name itself then.
        accepted = self.headers.get("Accept", _STREAM)
        if is_of_another_site(self.headers):
            self._refuse(HTTPStatus.FORBIDDEN, "pages of other sites get no events")
        elif _STREAM not in accepted:
            self._refuse(HTTPStatus.NOT_ACCEPTABLE, f"ask with the header Accept: {_STREAM}")
        else:
            try:
                self._stream(group_id)
            except TooManyFeedsError as error:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _stream(self, group_id: str) -> None:
        with self.server.feeds.join(group_id) as feed:
            self._begin(HTTPStatus.OK, f"{_STREAM}; charset=utf-8")
            sent = 0
            while not feed.is_over:
                number, text = feed.after(sent, KEEP_ALIVE_S)
                event = f"data: {text}\n\n" if number > sent else ":\n\n"
                self.wfile.write(event.encode())
                sent = number

    def _refuse(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        content = f"{reason}\n".encode()
        sized = {"Content-Length": str(len(content)), **(headers or {})}
        self._begin(status, "text/plain; charset=utf-8", sized)
        self.wfile.write(content)

    def _begin(
        self, status: HTTPStatus, content_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, **_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log requests at DEBUG only."""
        logger.debug(format, *args)
