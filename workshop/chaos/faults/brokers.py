"""Faults of brokers, one after the other: killed, stopped, restarted, each by its node id."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import EmbeddedKafkaError
from workshop.chaos.faults.disks import DiskError
from workshop.chaos.faults.link import BLACKHOLE, WORKING
from workshop.chaos.faults.machine import Disks, broker_disk
from workshop.chaos.faults.network import Network
from workshop.chaos.faults.proxy import Link
from workshop.chaos.faults.schedule import (
    FURTHER_BROKER_FAULTS,
    FURTHER_BROKER_GAP_S,
    BrokerFault,
    BrokerFaultKind,
    draw_broker_faults,
)
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.results.facts import Disruption
from workshop.parts.kafka_cluster import EmbeddedCluster

OFFSETS_PARTITION: Final = ("__consumer_offsets", 0)
"""The partition whose leader coordinates the group: a run has no other."""
ENDS_S: Final = 90.0
"""Until when a broker has to end by itself whose disk is full."""
LOOK_AGAIN_S: Final = 0.1


class BrokerFaults:
    """Carries out faults of brokers in a thread: at most one node is down or behind at a time.

    Args:
        cluster: The brokers; None: there is one, which has no faults.
        say: Shows a line.
        disks: The disks of brokers, by the names that `broker_disk` gives them.
        network: The network between the brokers, if it has faults.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster | None,
        say: Callable[[str], None],
        disks: Disks,
        network: Network | None = None,
    ) -> None:
        self.outcomes: Counter[tuple[BrokerFaultKind, Outcome]] = Counter()
        self.disruptions: list[Disruption] = []
        self.problems: list[str] = []
        """Brokers that did not come back, and what ended a fault in its middle."""
        self._cluster = cluster
        self._say = say
        self._network = network
        self._disks = disks
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a fault lasts, or a replica is behind since the last one."""
        return self._thread is not None and self._thread.is_alive()

    def carry_out(self, fault: BrokerFault) -> None:
        """Begin a fault that is due, unless another one lasts."""
        if self.is_busy or self.problems:
            self.outcomes[fault.kind, Outcome.SKIPPED] += 1
            return
        self._thread = threading.Thread(
            target=self._work, args=(fault,), name="chaos-broker", daemon=True
        )
        self._thread.start()

    def settle(self) -> None:
        """Bring back the node that is down; `is_busy` lasts until all replicas are in sync."""
        self._settled.set()

    def _work(self, fault: BrokerFault) -> None:
        assert self._cluster is not None
        is_roll = fault.kind is BrokerFaultKind.ROLL
        try:
            nodes = list(self._cluster.nodes) if is_roll else [self._node(fault)]
            for node_id in nodes:
                if not self._settled.is_set():
                    self._disrupt(fault, node_id)
        except (EmbeddedKafkaError, DiskError) as error:
            self.problems.append(f"{fault.kind.value}: {error}")
            return
        except Exception as error:
            self.problems.append(f"{fault.kind.value}: its thread died: {error!r}")
            raise
        self.outcomes[fault.kind, Outcome.DONE] += 1

    def _node(self, fault: BrokerFault) -> int:
        assert self._cluster is not None
        if fault.node is not None:
            return fault.node
        state = self._cluster.state()
        known = state.partitions.get(OFFSETS_PARTITION) if state is not None else None
        return known.leader if known is not None and known.leader > 0 else 1

    def _link(self, node_id: int) -> Link:
        assert self._network is not None
        return self._network.peers[node_id]

    def _await_end(self, node: EmbeddedKafka) -> None:
        """Wait until a broker has ended by itself.

        Raises:
            EmbeddedKafkaError: It does not.
        """
        deadline_s = time.monotonic() + ENDS_S
        while node.pid is not None:
            if time.monotonic() > deadline_s:
                raise EmbeddedKafkaError(f"it runs on a full disk for more than {ENDS_S:g} s")
            time.sleep(LOOK_AGAIN_S)

    def _disrupt(self, fault: BrokerFault, node_id: int) -> None:
        """Carry out a fault on one node, and wait until all replicas are in sync again."""
        assert self._cluster is not None
        node, state = self._cluster.nodes[node_id], self._cluster.state()
        partitions = state.partitions if state is not None else {}
        led = sorted(
            partition for partition, known in partitions.items() if known.leader == node_id
        )
        from_s = time.time()
        match fault.kind:
            case BrokerFaultKind.KILL:
                node.kill()
            case BrokerFaultKind.PAUSE | BrokerFaultKind.FREEZE:
                node.pause()
            case BrokerFaultKind.RESTART | BrokerFaultKind.ROLL:
                node.end()
            case BrokerFaultKind.UNREACHED:
                self._link(node_id).put(BLACKHOLE)
            case BrokerFaultKind.FULL:
                self._disks[broker_disk(node_id)].fill()
                self._await_end(node)
        down_s = time.time()
        self._settled.wait(fault.takes_s)
        match fault.kind:
            case BrokerFaultKind.PAUSE | BrokerFaultKind.FREEZE:
                node.resume()
            case BrokerFaultKind.UNREACHED:
                self._link(node_id).put(WORKING)
            case BrokerFaultKind.FULL:
                self._disks[broker_disk(node_id)].make_room()
                node.start()
            case _:
                node.start()
        up_s = time.time()
        self._cluster.await_in_sync()
        disruption = Disruption(
            kind=fault.kind.value,
            node=node_id,
            from_s=from_s,
            down_s=down_s,
            up_s=up_s,
            in_sync_s=time.time(),
            led=tuple(each for each in led if each != OFFSETS_PARTITION),
            coordinated=OFFSETS_PARTITION in led,
        )
        self.disruptions.append(disruption)
        self._say(
            f"broker {node_id}{', the coordinator' if disruption.coordinated else ''}:"
            f" {fault.kind.value}, leader of {len(disruption.led)}; it was back after"
            f" {up_s - from_s:.1f} s, in sync after {disruption.in_sync_s - from_s:.1f} s"
        )


def draw_for_brokers(chance: Random, chosen: Namespace, session_s: float) -> list[BrokerFault]:
    """Draw all that goes wrong with several brokers, in the order of time; one has no faults.

    Args:
        chance: Where it is drawn from, but for the classes of faults that `--faults` names.
        chosen: The options of the run.
        session_s: After how many seconds of silence a broker is fenced.
    """
    if chosen.brokers == 1:
        return []
    draw = partial(
        draw_broker_faults,
        duration_s=chosen.minutes * 60,
        nodes=tuple(range(1, chosen.brokers + 1)),
        session_s=session_s,
    )
    drawn = list(draw(chance))
    for part, (kind, rule) in FURTHER_BROKER_FAULTS.items():
        if part in chosen.faults:
            apart = Random(f"{chosen.seed}-broker-{part.value}")
            drawn += draw(apart, rules={kind: rule}, gap_s=FURTHER_BROKER_GAP_S)
    return sorted(drawn, key=lambda each: each.at_s)
