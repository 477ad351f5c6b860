"""Faults of the network, one at a time for each link; then on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from workshop.chaos.faults.link import BLACKHOLE, WORKING
from workshop.chaos.faults.network import Network, NetworkFaults, running_kafka
from workshop.chaos.faults.network_schedule import (
    NETWORK_FAULTS,
    NetworkFault,
    NetworkFaultKind,
    Side,
)
from workshop.chaos.faults.proxy import Proxies
from workshop.chaos.faults.schedule import FaultClass
from workshop.chaos.members.ensemble import Outcome

MEMBERS = ("q1", "q2", "c1")


@pytest.fixture
def network() -> Iterator[Network]:
    with Proxies(7) as proxies:
        yield Network(proxies, (1, 2, 3))


@pytest.fixture
def faults(network: Network) -> NetworkFaults:
    return NetworkFaults(network, MEMBERS, 7, lambda _: None)


def fault(
    *nodes: int, side: Side = Side.EAST, at_s: float = 0.0, takes_s: float = 60.0
) -> NetworkFault:
    return NetworkFault(at_s, NetworkFaultKind.BLACKHOLE, side, nodes, takes_s, BLACKHOLE)


def held(network: Network) -> set[tuple[Side, int]]:
    return {place for place, link in network.links.items() if link.condition == BLACKHOLE}


def test_fault_hits_the_links_of_one_side_until_it_is_over(
    faults: NetworkFaults, network: Network
) -> None:
    faults.carry_out(fault(1, 3, takes_s=0.0))
    assert held(network) == {(Side.EAST, 1), (Side.EAST, 3)}
    faults.tick(0.0)
    assert all(link.condition == WORKING for link in network.links.values())
    assert faults.outcomes == {(NetworkFaultKind.BLACKHOLE, Outcome.DONE): 1}
    (found,) = faults.troubles
    assert (found.kind, found.where) == ("network: nothing passes", "east to broker 1, 3")
    assert found.from_s <= found.until_s
    servers = faults.servers()
    there = network.bootstrap_servers(Side.EAST)
    assert set(found.members) == {name for name in MEMBERS if servers[name] == there}


def test_fault_lasts_as_long_as_it_was_drawn_or_until_all_stop(
    faults: NetworkFaults, network: Network
) -> None:
    faults.carry_out(fault(1))
    faults.carry_out(fault(1, side=Side.WEST))
    faults.tick(0.0)
    assert held(network) == {(Side.EAST, 1), (Side.WEST, 1)}
    faults.settle()
    assert held(network) == set()
    assert len(faults.troubles) == 2


def test_link_has_one_fault_at_a_time(faults: NetworkFaults, network: Network) -> None:
    faults.carry_out(fault(1))
    faults.carry_out(fault(1, 2, 3))
    faults.carry_out(fault(2))
    assert held(network) == {(Side.EAST, 1), (Side.EAST, 2)}
    assert faults.outcomes == {(NetworkFaultKind.BLACKHOLE, Outcome.SKIPPED): 1}


def test_faults_begin_when_they_are_due(faults: NetworkFaults, network: Network) -> None:
    faults.draw(duration_s=600.0, session_s=10.0)
    faults.tick(0.0)
    assert held(network) == set()
    faults.tick(600.0)
    faults.settle()
    kinds = {kind for kind, _ in faults.outcomes}
    assert kinds == set(NETWORK_FAULTS)


def test_without_a_network_nothing_is_drawn() -> None:
    said: list[str] = []
    none = NetworkFaults(None, MEMBERS, 7, said.append)
    none.draw(duration_s=600.0, session_s=10.0)
    none.tick(600.0)
    none.settle()
    assert (none.servers(), none.troubles, none.outcomes, said) == ({}, [], {}, [])


def brokers_of(servers: str) -> set[str]:
    """Return the addresses that the brokers give a client."""
    known = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=800)
    return {f"{broker.host}:{broker.port}" for broker in known.brokers.values()}


def cluster_of(servers: str) -> str:
    """Return the id of the cluster that answers."""
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found: str = client.list_topics(timeout=800).cluster_id
    return found


@pytest.mark.broker
def test_broker_sends_the_clients_of_each_side_through_its_proxies() -> None:
    with running_kafka(1, {}, network_seed=7) as (kafka, network):
        assert network is not None
        for side in Side:
            servers = network.bootstrap_servers(side)
            assert brokers_of(servers) == {servers} != {kafka.bootstrap_servers}
        assert brokers_of(kafka.bootstrap_servers) == {kafka.bootstrap_servers}
        network.links[Side.EAST, 1].put(BLACKHOLE)
        client = AdminClient({"bootstrap.servers": network.bootstrap_servers(Side.EAST)})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1.0)
        assert brokers_of(network.bootstrap_servers(Side.WEST))


@pytest.mark.broker
def test_other_cluster_answers_at_the_addresses_of_the_first_one() -> None:
    with running_kafka(1, {}, network_seed=7, has_other=True) as (_, network):
        assert network is not None
        may_move = [False]
        faults = NetworkFaults(
            network,
            MEMBERS,
            7,
            lambda _: None,
            classes=[FaultClass.CLUSTER],
            may_move=lambda: may_move[0],
        )
        faults.draw(duration_s=60.0, session_s=10.0)
        homes = {side: cluster_of(network.bootstrap_servers(side)) for side in Side}
        faults.tick(60.0)
        assert set(faults.outcomes) == {(NetworkFaultKind.ELSEWHERE, Outcome.SKIPPED)}
        may_move[0] = True
        fault = NetworkFault(0.0, NetworkFaultKind.ELSEWHERE, Side.EAST, (1,), 60.0, WORKING)
        faults.carry_out(fault)
        east, west = (network.bootstrap_servers(side) for side in Side)
        assert cluster_of(east) != homes[Side.EAST]
        assert brokers_of(east) == {east}
        assert cluster_of(west) == homes[Side.WEST]
        faults.settle()
        assert cluster_of(east) == homes[Side.EAST] == homes[Side.WEST]
