"""The proxies on real sockets: an echo server stands for a broker."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workshop.chaos.faults.link import BLACKHOLE, WORKING, Condition, Passage, Slowness
from workshop.chaos.faults.proxy import HOST, Link, Proxies
from workshop.parts.waiting import wait_until

ANSWER_S = 300.0
NOTHING_S = 0.2
"""For how long nothing has to arrive: what arrives later is not seen, so no test fails for that."""
NO_ANSWERS = Condition(Passage.OPEN, Passage.HELD)
NO_REQUESTS = Condition(Passage.HELD, Passage.OPEN)
CUT = Condition(Passage.RESET, Passage.RESET)


class Echo:
    """A server that sends back what it gets, and keeps it."""

    def __init__(self) -> None:
        self.received = b""
        self.connections = 0
        self.ends = 0
        """How many connections were ended by the client."""
        self._listening = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Another thread still accepts: the port is closed when that one learns of it.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                pass
        self.ends += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def link(echo: Echo) -> Iterator[Link]:
    with Proxies(7) as proxies:
        made = proxies.link()
        made.forward_to(echo.address)
        yield made


def connected(link: Link) -> socket.socket:
    host, _, port = link.address.rpartition(":")
    return socket.create_connection((host, int(port)), ANSWER_S)


@contextmanager
def answered(link: Link) -> Iterator[socket.socket]:
    """Yield a connection on which one request was answered."""
    with connected(link) as client:
        client.sendall(b"before ")
        exactly(client, 7)
        yield client


def ask(link: Link) -> bytes:
    """Send a request on a new connection, and return the first byte of its answer."""
    with connected(link) as client:
        client.sendall(b"request")
        return client.recv(1)


def exactly(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        chunk = client.recv(65536)
        assert chunk, f"the connection ended after {len(found)} of {count} bytes"
        found += chunk
    return found


def is_silent(client: socket.socket) -> bool:
    client.settimeout(NOTHING_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(ANSWER_S)
    return False


def test_bytes_pass_in_order_and_both_ends_are_passed_on(link: Link, echo: Echo) -> None:
    sent = bytes(range(256)) * 4096
    with connected(link) as client:
        threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
        assert exactly(client, len(sent)) == sent
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    wait_until(lambda: echo.ends == 1, what="the end of the connection")


def test_answer_that_was_sent_before_the_end_is_not_lost(link: Link) -> None:
    sent = b"x" * 200_000
    with connected(link) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert exactly(client, len(sent)) == sent


def test_link_leads_elsewhere_and_old_connections_are_reset(link: Link, echo: Echo) -> None:
    other = Echo()
    with contextlib.closing(other), answered(link) as client:
        link.forward_to(other.address)
        with pytest.raises(ConnectionError):
            exactly(client, 1)
        assert ask(link) == b"r"
        assert (echo.connections, other.connections) == (1, 1)
        link.forward_to(echo.address)
        assert ask(link) == b"r"
        assert other.connections == 1


def test_cut_resets_old_and_new_connections(link: Link) -> None:
    with connected(link) as client:
        client.sendall(b"before")
        exactly(client, 6)
        link.put(CUT)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionResetError):
        ask(link)
    link.put(WORKING)
    with connected(link) as client:
        client.sendall(b"after")
        assert exactly(client, 5) == b"after"


def test_nothing_passes_a_blackhole_and_all_of_it_afterwards(link: Link, echo: Echo) -> None:
    with answered(link) as client:
        link.put(BLACKHOLE)
        client.sendall(b"during")
        assert is_silent(client)
        assert echo.received == b"before "
        link.put(WORKING)
        assert exactly(client, 6) == b"during"


def test_request_arrives_whose_sender_has_given_up(link: Link, echo: Echo) -> None:
    with answered(link) as client:
        link.put(BLACKHOLE)
        client.sendall(b"commit")
    assert (echo.received, echo.ends) == (b"before ", 0)
    link.put(WORKING)
    wait_until(lambda: echo.ends == 1, what="the end of the connection")
    assert echo.received == b"before commit"


def test_request_on_a_connection_that_never_came_about_does_not_arrive(
    link: Link, echo: Echo
) -> None:
    link.put(BLACKHOLE)
    with connected(link) as given_up:
        given_up.sendall(b"never")
    with connected(link) as client:
        client.sendall(b"late")
        assert is_silent(client)
        assert echo.connections == 0
        link.put(WORKING)
        assert exactly(client, 4) == b"late"
    wait_until(lambda: echo.ends == echo.connections == 1, what="the end of the connection")
    assert echo.received == b"late"


def test_answers_vanish_while_requests_arrive(link: Link, echo: Echo) -> None:
    with answered(link) as client:
        link.put(NO_ANSWERS)
        client.sendall(b"commit")
        wait_until(lambda: echo.received == b"before commit", what="the request")
        assert is_silent(client)
        link.put(WORKING)
        assert exactly(client, 6) == b"commit"


def test_requests_vanish_while_answers_arrive(link: Link, echo: Echo) -> None:
    with answered(link) as client:
        link.put(NO_ANSWERS)
        client.sendall(b"fetch ")
        wait_until(lambda: echo.received == b"before fetch ", what="the request")
        link.put(NO_REQUESTS)
        assert exactly(client, 6) == b"fetch "
        client.sendall(b"commit")
        assert is_silent(client)
        assert echo.received == b"before fetch "


def test_slow_link_takes_at_least_its_latency_each_way(link: Link) -> None:
    with connected(link) as client:
        link.put(Condition(Passage.SLOW, Passage.SLOW, Slowness(0.1, 0.0, 1e9)))
        began_s = time.monotonic()
        client.sendall(b"slow")
        assert exactly(client, 4) == b"slow"
        assert time.monotonic() - began_s >= 0.2


def test_end_of_slowness_lets_pass_what_would_have_been_late(link: Link) -> None:
    with connected(link) as client:
        link.put(Condition(Passage.SLOW, Passage.SLOW, Slowness(3600.0, 0.0, 1e9)))
        client.sendall(b"slow")
        assert is_silent(client)
        link.put(WORKING)
        assert exactly(client, 4) == b"slow"


def test_broker_that_is_down_refuses_its_clients(link: Link, echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionResetError):
        ask(link)


def test_connection_waits_until_there_is_a_broker(echo: Echo) -> None:
    with Proxies(7) as proxies:
        link = proxies.link()
        with connected(link) as client:
            client.sendall(b"early")
            assert is_silent(client)
            link.forward_to(echo.address)
            assert exactly(client, 5) == b"early"


def test_end_of_the_proxies_resets_all_connections(echo: Echo) -> None:
    with Proxies(7) as proxies:
        link = proxies.link()
        link.forward_to(echo.address)
        client = connected(link)
        client.sendall(b"x")
        exactly(client, 1)
    with client, pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(link)
