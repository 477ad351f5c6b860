"""The live page over HTTP: a few files, and streams of what is seen (Server-Sent Events).

It is read-only: GET is the only method, and nothing that is asked for changes anything. Everything
has a limit: connections, the time a peer may take, and the observers, which are shared.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from socket import AF_INET, AF_INET6
from typing import Any, Final
from urllib.parse import parse_qs

from spark_groups.monitoring.limited_server import (
    LimitedRequest,
    LimitedServer,
    is_loopback,
    names_loopback,
)
from spark_groups.ops.feeds import Feeds

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
PEER_TIMEOUT_S: Final = 10.0
"""How long a peer may take to read what it is sent; its request has `HEAD_TIMEOUT_S`."""
KEEP_ALIVE_S: Final = 5.0
"""After so long without a document a comment is sent, by which a peer that is gone is noticed."""
EVENTS_PATH: Final = "/events"
GROUP_LIST: Final = ""
"""The key of the feed of all groups; no group has an empty id."""
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
    """Return type and content of the page's files, by the path under which they are asked for."""
    found = {}
    for each in files("spark_groups.ops").joinpath("page").iterdir():
        content_type = _TYPES.get(each.name.rpartition(".")[2])
        if content_type is not None:
            found[f"/{each.name}"] = content_type, each.read_bytes()
    found["/"] = found.pop("/index.html")
    return found


class PageServer(LimitedServer):
    """Serves the page and its streams, each connection by a thread.

    Args:
        feeds: What is streamed: the groups by `GROUP_LIST`, a group by its id.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, host: str, port: int, feeds: Feeds) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.feeds = feeds
        self.files = page_files()
        super().__init__((host.strip("[]"), port), PageRequest, connections_max=CONNECTIONS_MAX)
        # As it was bound: 127.1 and names of hosts may be loopback addresses, too.
        self.is_local = is_loopback(str(self.server_address[0]))

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


class PageRequest(LimitedRequest):
    """One request, which ends its connection."""

    server: PageServer
    timeout = PEER_TIMEOUT_S
    server_version = "spark-groups"
    sys_version = ""

    def __getattr__(self, name: str) -> Any:
        # The base class looks for a function of every method that it is asked for.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def do_GET(self) -> None:
        """Send a file or a stream."""
        if self.server.is_local and not names_loopback(self.headers.get("Host", "")):
            # A page elsewhere whose name leads here, now, may not read what is here.
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for loopback addresses only")
            return
        path, _, query = self.path.partition("?")
        if path == EVENTS_PATH:
            self._stream(parse_qs(query).get("group", [GROUP_LIST])[0])
        elif path in self.server.files:
            content_type, content = self.server.files[path]
            self._begin(HTTPStatus.OK, content_type, {"Content-Length": str(len(content))})
            self.wfile.write(content)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _stream(self, group_id: str) -> None:
        self._begin(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        with self.server.feeds.join(group_id) as feed:
            sent = 0
            while not feed.is_over:
                number, text = feed.after(sent, KEEP_ALIVE_S)
                said = f"data: {text}\n\n" if number > sent else ":\n\n"
                self.wfile.write(said.encode())
                sent = number

    def _refuse_method(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered", {"Allow": "GET"})

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
        """Log a request where somebody wants to know."""
        logger.debug(format, *args)
