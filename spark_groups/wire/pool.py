"""Connections to the brokers of one cluster: at most one for each address."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

from spark_groups.errors import ProtocolError
from spark_groups.protocol.messages import Node
from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import (
    MAX_FRAME_BYTES,
    AnotherClusterError,
    Connection,
    RequestError,
)
from spark_groups.wire.security.security import Security

_PAUSE_BETWEEN_ROUNDS_S: Final = 0.1


class ConnectionPool:
    """Opens connections on demand and keeps them; used by one thread.

    Args:
        bootstrap_servers: The first addresses to try.
        client_id: Appears in the brokers' logs and quotas.
        connect_timeout_s: For one attempt to connect.
        identity: The cluster, shared with other connections to it; None: the first one met.
        max_frame_bytes: The longest response that is accepted.
        receive_buffer_bytes: The sockets' receive buffer; None for the system's default.
    """

    def __init__(
        self,
        bootstrap_servers: Iterable[Address],
        *,
        client_id: str,
        security: Security,
        connect_timeout_s: float,
        identity: ClusterIdentity | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._bootstrap = list(bootstrap_servers)
        # The next address to try comes first: one that failed goes to the end.
        self._rotation = list(self._bootstrap)
        self._client_id = client_id
        self._security = security
        self._connect_timeout_s = connect_timeout_s
        self._identity = identity or ClusterIdentity()
        self._max_frame_bytes = max_frame_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._connections: dict[Address, Connection] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def learn(self, nodes: Iterable[Node]) -> None:
        """Store the live brokers, and drop connections to others."""
        alive = [Address(each.host, each.port) for each in nodes]
        known = dict.fromkeys((*alive, *self._bootstrap))
        self._rotation = [each for each in self._rotation if each in known]
        self._rotation += [each for each in known if each not in self._rotation]
        for address in [each for each in self._connections if each not in known]:
            self._drop(address)

    def any(self, deadline: float) -> Connection:
        """Return a connection to any broker, preferably an open one.

        Args:
            deadline: Monotonic seconds; until then every address is retried.

        Raises:
            RequestError: No address could be reached; lists all with their reasons.
            AnotherClusterError: All addresses lead to other clusters.
            ProtocolError: No address is a Kafka broker.
        """
        for address in self._rotation:
            connection = self._connections.get(address)
            if connection is not None and connection.is_usable():
                return connection
        while True:
            reasons: list[RequestError | ProtocolError] = []
            for address in list(self._rotation):
                opened = self._try_to_open(address, deadline)
                if isinstance(opened, Connection):
                    return opened
                reasons.append(opened)
            for final in (ProtocolError, AnotherClusterError):
                if all(isinstance(each, final) for each in reasons):
                    raise reasons[0]
            if not self.pause(_PAUSE_BETWEEN_ROUNDS_S, deadline):
                listed = "; ".join(str(each) for each in reasons)
                raise RequestError(f"no broker answered: {listed}", may_have_arrived=False)

    def to(self, node: Node, deadline: float) -> Connection:
        """Return a connection to one broker, after at most one attempt to connect.

        Args:
            deadline: Monotonic seconds.

        Raises:
            RequestError: The broker cannot be reached.
            ProtocolError: The peer is not a Kafka broker.
        """
        address = Address(node.host, node.port)
        connection = self._connections.get(address)
        if connection is not None and connection.is_usable():
            return connection
        return self._open(address, deadline)

    def failed(self, address: Address) -> None:
        """Try this address last from now on."""
        if address in self._rotation:
            self._rotation.remove(address)
            self._rotation.append(address)

    def pause(self, seconds: float, deadline: float) -> bool:
        """Wait before a retry, and return whether there is time for one.

        Args:
            seconds: How long to wait; `shutdown` ends it at once.
            deadline: Monotonic seconds.
        """
        left_s = deadline - time.monotonic()
        return not self._stopped.wait(max(0.0, min(seconds, left_s))) and left_s > seconds

    def _try_to_open(
        self, address: Address, deadline: float
    ) -> Connection | RequestError | ProtocolError:
        try:
            return self._open(address, deadline)
        except (RequestError, ProtocolError) as error:
            self.failed(address)
            return error

    def _open(self, address: Address, deadline: float) -> Connection:
        self._drop(address)
        connection = Connection(
            address.host,
            address.port,
            client_id=self._client_id,
            security=self._security,
            identity=self._identity,
            max_frame_bytes=self._max_frame_bytes,
            receive_buffer_bytes=self._receive_buffer_bytes,
        )
        with self._lock:
            if self._stopped.is_set():
                raise RequestError("the client was shut down", may_have_arrived=False)
            self._connections[address] = connection
        allowed_s = self._connect_timeout_s + self._security.handshake_s
        connection.connect(min(allowed_s, deadline - time.monotonic()))
        return connection

    def _drop(self, address: Address) -> None:
        with self._lock:
            connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections; only for the thread that uses the pool."""
        for address in list(self._connections):
            self._drop(address)

    def shutdown(self) -> None:
        """Make the current call and all later ones fail at once; for any thread."""
        with self._lock:
            self._stopped.set()
            for connection in self._connections.values():
                connection.shutdown()
