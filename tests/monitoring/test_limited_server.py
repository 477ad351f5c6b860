"""A server with an end of connections; those of the endpoint and of the page have theirs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from spark_groups.monitoring.limited_server import LimitedServer
from tests.monitoring.scraping import get


class Answer(BaseHTTPRequestHandler):
    """Says that it was asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, text: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[LimitedServer]:
    started = LimitedServer(("127.0.0.1", 0), Answer, connections_max=1)
    threading.Thread(target=started.serve_forever, args=(0.02,), daemon=True).start()
    yield started
    started.shutdown()
    started.server_close()


def test_place_is_free_again_where_no_thread_can_be_had(
    server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(OSError, match=r".+"):
            get(server.server_port, "/")
    assert get(server.server_port, "/")[0] == 200


def test_interrupt_of_whoever_began_a_thread_leaves_the_place_to_the_thread(
    server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        thread.join()
        raise KeyboardInterrupt

    client, connection = socket.socketpair()
    client.close()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.process_request(connection, "somebody")
    assert get(server.server_port, "/")[0] == 200
