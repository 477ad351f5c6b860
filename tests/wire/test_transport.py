"""Frames over TLS: shutting down, hanging up; tests/wire/test_connection.py has plain sockets."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_groups.errors import BrokerUnreachableError, ProtocolError
from spark_groups.wire.addresses import Address
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.transport import FrameBuffer, HungUpError, Transport
from tests.secured import issue
from tests.wire.listener import await_end, listening
from workshop.parts.waiting import LONG_S, SOON_S


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Security]:
    authority = issue("authority", is_authority=True)
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_text(issue("server", authority, hosts=("127.0.0.1",)).pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, Security("SSL", Tls(trusted_pem=authority.certificate_pem))


def encrypted(
    context: ssl.SSLContext, script: Callable[[ssl.SSLSocket], None]
) -> Callable[[socket.socket], None]:
    def run(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as secured:
            script(secured)

    return run


def test_frames_cross_and_tickets_are_no_frames(context) -> None:
    server, security = context

    def script(peer: ssl.SSLSocket) -> None:
        peer.sendall(peer.recv(100))
        await_end(peer)

    with listening(encrypted(server, script)) as port:
        transport = Transport(Address("127.0.0.1", port), security, 1000)
        deadline = time.monotonic() + LONG_S
        transport.open(deadline)
        transport.send(b"hello", deadline)
        assert transport.receive(deadline) == b"hello"
        assert transport.is_quiet()
        assert transport.is_quiet()
        transport.close()
        assert not transport.is_open


def test_a_shutdown_wakes_a_receiver_and_nothing_goes_out_in_the_open(context) -> None:
    server, security = context
    seen: list[bytes] = []

    def script(peer: ssl.SSLSocket) -> None:
        try:
            seen.append(peer.recv(100))
        except OSError:
            seen.append(b"")

    with listening(encrypted(server, script)) as port:
        transport = Transport(Address("127.0.0.1", port), security, 1000)
        transport.open(time.monotonic() + LONG_S)
        threading.Timer(0.1, transport.shutdown).start()
        began_at = time.monotonic()
        with pytest.raises(BrokerUnreachableError):
            transport.receive(time.monotonic() + LONG_S)
        assert time.monotonic() - began_at < SOON_S
        with pytest.raises(BrokerUnreachableError):
            transport.send(b"secret in the open", time.monotonic() + 1)
        transport.close()
    assert b"secret" not in b"".join(seen)


def test_who_hangs_up_during_the_handshake_says_nothing(context) -> None:
    _, security = context

    with listening(lambda peer: peer.recv(1)) as port:
        transport = Transport(Address("127.0.0.1", port), security, 1000)
        with pytest.raises(HungUpError, match=r"TLS handshake with 127\.0\.0\.1"):
            transport.open(time.monotonic() + LONG_S)
        transport.close()


def test_a_handshake_without_an_answer_ends_at_the_deadline(context) -> None:
    _, security = context
    with listening(await_end) as port:
        transport = Transport(Address("127.0.0.1", port), security, 1000)
        began_at = time.monotonic()
        with pytest.raises(BrokerUnreachableError, match="no answer in time"):
            transport.open(began_at + 0.3)
        assert time.monotonic() - began_at < SOON_S
        transport.close()


def test_a_peer_that_drips_a_large_frame_is_left_soon() -> None:
    announced_bytes = 50_000_000

    def drip(peer: socket.socket) -> None:
        peer.sendall(struct.pack(">i", announced_bytes))
        while True:
            peer.sendall(b".")
            time.sleep(0.05)

    with listening(drip) as port:
        transport = Transport(Address("127.0.0.1", port), Security(), 100_000_000)
        transport.open(time.monotonic() + LONG_S)
        transport.allow_full_frames()
        with pytest.raises(BrokerUnreachableError, match="of 50000000 bytes of a frame in"):
            transport.receive_into(FrameBuffer(1000), idle_s=0.5)
        transport.close()


def test_a_frame_that_comes_slowly_but_steadily_is_read() -> None:
    pieces = [b"x" * 200_000] * 4

    def steady(peer: socket.socket) -> None:
        peer.sendall(struct.pack(">i", sum(map(len, pieces))))
        for each in pieces:
            time.sleep(0.2)
            peer.sendall(each)

    with listening(steady) as port:
        transport = Transport(Address("127.0.0.1", port), Security(), 1_000_000)
        transport.open(time.monotonic() + LONG_S)
        frame = transport.receive_into(FrameBuffer(1000), idle_s=LONG_S)
        assert bytes(frame) == b"".join(pieces)
        transport.close()


@pytest.mark.parametrize("room", ["receive", "receive_into"])
def test_frames_are_short_until_the_peer_is_known(room: str) -> None:
    def twice(peer: socket.socket) -> None:
        for size in (900_000, 2_000_000):
            peer.sendall(struct.pack(">i", size) + bytes(size))
        await_end(peer)

    def read(transport: Transport) -> int:
        if room == "receive":
            return len(transport.receive(time.monotonic() + LONG_S))
        return len(transport.receive_into(FrameBuffer(1000), idle_s=LONG_S))

    with listening(twice, at_once=True) as port:
        for is_known in (False, True):
            transport = Transport(Address("127.0.0.1", port), Security(), 10_000_000)
            transport.open(time.monotonic() + LONG_S)
            assert read(transport) == 900_000
            if is_known:
                transport.allow_full_frames()
                assert read(transport) == 2_000_000
            else:
                with pytest.raises(ProtocolError, match="frame of 2000000 bytes"):
                    read(transport)
            transport.close()


def test_room_is_given_again() -> None:
    buffer = FrameBuffer(100)
    first = buffer.room(40)
    first[:] = b"x" * 40
    assert bytes(buffer.room(10)) == b"x" * 10
    assert len(first) == 40


def test_room_grows_and_a_view_that_is_out_stays_what_it_was() -> None:
    buffer = FrameBuffer(100)
    small = buffer.room(30)
    small[:] = b"s" * 30
    buffer.room(31)[:] = b"l" * 31
    assert bytes(small) == b"s" * 30
    # It grew by more than was requested, but not beyond the kept maximum.
    assert len(buffer._memory) == 60
    buffer.room(61)
    assert len(buffer._memory) == 100


def test_a_larger_frame_has_memory_of_its_own() -> None:
    buffer = FrameBuffer(100)
    buffer.room(100)
    assert len(buffer.room(1000)) == 1000
    assert len(buffer._memory) == 0
    assert len(buffer.room(5)) == 5
