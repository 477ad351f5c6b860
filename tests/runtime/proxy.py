"""A proxy in front of a real broker that is slow, or silent, or leads to another cluster."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.broker.kafka_jars import DEFAULT_VERSION
from spark_groups.broker.properties import LISTENER
from workshop.parts.brokers import ANSWER_S, admin

LISTENER_NAME = "PROXIED"


class Proxy:
    """Carries requests and answers, one at a time for each connection, as a broker takes them.

    Args:
        listening: Where clients connect.
    """

    def __init__(self, listening: socket.socket) -> None:
        self.delays_s: dict[int, float] = {}
        """API key to how long its answers are held back."""
        self.silent_once: set[int] = set()
        """API keys whose next request silences the connection it comes on, and no other."""
        self.silenced: list[int] = []
        """API keys of requests that silenced their connections."""
        self.before: dict[int, Callable[[], None]] = {}
        """API keys to what happens before their next request is passed on; once each."""
        self.seen: list[tuple[float, int]] = []
        """When which request came, by API key."""
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        """Where clients of the broker connect."""
        self._listening = listening
        self._target: tuple[str, int] | None = None
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def forward_to(self, address: str) -> None:
        """Say where the broker is; connections before that are refused."""
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))

    def switch_to(self, address: str) -> None:
        """Lead to another broker from now on, and hang up on everybody."""
        self.forward_to(address)
        self._hang_up()

    def longest_gap_s(self, api_key: int, since: float) -> float:
        """Return the longest time between two requests of a kind, up to now.

        Args:
            api_key: The kind.
            since: When to begin, on the monotonic clock.
        """
        times = [since, *(at for at, key in self.seen if key == api_key and at > since)]
        times.append(time.monotonic())
        return max(later - earlier for earlier, later in pairwise(times))

    def close(self) -> None:
        """Hang up on everybody."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._hang_up()

    def _hang_up(self) -> None:
        ended, self._open = self._open, []
        for each in ended:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if self._target is None:
                return
            with socket.create_connection(self._target, 60.0) as broker:
                broker.settimeout(None)
                self._open.append(broker)
                while (request := _frame(client)) is not None:
                    (api_key,) = struct.unpack(">h", request[:2])
                    self.seen.append((time.monotonic(), api_key))
                    if api_key in self.silent_once:
                        self.silent_once.discard(api_key)
                        self.silenced.append(api_key)
                        while client.recv(65536):
                            pass
                        return
                    self.before.pop(api_key, lambda: None)()
                    broker.sendall(struct.pack(">i", len(request)) + request)
                    answer = _frame(broker)
                    if answer is None:
                        return
                    threading.Event().wait(self.delays_s.get(api_key, 0.0))
                    client.sendall(struct.pack(">i", len(answer)) + answer)


def _frame(peer: socket.socket) -> bytes | None:
    head = _exactly(peer, 4)
    return None if head is None else _exactly(peer, struct.unpack(">i", head)[0])


def _exactly(peer: socket.socket, size: int) -> bytes | None:
    received = b""
    while len(received) < size:
        chunk = peer.recv(size - len(received))
        if not chunk:
            return None
        received += chunk
    return received


@contextlib.contextmanager
def proxied_kafka(
    server_properties: dict[str, str], version: str = DEFAULT_VERSION
) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """Run a broker that sends clients of the listener PROXIED through a proxy.

    Args:
        server_properties: Broker properties that override anything else.
        version: The release of Apache Kafka.
    """
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Proxy(listening)
        advertised = f"{LISTENER}://127.0.0.1:{port},{LISTENER_NAME}://{proxy.address}"
        try:
            with EmbeddedKafka(
                version,
                port=port,
                extra_listeners={LISTENER_NAME: "PLAINTEXT"},
                server_properties={"advertised.listeners": advertised, **server_properties},
            ) as kafka:
                proxy.forward_to(kafka.listener(LISTENER_NAME))
                yield kafka, proxy
        finally:
            proxy.close()


@dataclass(frozen=True)
class Switched:
    """Two clusters behind one address, which is also the one that both give to clients.

    Args:
        one: The cluster to which the address leads at first.
        other: The other one.
    """

    proxy: Proxy
    one: EmbeddedKafka
    other: EmbeddedKafka

    def lead_to(self, kafka: EmbeddedKafka) -> None:
        """Switch the address to a cluster; connections to the other one end."""
        self.proxy.switch_to(kafka.listener(LISTENER_NAME))

    def cluster_id(self, kafka: EmbeddedKafka) -> str:
        """Return the id that a cluster gave itself, as librdkafka reads it."""
        found = admin(kafka.bootstrap_servers).list_topics(timeout=ANSWER_S).cluster_id
        assert found
        return found


@contextlib.contextmanager
def switched_kafkas() -> Iterator[Switched]:
    """Run two clusters behind one proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Proxy(listening)
        try:
            one, other = (
                EmbeddedKafka(
                    extra_listeners={LISTENER_NAME: "PLAINTEXT"},
                    advertised={LISTENER_NAME: proxy.address},
                )
                for _ in range(2)
            )
            with one, other:
                switched = Switched(proxy, one, other)
                switched.lead_to(one)
                yield switched
        finally:
            proxy.close()
