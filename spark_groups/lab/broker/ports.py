"""Ports of the embedded broker: free ones, taken ones, and whether Kafka answers on one."""

from __future__ import annotations

import contextlib
import socket
import struct

from spark_groups.errors import EmbeddedKafkaError

HOST = "127.0.0.1"
_METADATA_V1 = struct.pack(">hhihi", 3, 1, 1, -1, 0)
"""Metadata v1, correlation id 1, no client id, no topics. Source: MetadataRequest.json."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on at this moment.

    Args:
        count: How many, all different.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def check_port(port: int) -> None:
    """Check that a port can be listened on.

    Args:
        port: The port, on 127.0.0.1.

    Raises:
        EmbeddedKafkaError: It is taken, or not allowed.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        raise EmbeddedKafkaError(
            f"port {port} of {HOST} cannot be listened on ({error}): end what uses it, or choose"
            " another port"
        ) from error


def answers(port: int, timeout_s: float = 2.0) -> bool:
    """Tell whether a broker answers on a plaintext port and is ready for work.

    A broker takes requests a little before the controller lets it lead partitions. Until then its
    own metadata does not list it.

    Args:
        port: The port, on 127.0.0.1.
        timeout_s: How long to wait for the answer.
    """
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_METADATA_V1)) + _METADATA_V1)
            head = b""
            while len(head) < 12:
                received = connection.recv(12 - len(head))
                if not received:
                    return False
                head += received
    except OSError:
        return False
    _, correlation_id, brokers = struct.unpack(">iii", head)
    return bool(correlation_id == 1 and brokers > 0)
