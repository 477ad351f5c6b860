"""Addresses, and brokers of which some know or can less than others."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.cli.doctor_cli import Outcome, check_brokers
from spark_groups.errors import AccessError
from spark_groups.group.member.messages import DescribeGroupRequest, FindCoordinatorRequest
from spark_groups.wire import addresses
from spark_groups.wire.addresses import REACHED, Address, ReachedTargets
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import ADVERTISED, AdvertisedAddressError, RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.schemas.wire_messages import FIND_COORDINATOR, METADATA
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.transport import Transport
from tests.cli.commands import Run
from tests.secured import SecuredKafka
from tests.wire.coordinator_connection_setup import coordinator
from tests.wire.listener import (
    correlation_id,
    greet,
    listening,
    read_frame,
    response,
    tell_cluster,
)
from workshop.parts.waiting import LONG_S


def test_names_have_no_case() -> None:
    assert Address("Kafka-1.Example", 9092) == Address("kafka-1.example", 9092)
    assert str(Address("fe80::1%Eth0", 9092)) == "[fe80::1%Eth0]:9092"


def test_socket_address_that_answered_is_tried_first_next_time() -> None:
    reached = ReachedTargets()
    broker = Address("kafka", 9092)
    targets = tuple((socket.AF_INET, (f"10.0.0.{each}", 9092)) for each in range(3))
    assert reached.first(broker, targets) == targets
    reached.reached(broker, targets[2])
    assert reached.first(broker, targets) == (targets[2], targets[0], targets[1])
    assert reached.first(broker, targets[:2]) == targets[:2]


def test_dead_first_address_of_a_host_costs_little_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        port = server.getsockname()[1]
        # Of TEST-NET-1: packets to it are lost, or refused at once where there is no route.
        targets = tuple((socket.AF_INET, (host, port)) for host in ("192.0.2.1", "127.0.0.1"))
        monkeypatch.setattr(addresses, "_look_up", lambda *_: targets)
        broker = Address(f"two-addresses-{port}", port)
        for _ in range(2):
            transport = Transport(broker, Security(), 1_000)
            transport.open(time.monotonic() + LONG_S)
            transport.close()
        assert REACHED.first(broker, targets)[0] == targets[1]


def test_broker_that_lacks_a_topic_is_not_the_only_one_that_is_asked() -> None:
    asked: list[str] = []

    def lacking(peer: socket.socket, name: str) -> None:
        greet(peer)
        tell_cluster(peer, "one")
        while True:
            frame = read_frame(peer)
            if not frame:
                return
            asked.append(name)
            values = {
                "throttle_time_ms": 0,
                "brokers": (
                    {"node_id": 1, "host": "127.0.0.1", "port": ports[0], "rack": None},
                    {"node_id": 2, "host": "127.0.0.1", "port": ports[1], "rack": None},
                ),
                "cluster_id": "one",
                "controller_id": 1,
                "topics": (),
            }
            peer.sendall(response(METADATA, correlation_id(frame), values))

    with (
        listening(lambda peer: lacking(peer, "first")) as first,
        listening(lambda peer: lacking(peer, "second")) as second,
    ):
        ports = [first, second]
        with Cluster(f"127.0.0.1:{first}", request_timeout_s=LONG_S) as cluster:
            for _ in range(3):
                assert not cluster.topics({"t"}).topics
    assert asked == ["first", "second", "first"]


@pytest.mark.broker
def test_bootstrap_address_with_a_bad_certificate_stops_no_client_while_another_works(
    secured: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = secured.kafka.listener("OTHERHOST"), secured.kafka.listener("TLS")
    security = security_of(secured.tls(), prefix="")
    with caplog.at_level(logging.WARNING), Cluster(f"{bad},{good}", security=security) as cluster:
        assert cluster.nodes()
    (warning,) = [each.getMessage() for each in caplog.records if bad in each.getMessage()]
    assert "does not name this host" in warning
    with (
        Cluster(bad, security=security) as cluster,
        pytest.raises(AccessError, match="does not name this host"),
    ):
        cluster.nodes()


@pytest.mark.broker
def test_final_dot_of_a_host_name_is_not_in_its_certificate(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = secured.kafka.listener("TLS").rpartition(":")[2]
    targets = ((socket.AF_INET, ("127.0.0.1", int(port))),)
    monkeypatch.setattr(addresses, "_look_up", lambda *_: targets)
    security = security_of(secured.tls(), prefix="")
    with Cluster(f"localhost.:{port}", security=security) as cluster:
        assert cluster.nodes()


@pytest.fixture(scope="module", params=["broker-1.invalid:9092", "127.0.0.1:1"])
def astray(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An address of a broker, and the one that the broker gives, which leads nowhere."""
    given = str(request.param)
    with EmbeddedKafka(extra_listeners={"OUT": "PLAINTEXT"}, advertised={"OUT": given}) as kafka:
        with Cluster(kafka.bootstrap_servers) as cluster:
            # A new broker has a coordinator only once its log of offsets is made.
            coordinator(cluster, "g")
        yield kafka.listener("OUT"), given


@pytest.mark.broker
@pytest.mark.parametrize(
    "words", [("describe", "g"), ("preflight", "g"), ("groups",), ("lag", "g"), ("delete", "g")]
)
def test_command_names_the_advertised_address_that_leads_nowhere(
    astray: tuple[str, str], command: Run, words: tuple[str, ...]
) -> None:
    servers, given = astray
    done = command(*words, "--bootstrap-server", servers, "--timeout", "6")
    assert done.returncode == 1
    assert given in done.stderr + done.stdout
    assert ADVERTISED in done.stderr + done.stdout


@pytest.mark.broker
def test_doctor_advises_on_the_advertised_address(astray: tuple[str, str]) -> None:
    servers, given = astray
    with Cluster(servers, request_timeout_s=6.0) as cluster:
        check = check_brokers(cluster, servers)
    assert check.outcome is Outcome.FAILED
    assert given in check.found
    assert "advertised.listeners" in check.cure
    assert "--command-config" not in check.cure


def test_deadline_in_a_later_attempt_does_not_hide_the_address_that_leads_nowhere() -> None:
    (nowhere,) = free_ports(1)
    answers = iter([{"node_id": 1, "host": "127.0.0.1", "port": nowhere}])

    def script(peer: socket.socket) -> None:
        greet(peer)
        tell_cluster(peer, "one")
        while frame := read_frame(peer):
            for node in answers:
                found = {"key": "g", "error_code": 0, "error_message": None, **node}
                values = {"throttle_time_ms": 0, "coordinators": (found,)}
                peer.sendall(response(FIND_COORDINATOR, correlation_id(frame), values))
                break

    with (
        listening(script) as port,
        Cluster(f"127.0.0.1:{port}", request_timeout_s=2.9) as cluster,
        pytest.raises(AdvertisedAddressError, match=f"127.0.0.1:{nowhere}"),
    ):
        cluster.describe_group(DescribeGroupRequest(group_id="g"))


@pytest.mark.broker
def test_members_connection_names_the_advertised_address(astray: tuple[str, str]) -> None:
    servers, given = astray
    with Cluster(servers, request_timeout_s=LONG_S) as cluster:
        found = cluster.find_coordinator(FindCoordinatorRequest(group_id="g"))
    assert found.coordinator is not None
    connection = CoordinatorConnection()
    request = DescribeGroupRequest(group_id="g")
    with pytest.raises(AdvertisedAddressError, match=re.escape(given)):
        connection.send(found.coordinator, request, LONG_S)
    connection.close()


@pytest.mark.broker
def test_address_that_was_reached_before_is_not_called_wrong(topic_name: str) -> None:
    """A broker that stops is no fault of its advertised.listeners."""
    port = free_ports(1)[0]
    with EmbeddedKafka(
        extra_listeners={"OUT": "PLAINTEXT"},
        listener_ports={"OUT": port},
        advertised={"OUT": f"localhost:{port}"},
    ) as kafka:
        cluster = Cluster(kafka.listener("OUT"), request_timeout_s=10.0)
        cluster.list_groups()
        kafka.kill()
        with pytest.raises(RequestError, match="localhost") as caught:
            cluster.list_groups()
        cluster.close()
    assert ADVERTISED not in str(caught.value)
