"""Ports that are free, taken, silent or answered by something else."""

from __future__ import annotations

import socket
import threading

import pytest

from spark_groups.errors import EmbeddedKafkaError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.lab.broker.ports import answers, check_port, free_ports


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        check_port(port)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} .*choose another port"):
            check_port(port)


def test_a_port_that_does_not_exist_is_named() -> None:
    with pytest.raises(EmbeddedKafkaError, match="port 70000"):
        check_port(70000)


def test_nobody_answers_on_a_free_port() -> None:
    assert not answers(free_ports(1)[0])


def test_a_silent_port_does_not_answer_within_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not answers(server.getsockname()[1], timeout_s=0.1)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 12])
def test_what_is_no_broker_does_not_count(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        assert not answers(server.getsockname()[1], timeout_s=5.0)
        thread.join(5)


@pytest.mark.broker
def test_a_broker_answers(kafka: EmbeddedKafka) -> None:
    assert answers(int(kafka.bootstrap_servers.rpartition(":")[2]))
