"""Faults of brokers, one at a time; the nodes are stand-ins here."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spark_groups.errors import EmbeddedKafkaError
from workshop.chaos.faults.brokers import OFFSETS_PARTITION, BrokerFaults
from workshop.chaos.faults.link import BLACKHOLE, WORKING
from workshop.chaos.faults.machine import broker_disk
from workshop.chaos.faults.network import Network
from workshop.chaos.faults.proxy import Proxies
from workshop.chaos.faults.schedule import BrokerFault, BrokerFaultKind
from workshop.chaos.members.ensemble import Outcome
from workshop.parts.kafka_cluster import ClusterState, PartitionState
from workshop.parts.waiting import wait_until

ALL = frozenset({1, 2, 3})


class Node:
    """A node that notes the calls."""

    pid: int | None = None

    def __init__(self, name: int, calls: list[str]) -> None:
        self._name = name
        self._calls = calls

    def __getattr__(self, call: str) -> Any:
        return lambda: self._calls.append(f"{call} {self._name}")


class Disk(Node):
    """A disk that notes the calls; its node has ended by itself by then."""


class StandIn:
    """Three nodes: the second coordinates, the third leads a partition."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.nodes = {each: Node(each, self.calls) for each in sorted(ALL)}
        self.is_in_sync = threading.Event()
        self.error: EmbeddedKafkaError | None = None

    def state(self) -> ClusterState:
        partitions = {
            OFFSETS_PARTITION: PartitionState(2, ALL, ALL),
            ("ants", 0): PartitionState(3, ALL, ALL),
        }
        return ClusterState(ALL, partitions)

    def await_in_sync(self) -> None:
        self.is_in_sync.wait(300)
        if self.error is not None:
            raise self.error


@pytest.fixture
def cluster() -> StandIn:
    return StandIn()


@pytest.fixture
def faults(cluster: StandIn) -> BrokerFaults:
    disks: Any = {broker_disk(node): Disk(node, cluster.calls) for node in ALL}
    return BrokerFaults(cluster, lambda _: None, disks)  # type: ignore[arg-type]


def fault(kind: BrokerFaultKind, node: int | None = None, takes_s: float = 0.0) -> BrokerFault:
    return BrokerFault(0.0, kind, node, takes_s)


def done(faults: BrokerFaults, cluster: StandIn) -> None:
    cluster.is_in_sync.set()
    wait_until(lambda: not faults.is_busy, what="the end of the fault")


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (BrokerFaultKind.KILL, ["kill 2", "start 2"]),
        (BrokerFaultKind.FREEZE, ["pause 2", "resume 2"]),
        (BrokerFaultKind.PAUSE, ["pause 2", "resume 2"]),
        (BrokerFaultKind.RESTART, ["end 2", "start 2"]),
        (BrokerFaultKind.FULL, ["fill 2", "make_room 2", "start 2"]),
        (BrokerFaultKind.ROLL, [f"{each} {n}" for n in (1, 2, 3) for each in ("end", "start")]),
    ],
)
def test_fault_of_the_coordinator(
    faults: BrokerFaults, cluster: StandIn, kind: BrokerFaultKind, calls: list[str]
) -> None:
    faults.carry_out(fault(kind))
    done(faults, cluster)
    assert cluster.calls == calls
    assert faults.outcomes == {(kind, Outcome.DONE): 1}
    (found,) = (disruption for disruption in faults.disruptions if disruption.coordinated)
    assert (found.kind, found.node, found.led) == (kind.value, 2, ())
    assert found.from_s <= found.down_s <= found.up_s <= found.in_sync_s


def test_broker_that_others_do_not_reach_runs_on(cluster: StandIn) -> None:
    with Proxies(7) as proxies:
        network = Network(proxies, sorted(ALL))
        peers = network.peers
        faults = BrokerFaults(cluster, lambda _: None, {}, network)  # type: ignore[arg-type]
        faults.carry_out(fault(BrokerFaultKind.UNREACHED, 3, takes_s=1000.0))
        wait_until(lambda: peers[3].condition == BLACKHOLE, what="the fault")
        assert {node for node, link in peers.items() if link.condition == BLACKHOLE} == {3}
        faults.settle()
        done(faults, cluster)
        assert peers[3].condition == WORKING
    assert cluster.calls == []
    (found,) = faults.disruptions
    assert (found.kind, found.node, found.led) == (
        "a broker: the others do not reach it",
        3,
        (("ants", 0),),
    )


def test_partitions_of_the_node_are_noted(faults: BrokerFaults, cluster: StandIn) -> None:
    faults.carry_out(fault(BrokerFaultKind.KILL, 3))
    done(faults, cluster)
    (found,) = faults.disruptions
    assert (found.node, found.led, found.coordinated) == (3, (("ants", 0),), False)


def test_no_second_node_has_a_fault_before_all_replicas_are_in_sync(
    faults: BrokerFaults, cluster: StandIn
) -> None:
    faults.carry_out(fault(BrokerFaultKind.KILL, 1))
    wait_until(lambda: cluster.calls == ["kill 1", "start 1"], what="the restart")
    faults.carry_out(fault(BrokerFaultKind.FREEZE, 2))
    done(faults, cluster)
    assert cluster.calls == ["kill 1", "start 1"]
    assert faults.outcomes[BrokerFaultKind.FREEZE, Outcome.SKIPPED] == 1


def test_node_that_is_down_comes_back_when_faults_stop(
    faults: BrokerFaults, cluster: StandIn
) -> None:
    faults.carry_out(fault(BrokerFaultKind.KILL, 1, takes_s=1000.0))
    faults.settle()
    done(faults, cluster)
    assert cluster.calls == ["kill 1", "start 1"]


def test_broker_that_runs_on_a_full_disk_for_ever_is_a_problem(
    faults: BrokerFaults, cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workshop.chaos.faults.brokers.ENDS_S", 0.0)
    cluster.nodes[1].pid = 4711
    faults.carry_out(fault(BrokerFaultKind.FULL, 1))
    done(faults, cluster)
    assert faults.problems == [
        "a broker: its disk is full: it runs on a full disk for more than 0 s"
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_dies_is_a_problem(
    faults: BrokerFaults, cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(cluster, "await_in_sync", broken)
    faults.carry_out(fault(BrokerFaultKind.KILL, 1))
    done(faults, cluster)
    assert faults.problems == ["a broker: SIGKILL: its thread died: ValueError('unexpected')"]
    assert not faults.outcomes


def test_broker_that_does_not_come_back_is_a_problem(
    faults: BrokerFaults, cluster: StandIn
) -> None:
    cluster.error = EmbeddedKafkaError("not in sync")
    faults.carry_out(fault(BrokerFaultKind.KILL, 1))
    done(faults, cluster)
    assert faults.problems == ["a broker: SIGKILL: not in sync"]
    faults.carry_out(fault(BrokerFaultKind.KILL, 2))
    assert cluster.calls == ["kill 1", "start 1"], "it may be behind: no other node is touched"
