"""Connections stay in their cluster, also when an address leads elsewhere."""

from __future__ import annotations

import logging
import queue
import socket
import time

import pytest

from spark_groups.broker.embedded import free_ports
from spark_groups.group.member.messages import FindCoordinatorRequest, Node
from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import AnotherClusterError, Connection, RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import Timeouts
from tests.runtime.proxy import Switched
from tests.wire.listener import greet, listening, read_frame, tell_cluster
from workshop.parts.waiting import LONG_S

ADDRESS = Address("kafka", 9092)


def pool_of(*ports: int, identity: ClusterIdentity | None = None) -> ConnectionPool:
    return ConnectionPool(
        [Address("127.0.0.1", each) for each in ports],
        client_id="a-test",
        security=Security(),
        timeouts=Timeouts(request_s=LONG_S),
        identity=identity,
    )


def within(seconds: float) -> float:
    return time.monotonic() + seconds


def test_the_first_cluster_met_is_the_only_one_that_is_accepted() -> None:
    identity = ClusterIdentity()
    assert not identity.is_met
    assert identity.refusal(ADDRESS, "A") is None
    refused = identity.refusal(ADDRESS, "B")
    assert refused is not None
    assert "kafka:9092 leads to the Kafka cluster B, not to A" in refused
    assert identity.refusal(ADDRESS, "A") is None
    assert identity.is_met
    assert identity.cluster_id == "A"


def test_the_cluster_of_a_checkpoint_is_known_before_any_is_met() -> None:
    identity = ClusterIdentity()
    identity.expect(None)
    identity.expect("A")
    assert identity.refusal(ADDRESS, "B") is not None
    assert not identity.is_met


def test_brokers_that_report_no_id_are_accepted_and_say_nothing_about_others() -> None:
    identity = ClusterIdentity("A")
    assert identity.refusal(ADDRESS, None) is None
    assert not identity.is_met
    assert identity.refusal(ADDRESS, "B") is not None
    unknown = ClusterIdentity()
    assert unknown.refusal(ADDRESS, None) is None
    assert unknown.cluster_id is None


def test_each_change_is_logged_once_with_both_ids(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    identity = ClusterIdentity("A")
    for found in ("B", "B", None, "B", "A", "A", "B"):
        identity.refusal(ADDRESS, found)
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert "leads to the Kafka cluster B, not to A" in caplog.text
    assert "leads to the Kafka cluster A again" in caplog.text


def test_nothing_else_is_sent_to_another_cluster() -> None:
    rest: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def script(peer: socket.socket) -> None:
        greet(peer)
        tell_cluster(peer, "B")
        rest.put(read_frame(peer))

    with listening(script) as port:
        node = Node(1, "127.0.0.1", port)
        connection = CoordinatorConnection(identity=ClusterIdentity("A"))
        with pytest.raises(AnotherClusterError, match="cluster B, not to A") as raised:
            connection.send(node, FindCoordinatorRequest(group_id="g"), LONG_S)
        assert not raised.value.may_have_arrived
        assert rest.get(timeout=LONG_S) == b""


def test_an_address_that_leads_to_the_cluster_is_found_among_others() -> None:
    def of(cluster_id: str):
        def script(peer: socket.socket) -> None:
            greet(peer)
            tell_cluster(peer, cluster_id)
            read_frame(peer)

        return script

    with listening(of("B")) as wrong, listening(of("A")) as right:
        pool = pool_of(wrong, right, identity=ClusterIdentity("A"))
        assert pool.any(within(LONG_S)).address.port == right
        pool.close()
        (closed,) = free_ports(1)
        # One that cannot be reached may be the right one.
        pool = pool_of(wrong, closed, identity=ClusterIdentity("A"))
        with pytest.raises(RequestError, match=r"cluster B.*refused") as raised:
            pool.any(within(2.0))
        assert not isinstance(raised.value, AnotherClusterError)
        # If all are wrong, it fails at once.
        pool = pool_of(wrong, identity=ClusterIdentity("A"))
        with pytest.raises(AnotherClusterError):
            pool.any(within(LONG_S))


def test_a_connection_without_an_identity_asks_for_none() -> None:
    with listening(greet) as port:
        connection = Connection("127.0.0.1", port)
        connection.connect(LONG_S)
        connection.close()


@pytest.mark.broker
def test_a_cluster_is_not_mixed_with_another_one(switched: Switched) -> None:
    with Cluster(switched.proxy.address, request_timeout_s=LONG_S) as cluster:
        assert len(cluster.nodes()) == 1
        switched.lead_to(switched.other)
        with pytest.raises(AnotherClusterError, match="leads to the Kafka cluster"):
            cluster.nodes()
        switched.lead_to(switched.one)
        assert len(cluster.nodes()) == 1
