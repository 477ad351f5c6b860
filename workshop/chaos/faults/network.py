"""The network of a run: a proxy for each broker on each side, and the faults of these links."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spark_groups.broker.embedded import EmbeddedKafka
from workshop.chaos.faults.link import WORKING
from workshop.chaos.faults.network_schedule import (
    ELSEWHERE,
    ELSEWHERE_GAP_S,
    NetworkFault,
    NetworkFaultKind,
    Side,
    draw_network_faults,
    draw_sides,
)
from workshop.chaos.faults.proxy import Link, Proxies
from workshop.chaos.faults.schedule import FaultClass
from workshop.chaos.members.ensemble import Outcome
from workshop.chaos.results.facts import Trouble
from workshop.parts.kafka_cluster import EmbeddedCluster

PEERS = "PEERS"
"""The listener of the brokers for each other."""
ONLY_NODE = 1
"""The node id of a broker that is alone."""


class Network:
    """The links between members and brokers, and between brokers.

    Args:
        proxies: What makes them.
        nodes: The node ids of the brokers.
    """

    def __init__(self, proxies: Proxies, nodes: Iterable[int]) -> None:
        self.nodes = tuple(nodes)
        self.links: dict[tuple[Side, int], Link] = {
            (side, node): proxies.link() for node in self.nodes for side in Side
        }
        self.peers = {node: proxies.link() for node in self.nodes} if len(self.nodes) > 1 else {}
        """The links over which other brokers reach one; none: there are no others."""
        self.home: Mapping[int, EmbeddedKafka] = {}
        """The brokers, by node id."""
        self.elsewhere: EmbeddedKafka | None = None
        """The broker of another cluster, which gives clients the same addresses."""

    def advertised(self, node: int) -> dict[str, str]:
        """Return the addresses that clients of a node are given, by the listener's name."""
        found = {side.name: link.address for (side, of), link in self.links.items() if of == node}
        if node in self.peers:
            found[PEERS] = self.peers[node].address
        return found

    def forward_to(self, nodes: Mapping[int, EmbeddedKafka]) -> None:
        """Lead the links to brokers that were started: connections before that wait."""
        self.home = nodes
        for (side, node), link in self.links.items():
            link.forward_to(nodes[node].listener(side.name))
        for node, link in self.peers.items():
            link.forward_to(nodes[node].listener(PEERS))

    def lead(self, side: Side, *, elsewhere: bool) -> None:
        """Lead the links of a side to the other cluster, or back."""
        broker = self.elsewhere if elsewhere else self.home[ONLY_NODE]
        assert broker is not None
        self.links[side, ONLY_NODE].forward_to(broker.listener(side.name))

    def bootstrap_servers(self, side: Side) -> str:
        """Return the addresses of all brokers on one side."""
        return ",".join(link.address for (on, _), link in self.links.items() if on is side)


@contextlib.contextmanager
def running_kafka(
    brokers: int,
    properties: Mapping[str, str],
    network_seed: int | None,
    log_dirs: Mapping[int, Path] | None = None,
    *,
    has_other: bool = False,
) -> Iterator[tuple[EmbeddedKafka | EmbeddedCluster, Network | None]]:
    """Run brokers, and a network in front of them.

    Args:
        brokers: How many.
        properties: Broker properties that override anything else.
        network_seed: What the jitter of slow links is drawn from; None: there are no links.
        log_dirs: The directories of several brokers; None: temporary ones.
        has_other: Whether a broker of another cluster gives clients the same addresses.
    """
    with contextlib.ExitStack() as running:
        network = None
        if network_seed is not None:
            proxies = running.enter_context(Proxies(network_seed))
            network = Network(proxies, range(1, brokers + 1))
        advertised = {node: network.advertised(node) for node in network.nodes} if network else {}
        kafka: EmbeddedKafka | EmbeddedCluster
        if brokers == 1:
            own = advertised.get(ONLY_NODE, {})
            listeners = dict.fromkeys(own, "PLAINTEXT")
            kafka = EmbeddedKafka(
                server_properties=properties, extra_listeners=listeners, advertised=own
            )
        else:
            if network is not None:
                properties = {**properties, "inter.broker.listener.name": PEERS}
            kafka = EmbeddedCluster(
                nodes=brokers,
                server_properties=properties,
                advertised=advertised,
                log_dirs=log_dirs,
            )
        running.enter_context(kafka)
        if network is not None:
            network.forward_to(
                kafka.nodes if isinstance(kafka, EmbeddedCluster) else {ONLY_NODE: kafka}
            )
        if network is not None and has_other:
            own = advertised[ONLY_NODE]
            other = EmbeddedKafka(
                server_properties=properties,
                extra_listeners=dict.fromkeys(own, "PLAINTEXT"),
                advertised=own,
            )
            network.elsewhere = running.enter_context(other)
        yield kafka, network


@dataclass(slots=True)
class _Lasting:
    """A fault that lasts: since when, and until when on the monotonic clock."""

    fault: NetworkFault
    from_s: float
    until_s: float


class NetworkFaults:
    """Carries out faults of the network; a link has one at a time.

    Args:
        network: The links; None: there are none, and no faults.
        members: The names of all members.
        seed: What sides and faults are drawn from.
        say: Shows a line.
        classes: The classes that the run has.
        may_move: Returns whether members may be led to another cluster by now.
    """

    def __init__(
        self,
        network: Network | None,
        members: Sequence[str],
        seed: int,
        say: Callable[[str], None],
        *,
        classes: Collection[FaultClass] = (FaultClass.NETWORK,),
        may_move: Callable[[], bool] = lambda: True,
    ) -> None:
        self._classes = classes
        self._may_move = may_move
        self._elsewhere_chance = random.Random(f"{seed}-elsewhere")
        self._chance = random.Random(f"{seed}-network")
        self.outcomes: Counter[tuple[NetworkFaultKind, Outcome]] = Counter()
        self.troubles: list[Trouble] = []
        self._network = network
        self._sides = draw_sides(self._chance, members) if network is not None else {}
        self._say = say
        self._due: list[NetworkFault] = []
        self._lasting: list[_Lasting] = []

    def servers(self) -> dict[str, str]:
        """Return where each member reaches the brokers; none: no member is behind a proxy."""
        if self._network is None:
            return {}
        return {name: self._network.bootstrap_servers(side) for name, side in self._sides.items()}

    def connections(self) -> tuple[int, int]:
        """Return how many connections members made, and the most on one link in a minute."""
        links = self._network.links.values() if self._network is not None else ()
        most = max((n for link in links for n in link.accepted.values()), default=0)
        return sum(link.accepted.total() for link in links), most

    def draw(self, duration_s: float, session_s: float) -> None:
        """Draw the faults.

        Args:
            duration_s: How long faults are due, in seconds.
            session_s: The group's session timeout, in seconds.
        """
        if self._network is None:
            return
        draw = partial(
            draw_network_faults,
            duration_s=duration_s,
            nodes=self._network.nodes,
            session_s=session_s,
        )
        if FaultClass.NETWORK in self._classes:
            self._due += draw(self._chance)
        if FaultClass.CLUSTER in self._classes:
            self._due += draw(self._elsewhere_chance, rules=ELSEWHERE, gap_s=ELSEWHERE_GAP_S)
        self._due.sort(key=lambda each: each.at_s)
        for side in Side:
            members = ", ".join(name for name, found in self._sides.items() if found is side)
            self._say(f"  {side.value}: {members}")

    def carry_out(self, fault: NetworkFault) -> None:
        """Begin a fault that is due, unless one of its links has another one."""
        is_early = fault.kind is NetworkFaultKind.ELSEWHERE and not self._may_move()
        if is_early or any(_share_a_link(each.fault, fault) for each in self._lasting):
            self.outcomes[fault.kind, Outcome.SKIPPED] += 1
            return
        from_s, now_s = time.time(), time.monotonic()
        self._put(fault, is_over=False)
        self._lasting.append(_Lasting(fault, from_s, now_s + fault.takes_s))

    def tick(self, since_s: float) -> None:
        """End the faults that have lasted long enough, and begin those that are due.

        Args:
            since_s: How many seconds ago the faults began.
        """
        now_s = time.monotonic()
        for each in [each for each in self._lasting if each.until_s <= now_s]:
            self._end(each)
        while self._due and self._due[0].at_s <= since_s:
            self.carry_out(self._due.pop(0))

    def settle(self) -> None:
        """End all faults."""
        for each in list(self._lasting):
            self._end(each)

    def _end(self, lasting: _Lasting) -> None:
        fault = lasting.fault
        self._put(fault, is_over=True)
        self._lasting.remove(lasting)
        self.outcomes[fault.kind, Outcome.DONE] += 1
        found = Trouble(
            part=FaultClass.NETWORK,
            kind=fault.kind.value,
            members=tuple(name for name, side in self._sides.items() if side is fault.side),
            from_s=lasting.from_s,
            until_s=time.time(),
            where=f"{fault.side.value} to broker {', '.join(map(str, fault.nodes))}",
        )
        self.troubles.append(found)
        self._say(f"{found.kind}: {found.where}, for {found.until_s - found.from_s:.1f} s")

    def _put(self, fault: NetworkFault, *, is_over: bool) -> None:
        assert self._network is not None
        if fault.kind is NetworkFaultKind.ELSEWHERE:
            self._network.lead(fault.side, elsewhere=not is_over)
            return
        for node in fault.nodes:
            self._network.links[fault.side, node].put(WORKING if is_over else fault.condition)


def _share_a_link(one: NetworkFault, other: NetworkFault) -> bool:
    return one.side is other.side and not set(one.nodes).isdisjoint(other.nodes)
