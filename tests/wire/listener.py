"""Small listeners that misbehave in one way each."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from spark_groups.wire.schemas.codec import decode_start, encode
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V4,
    METADATA,
    REQUEST_HEADER_V2,
    Message,
)
from workshop.parts.waiting import LONG_S

Script = Callable[[socket.socket], None]
"""What a listener does with each connection, after which it closes it."""

ALL_APIS = tuple(
    {"api_key": key, "min_version": 0, "max_version": 20} for key in (2, 3, 8, 9, 10, 16, 68, 69)
)


@contextlib.contextmanager
def listening(script: Script, *, at_once: bool = False) -> Iterator[int]:
    """Run a script for every connection to a free port, in turn or at once; yield the port."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                accepted.append(peer)
                if at_once:
                    threading.Thread(target=run, args=(peer,), daemon=True).start()
                else:
                    run(peer)

        def run(peer: socket.socket) -> None:
            with contextlib.suppress(OSError), peer:
                script(peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            for peer in accepted:
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_RDWR)
    thread.join(LONG_S)
    assert not thread.is_alive()


def read_frame(peer: socket.socket) -> bytes:
    """Read one frame of a request; no bytes at the end of the stream."""
    stream = peer.makefile("rb")
    head = stream.read(4)
    return stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""


def correlation_id(frame: bytes) -> int:
    return int(decode_start(REQUEST_HEADER_V2, frame)[0]["correlation_id"])


def response(message: Message, correlation: int, values: dict) -> bytes:
    """Build the frame of a response."""
    header = encode(message.response_header, {"correlation_id": correlation})
    body = header + encode(message.response, values)
    return struct.pack(">i", len(body)) + body


def greet(peer: socket.socket, api_keys: tuple[dict[str, int], ...] = ALL_APIS) -> None:
    """Answer ApiVersions as a broker does."""
    asked = read_frame(peer)
    values = {"error_code": 0, "api_keys": api_keys, "throttle_time_ms": 0}
    peer.sendall(response(API_VERSIONS_V4, correlation_id(asked), values))


def tell_cluster(peer: socket.socket, cluster_id: str | None = None) -> None:
    """Answer the question of each new connection for the cluster, as a broker does."""
    asked = read_frame(peer)
    values = {
        "throttle_time_ms": 0,
        "brokers": (),
        "cluster_id": cluster_id,
        "controller_id": 1,
        "topics": (),
    }
    peer.sendall(response(METADATA, correlation_id(asked), values))


def await_end(peer: socket.socket) -> None:
    """Say nothing until the other side hangs up."""
    while peer.recv(65536):
        pass
