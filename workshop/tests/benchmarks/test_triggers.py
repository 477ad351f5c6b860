"""The next source of a benchmark begins once the connections of the one before are closed."""

from __future__ import annotations

import socket

from workshop.benchmarks.triggers import connections


def test_connections_to_a_broker_are_counted_until_they_are_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        servers = f"127.0.0.1:{listening.getsockname()[1]}"
        assert connections(servers) == 0
        with socket.create_connection(listening.getsockname()):
            assert connections(servers) == 1
        assert connections(servers) == 0
