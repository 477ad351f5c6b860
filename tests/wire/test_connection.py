"""The connection, against a real broker and against listeners that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
import time
import tracemalloc

import pytest

from spark_groups.broker.embedded import free_ports
from spark_groups.errors import AccessError, ProtocolError
from spark_groups.wire.connection import ApiVersions, Connection, RequestError
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V0,
    API_VERSIONS_V3,
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT_V9,
    OFFSET_COMMIT_V10,
)
from spark_groups.wire.topic_metadata import metadata_from_wire, metadata_to_wire
from tests.wire.listener import (
    await_end,
    correlation_id,
    greet,
    listening,
    read_frame,
    response,
)
from workshop.parts.waiting import LONG_S, SOON_S

EVERY_GROUP = {"states_filter": (), "types_filter": ()}
NO_GROUPS = {"throttle_time_ms": 0, "error_code": 0, "groups": ()}


def connected(port: int, **options) -> Connection:
    connection = Connection("127.0.0.1", port, **options)
    connection.connect(LONG_S)
    return connection


def fails_soon(call, kind=RequestError, says: str | None = None) -> Exception:
    started = time.monotonic()
    with pytest.raises(kind, match=says) as raised:
        call()
    assert time.monotonic() - started < SOON_S
    return raised.value


@pytest.mark.broker
def test_a_real_broker_tells_its_versions_and_answers(kafka) -> None:
    host, port = kafka.bootstrap_servers.split(":")
    connection = Connection(host, int(port))
    connection.connect(LONG_S)
    try:
        assert connection.supports(CONSUMER_GROUP_HEARTBEAT)
        assert connection.supports(OFFSET_COMMIT_V10)
        assert connection.is_usable()
        for _ in range(3):
            values = connection.request(METADATA, metadata_to_wire(), LONG_S)
        nodes = metadata_from_wire(values).nodes
        assert [(each.host, each.port) for each in nodes.values()] == [(host, int(port))]
    finally:
        connection.close()
    assert not connection.is_usable()


@pytest.mark.broker
def test_a_broker_that_stops_ends_the_request_at_its_deadline(kafka) -> None:
    host, port = kafka.bootstrap_servers.split(":")
    connection = Connection(host, int(port))
    connection.connect(LONG_S)
    kafka.pause()
    try:
        started = time.monotonic()
        failed = fails_soon(
            lambda: connection.request(METADATA, metadata_to_wire(), 0.5), says="in time"
        )
        assert time.monotonic() - started >= 0.5
        assert failed.may_have_arrived
        assert not connection.is_usable()
    finally:
        kafka.resume()
        connection.close()


def test_refused_connection_is_reported() -> None:
    (port,) = free_ports(1)
    failed = fails_soon(lambda: connected(port), says=f"127.0.0.1:{port}.*refused")
    assert not failed.may_have_arrived
    assert failed.as_failure().reason == str(failed)
    assert failed.as_failure().may_have_arrived is False


def test_a_listener_that_never_answers_ends_at_the_deadline() -> None:
    with listening(await_end) as port:
        connection = Connection("127.0.0.1", port)
        failed = fails_soon(lambda: connection.connect(0.3), says=f"{port}: no answer in time")
        assert not failed.may_have_arrived
        assert not connection.is_open


def test_an_address_that_swallows_packets_ends_at_the_deadline() -> None:
    # A listener whose queue is full drops what asks for a connection.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        try:
            fails_soon(lambda: Connection("127.0.0.1", port).connect(0.4))
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x50", AccessError, "TLS alert: it is a TLS listener"),
        (b"\x16\x03\x03\x00\x02\x02\x50", ProtocolError, "TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError, "HTTP answer.*not a Kafka"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ProtocolError, "SSH greeting"),
        (b"\x7f\xff\xff\xff", ProtocolError, "a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", ProtocolError, "a frame of -1 bytes"),
        (b"\x00\x00\x00\x03abc", ProtocolError, "a frame of 3 bytes"),
        (b"\x00\x00\x00\x09\x00\x00", RequestError, "it closed the connection"),
        (b"", RequestError, "closed the connection at once: is this a PLAINTEXT"),
        (struct.pack(">iih", 6, 1, 99), ProtocolError, "cannot be read"),
        (struct.pack(">iihB", 7, 1, 0, 200), ProtocolError, "cannot be read"),
    ],
)
def test_a_peer_that_is_no_kafka_broker_is_named(answer: bytes, kind: type, says: str) -> None:
    def script(peer: socket.socket) -> None:
        read_frame(peer)
        peer.sendall(answer)

    with listening(script) as port:
        connection = Connection("127.0.0.1", port)
        failed = fails_soon(lambda: connection.connect(LONG_S), kind, says)
        assert f"127.0.0.1:{port}" in str(failed)
        assert not connection.is_open


def test_a_long_frame_before_the_login_is_refused() -> None:
    def script(peer: socket.socket) -> None:
        read_frame(peer)
        peer.sendall(struct.pack(">i", 30 * 1024 * 1024) + b"x")
        await_end(peer)

    with listening(script) as port:
        connection = Connection("127.0.0.1", port)
        says = "frame of 31457280 bytes"
        fails_soon(lambda: connection.connect(LONG_S), kind=ProtocolError, says=says)


def test_a_long_frame_that_never_comes_allocates_nothing() -> None:
    def script(peer: socket.socket) -> None:
        greet(peer)
        read_frame(peer)
        peer.sendall(struct.pack(">i", 30 * 1024 * 1024) + b"x")
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        tracemalloc.start()
        try:
            fails_soon(lambda: connection.request(LIST_GROUPS, EVERY_GROUP, 0.3), says="in time")
            assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
        finally:
            tracemalloc.stop()


def test_a_connection_that_closes_inside_a_frame() -> None:
    def script(peer: socket.socket) -> None:
        greet(peer)
        read_frame(peer)
        peer.sendall(struct.pack(">i", 100) + b"half")

    with listening(script) as port:
        connection = connected(port)
        failed = fails_soon(
            lambda: connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S),
            says=f"ListGroups v5 to 127.0.0.1:{port}: it closed the connection",
        )
        assert failed.may_have_arrived
        assert not connection.is_open


def test_a_response_to_another_request_closes_the_connection() -> None:
    def script(peer: socket.socket) -> None:
        greet(peer)
        asked = read_frame(peer)
        peer.sendall(response(LIST_GROUPS, correlation_id(asked) + 7, NO_GROUPS))
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        fails_soon(
            lambda: connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S),
            ProtocolError,
            r"answered request 9, but ListGroups v5 was request 2",
        )
        assert not connection.is_open


def test_a_frame_above_the_limit_is_refused() -> None:
    def script(peer: socket.socket) -> None:
        greet(peer)
        asked = read_frame(peer)
        group = dict.fromkeys(("group_id", "protocol_type", "group_state", "group_type"), "x" * 99)
        values = {**NO_GROUPS, "groups": (group,) * 5}
        peer.sendall(response(LIST_GROUPS, correlation_id(asked), values))
        await_end(peer)

    with listening(script) as port:
        connection = connected(port, max_frame_bytes=1000)
        fails_soon(
            lambda: connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S),
            ProtocolError,
            "the limit is 1000 bytes",
        )


def test_a_broker_that_hung_up_is_noticed_before_a_request() -> None:
    hung_up = threading.Event()

    def script(peer: socket.socket) -> None:
        greet(peer)
        peer.shutdown(socket.SHUT_RDWR)
        hung_up.set()

    with listening(script) as port:
        connection = connected(port)
        assert hung_up.wait(LONG_S)
        assert not connection.is_usable()
        connection.close()
        failed = fails_soon(lambda: connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S))
        assert not failed.may_have_arrived


def test_one_request_is_in_flight_at_a_time() -> None:
    def script(peer: socket.socket) -> None:
        greet(peer)
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        connection.send(LIST_GROUPS, EVERY_GROUP, LONG_S)
        assert not connection.is_usable()
        with pytest.raises(ProtocolError, match="already in flight"):
            connection.send(LIST_GROUPS, EVERY_GROUP, LONG_S)
        connection.close()
        with pytest.raises(ProtocolError, match="no request"):
            connection.receive()


def test_a_request_after_its_deadline_is_not_sent() -> None:
    def script(peer: socket.socket) -> None:
        greet(peer)
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        failed = fails_soon(lambda: connection.request(LIST_GROUPS, EVERY_GROUP, 0.0))
        assert not failed.may_have_arrived
        connection.close()


def test_shutdown_wakes_a_blocked_request() -> None:
    asked = threading.Event()

    def script(peer: socket.socket) -> None:
        greet(peer)
        read_frame(peer)
        asked.set()
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        waker = threading.Thread(target=lambda: asked.wait(LONG_S) and connection.shutdown())
        waker.start()
        failed = fails_soon(
            lambda: connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S), says="shut down"
        )
        waker.join()
        assert failed.may_have_arrived
        failed = fails_soon(lambda: connection.connect(LONG_S), says="shut down")
        assert not failed.may_have_arrived


def test_shutdown_wakes_a_blocked_connect() -> None:
    connecting = threading.Event()

    def script(peer: socket.socket) -> None:
        read_frame(peer)
        connecting.set()
        await_end(peer)

    with listening(script) as port:
        connection = Connection("127.0.0.1", port)
        waker = threading.Thread(target=lambda: connecting.wait(LONG_S) and connection.shutdown())
        waker.start()
        fails_soon(lambda: connection.connect(LONG_S), says="shut down")
        waker.join()


def test_a_version_the_broker_lacks_is_not_sent() -> None:
    old = ({"api_key": 16, "min_version": 0, "max_version": 4},)

    def script(peer: socket.socket) -> None:
        greet(peer, old)
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        with pytest.raises(ProtocolError, match="not support ListGroups v5, only v0 to v4"):
            connection.request(LIST_GROUPS, EVERY_GROUP, LONG_S)
        with pytest.raises(ProtocolError, match="not support FindCoordinator v4, only no version"):
            connection.request(FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ()}, LONG_S)
        assert connection.is_usable()
        connection.close()


@pytest.mark.parametrize("fallback", [API_VERSIONS_V3, API_VERSIONS_V0], ids=str)
def test_an_older_broker_is_asked_again_in_its_own_version(fallback) -> None:
    own = ({"api_key": 18, "min_version": 0, "max_version": fallback.version},)
    seen: list[int] = []

    def script(peer: socket.socket) -> None:
        for message, error_code in ((API_VERSIONS_V0, 35), (fallback, 0)):
            asked = read_frame(peer)
            seen.append(struct.unpack_from(">hh", asked)[1])
            values = {"error_code": error_code, "api_keys": own, "throttle_time_ms": 0}
            correlation = struct.unpack_from(">hhi", asked)[2]
            peer.sendall(response(message, correlation, values))
        await_end(peer)

    with listening(script) as port:
        connection = connected(port)
        assert seen == [4, fallback.version]
        assert connection.supports(fallback)
        connection.close()


def test_an_error_of_api_versions_is_named() -> None:
    def script(peer: socket.socket) -> None:
        asked = read_frame(peer)
        peer.sendall(struct.pack(">iihBiB", 12, correlation_id(asked), 31, 1, 0, 0))

    with listening(script) as port, pytest.raises(ProtocolError, match="CLUSTER_AUTHORIZATION"):
        Connection("127.0.0.1", port).connect(LONG_S)


def test_reads_versions() -> None:
    versions = ApiVersions.of({"api_keys": ({"api_key": 8, "min_version": 2, "max_version": 9},)})
    assert versions.supports(OFFSET_COMMIT_V9)
    assert not versions.supports(OFFSET_COMMIT_V10)
    assert versions.text(OFFSET_COMMIT_V10) == "v2 to v9"


def test_no_version_is_supported_before_api_versions_arrive() -> None:
    assert not ApiVersions().supports(OFFSET_COMMIT_V9)
    assert ApiVersions().text(OFFSET_COMMIT_V9) == "no version"
