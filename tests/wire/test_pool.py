"""One connection for each address, opened when needed and replaced when dead."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import free_ports
from spark_groups.group.member.messages import Node
from spark_groups.wire import pool as pools
from spark_groups.wire.addresses import Address
from spark_groups.wire.connection import AdvertisedAddressError, RequestError
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import Timeouts
from tests.wire.listener import await_end, greet, listening, tell_cluster
from workshop.parts.waiting import LONG_S, SOON_S, wait_until


def stay(peer: socket.socket) -> None:
    greet(peer)
    tell_cluster(peer)
    await_end(peer)


@contextlib.contextmanager
def pool_of(*ports: int) -> Iterator[ConnectionPool]:
    pool = ConnectionPool(
        [Address("127.0.0.1", port) for port in ports],
        client_id="a-test",
        security=Security(),
        timeouts=Timeouts(request_s=LONG_S),
    )
    yield pool
    pool.close()


def within(seconds: float) -> float:
    return time.monotonic() + seconds


def test_an_open_connection_is_used_again() -> None:
    with listening(stay) as port, pool_of(port) as pool:
        first = pool.any(within(LONG_S))
        assert pool.any(within(LONG_S)) is first
        assert pool.to(Node(1, "127.0.0.1", port), within(LONG_S)) is first


def test_a_dead_connection_is_replaced() -> None:
    def hang_up_once(peer: socket.socket) -> None:
        greet(peer)
        tell_cluster(peer)
        if not greeted.is_set():
            greeted.set()
            return
        await_end(peer)

    greeted = threading.Event()
    with listening(hang_up_once) as port, pool_of(port) as pool:
        first = pool.any(within(LONG_S))
        wait_until(lambda: not first.is_usable())
        second = pool.any(within(LONG_S))
        assert second is not first
        assert second.is_usable()


def test_an_address_that_failed_is_tried_last() -> None:
    with listening(stay) as one, listening(stay) as other, pool_of(one, other) as pool:
        first = pool.any(within(LONG_S))
        assert first.address.port == one
        pool.failed(first.address)
        first.close()
        assert pool.any(within(LONG_S)).address.port == other


def test_a_node_is_tried_once() -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    with pool_of(port) as pool, pytest.raises(RequestError, match="refused"):
        pool.to(Node(1, "127.0.0.1", port), within(LONG_S))
    assert time.monotonic() - started < SOON_S


def test_brokers_that_are_gone_are_forgotten() -> None:
    with listening(stay) as one, listening(stay) as other, pool_of(one) as pool:
        node = Node(2, "127.0.0.1", other)
        pool.learn([node])
        connection = pool.to(node, within(LONG_S))
        pool.learn([])
        assert not connection.is_open
        assert pool.any(within(LONG_S)).address.port == one


def test_shutdown_ends_waiting_and_opening() -> None:
    (port,) = free_ports(1)
    with pool_of(port) as pool:
        timer = threading.Timer(0.1, pool.shutdown)
        timer.start()
        started = time.monotonic()
        with pytest.raises(RequestError, match=r"refused|shut down"):
            pool.any(within(LONG_S))
        assert time.monotonic() - started < SOON_S
        timer.join()
        assert not pool.pause(SOON_S, within(LONG_S))
        with pytest.raises(RequestError, match="shut down"):
            pool.to(Node(1, "127.0.0.1", port), within(LONG_S))


def test_connection_that_ended_before_it_was_used_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "SPARE_S", 0.0)
    opened: list[socket.socket] = []

    def hang_up_first(peer: socket.socket) -> None:
        opened.append(peer)
        greet(peer)
        tell_cluster(peer)
        if len(opened) > 1:
            await_end(peer)

    with listening(hang_up_first) as port, pool_of(port) as pool:
        node = Node(1, "127.0.0.1", port)
        with contextlib.suppress(RequestError):
            pool.to(node, within(LONG_S), wait_s=0.0)
        wait_until(lambda: opened and opened[0].fileno() < 0)
        assert pool.to(node, within(LONG_S)).is_usable()
        assert len(opened) == 2


def test_deadline_in_a_later_round_does_not_hide_why_an_address_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "LATE_S", LONG_S)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pool_of(closed.getsockname()[1]) as pool:
            pause = pool.pause
            # From the second round on the address accepts, and says nothing.
            monkeypatch.setattr(pool, "pause", lambda *given: (closed.listen(), pause(*given))[1])
            with pytest.raises(RequestError, match="refused"):
                pool.any(within(2.0))


def test_attempt_that_shutdown_cuts_short_fails_for_the_reason_of_the_one_before() -> None:
    hung = threading.Event()

    def hang(peer: socket.socket) -> None:
        hung.set()
        await_end(peer)

    with listening(stay) as port, socket.socket() as closed, pool_of(port) as pool:
        closed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        closed.bind(("127.0.0.1", 0))
        node = Node(1, "127.0.0.1", closed.getsockname()[1])
        with pytest.raises(AdvertisedAddressError, match="refused"):
            pool.to(node, within(LONG_S))
        closed.listen()
        accepting = threading.Thread(target=lambda: hang(closed.accept()[0]), daemon=True)
        accepting.start()
        ending = threading.Thread(target=lambda: (hung.wait(LONG_S), pool.shutdown()), daemon=True)
        ending.start()
        with pytest.raises(AdvertisedAddressError, match="refused"):
            pool.to(node, within(LONG_S))
        ending.join()
        accepting.join()
