"""What goes wrong with the network between members and brokers, drawn from a seed.

Each member reaches the brokers on one of two sides, and a fault hits one side: the members of the
other one, the producer and the run itself are not hit. What a seed draws here is drawn apart from
all else: without these faults it is the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from group_lab.sim.chance import Chance
from workshop.chaos.faults.link import Condition, Passage, Slowness
from workshop.chaos.faults.schedule import FaultRule, due_times_s


class Side(str, Enum):
    """A network on which members reach all brokers; the name is that of the brokers' listener."""

    EAST = "east"
    WEST = "west"


class NetworkFaultKind(Enum):
    """What can go wrong with one side; the value is its name in a report."""

    CUT = "network: connections are reset"
    BLACKHOLE = "network: nothing passes"
    NO_ANSWERS = "network: answers do not pass"
    NO_REQUESTS = "network: requests do not pass"
    SLOW = "network: slow, and reordered"
    LATE = "network: answers are late"
    ELSEWHERE = "network: another cluster answers"


@dataclass(frozen=True, slots=True)
class NetworkRule:
    """A kind of fault.

    Args:
        drawn: How it is drawn.
        to_broker: What becomes of requests.
        from_broker: What becomes of answers.
        latency_s: How long bytes that are late take at least, in seconds: from and to.
        jitter_s: How much longer at most.
        bytes_per_s: How many of them pass in a second.
    """

    drawn: FaultRule
    to_broker: Passage
    from_broker: Passage
    latency_s: tuple[float, float] = (0.01, 0.5)
    jitter_s: tuple[float, float] = (0.1, 2.0)
    bytes_per_s: tuple[float, float] = (20_000.0, 200_000.0)


NETWORK_FAULTS: Final[dict[NetworkFaultKind, NetworkRule]] = {
    NetworkFaultKind.CUT: NetworkRule(
        FaultRule(2, takes_sessions=(0.0, 1.6)), Passage.RESET, Passage.RESET
    ),
    NetworkFaultKind.BLACKHOLE: NetworkRule(
        FaultRule(3, takes_sessions=(0.2, 1.8)), Passage.HELD, Passage.HELD
    ),
    NetworkFaultKind.NO_ANSWERS: NetworkRule(
        FaultRule(2, takes_sessions=(0.2, 1.8)), Passage.OPEN, Passage.HELD
    ),
    NetworkFaultKind.NO_REQUESTS: NetworkRule(
        FaultRule(2, takes_sessions=(0.2, 1.8)), Passage.HELD, Passage.OPEN
    ),
    NetworkFaultKind.SLOW: NetworkRule(
        FaultRule(3, takes_sessions=(0.5, 2.5)), Passage.SLOW, Passage.SLOW
    ),
    # A broker that is slow to answer requests of all kinds.
    NetworkFaultKind.LATE: NetworkRule(
        FaultRule(3, takes_sessions=(0.8, 3.0)),
        Passage.OPEN,
        Passage.SLOW,
        latency_s=(0.5, 8.0),
        jitter_s=(0.0, 0.1),
        bytes_per_s=(1e8, 1e8),
    ),
}
NETWORK_GAP_S: Final = 10.0
"""How many seconds pass between two faults of the network, on average."""
ELSEWHERE: Final[dict[NetworkFaultKind, NetworkRule]] = {
    NetworkFaultKind.ELSEWHERE: NetworkRule(
        FaultRule(1, takes_sessions=(0.3, 3.0)), Passage.OPEN, Passage.OPEN
    ),
}
"""Connections are reset, and new ones lead to another cluster."""
ELSEWHERE_GAP_S: Final = 30.0
EVERY_BROKER: Final = 0.5
"""How often a fault hits a side's links to all brokers, and not to one."""


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """One fault of the network.

    Args:
        at_s: When it is due, in seconds since the faults began.
        kind: What goes wrong.
        side: Where.
        nodes: The brokers that the side does not reach as it should.
        takes_s: How long it lasts, in seconds.
        condition: The condition of the links.
    """

    at_s: float
    kind: NetworkFaultKind
    side: Side
    nodes: tuple[int, ...]
    takes_s: float
    condition: Condition


def draw_sides(chance: Chance, members: Sequence[str]) -> Mapping[str, Side]:
    """Draw on which side each member is: every other one on the same.

    Args:
        chance: Where it is drawn from.
        members: Their names.
    """
    first = chance.randint(0, 1)
    sides = tuple(Side)
    return {name: sides[(first + number) % len(sides)] for number, name in enumerate(members)}


def draw_network_faults(
    chance: Chance,
    *,
    duration_s: float,
    nodes: tuple[int, ...],
    session_s: float,
    rules: Mapping[NetworkFaultKind, NetworkRule] = NETWORK_FAULTS,
    gap_s: float = NETWORK_GAP_S,
) -> tuple[NetworkFault, ...]:
    """Draw what goes wrong with the network, in the order of time.

    Args:
        chance: Where it is drawn from, apart from all else.
        duration_s: How long faults are due, in seconds.
        nodes: The node ids.
        session_s: The group's session timeout, in seconds.
        rules: How each kind is drawn.
        gap_s: How many seconds pass between two faults, on average.
    """
    kinds = [kind for kind, rule in rules.items() for _ in range(round(rule.drawn.weight * 2))]
    faults = []
    for at_s in due_times_s(chance, duration_s, gap_s):
        kind = chance.choice(kinds)
        rule = rules[kind]
        side = chance.choice(tuple(Side))
        hit = nodes if chance.random() < EVERY_BROKER else (chance.choice(nodes),)
        takes_s = chance.uniform(*rule.drawn.takes_sessions) * session_s
        slowness = Slowness(
            chance.uniform(*rule.latency_s),
            chance.uniform(*rule.jitter_s),
            chance.uniform(*rule.bytes_per_s),
        )
        condition = Condition(
            rule.to_broker,
            rule.from_broker,
            slowness if Passage.SLOW in (rule.to_broker, rule.from_broker) else None,
        )
        faults.append(NetworkFault(at_s, kind, side, hit, takes_s, condition))
    return tuple(faults)
