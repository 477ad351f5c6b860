"""A server with an end of connections; those of the endpoint and of the page have theirs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from spark_groups.monitoring import limited_server
from spark_groups.monitoring.limited_server import LimitedRequest, LimitedServer, names_loopback
from tests.monitoring.scraping import get
from workshop.parts.waiting import LONG_S


class Answer(LimitedRequest):
    """Says that it was asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, text: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitedServer]:
    monkeypatch.setattr(limited_server, "HEAD_TIMEOUT_S", LONG_S)
    monkeypatch.setattr(limited_server, "_SLOT_TIMEOUT_S", LONG_S)
    started = LimitedServer(("127.0.0.1", 0), Answer, connections_max=1)
    threading.Thread(target=started.serve_forever, args=(0.02,), daemon=True).start()
    yield started
    started.shutdown()
    started.server_close()


def dripping(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
    return client


def drip_on(client: socket.socket, deadline: float) -> None:
    while time.monotonic() < deadline:
        client.sendall(b".")
        time.sleep(0.05)


def test_clients_that_drip_a_header_do_not_shut_others_out(server: LimitedServer) -> None:
    with dripping(server.server_port) as first, dripping(server.server_port) as second:
        # The second took the place of the first, and a whole request takes that of the second.
        assert get(server.server_port, "/")[0] == 200
        for each in (first, second):
            each.settimeout(LONG_S)
            assert each.recv(100) == b""


def test_head_has_one_deadline_however_often_bytes_come(
    server: LimitedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_server, "HEAD_TIMEOUT_S", 0.3)
    with dripping(server.server_port) as client, pytest.raises(OSError, match=r".+"):
        drip_on(client, time.monotonic() + LONG_S)


def test_place_of_a_whole_request_is_not_taken(server: LimitedServer) -> None:
    answering, may_end = threading.Event(), threading.Event()

    class Slow(Answer):
        def do_GET(self) -> None:
            answering.set()
            assert may_end.wait(LONG_S)
            super().do_GET()

    server.RequestHandlerClass = Slow
    answers: list[int] = []
    slow = threading.Thread(target=lambda: answers.append(get(server.server_port, "/")[0]))
    slow.start()
    assert answering.wait(LONG_S)
    with pytest.raises(OSError, match=r".+"):
        get(server.server_port, "/")
    may_end.set()
    slow.join(LONG_S)
    assert answers == [200]


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1:9404", True),
        ("localhost", True),
        ("[::1]:80", True),
        ("rebound.example:9404", False),
        ("", False),
        ("localhost.", True),
        ("10.1.2.3:9090", False),
        ("[", False),
    ],
)
def test_names_of_this_machine(host: str, is_one: bool) -> None:
    assert names_loopback(host) is is_one


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


def test_interrupt_of_the_starter_of_a_thread_leaves_the_place_to_the_thread(
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
