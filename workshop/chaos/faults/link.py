"""How bytes pass a link between clients and one broker: decisions, without sockets and clocks.

TCP itself keeps the order of one connection. What a bad network reorders are the requests of
different connections: each has its own delay, and one overtakes the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from group_lab.sim.chance import Chance


class Way(Enum):
    """A direction of a connection."""

    TO_BROKER = "to the broker"
    FROM_BROKER = "from the broker"


class Passage(Enum):
    """What becomes of bytes on their way."""

    OPEN = "they pass"
    SLOW = "they pass late"
    HELD = (
        "they wait for the end of the fault, as TCP sends bytes again until they are acknowledged"
    )
    RESET = "their connection is reset"


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slow a link is.

    Args:
        latency_s: How long all bytes take at least, in seconds.
        jitter_s: How much longer they take at most, in seconds: as drawn for each piece.
        bytes_per_s: How many bytes of all connections together pass in a second, on each way.
    """

    latency_s: float
    jitter_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a link.

    Args:
        to_broker: What becomes of requests.
        from_broker: What becomes of answers.
        slowness: How slow it is where bytes pass late.
    """

    to_broker: Passage = Passage.OPEN
    from_broker: Passage = Passage.OPEN
    slowness: Slowness | None = None

    def passage(self, way: Way) -> Passage:
        """Return what becomes of bytes on one way."""
        return self.to_broker if way is Way.TO_BROKER else self.from_broker

    @property
    def resets(self) -> bool:
        """Whether connections are reset, old ones and new ones."""
        return Passage.RESET in (self.to_broker, self.from_broker)

    @property
    def connects(self) -> bool:
        """Whether a new connection comes about: that takes both ways."""
        return Passage.HELD not in (self.to_broker, self.from_broker) and not self.resets


WORKING = Condition()
BLACKHOLE = Condition(Passage.HELD, Passage.HELD)


class Timetable:
    """Says when bytes arrive on one way of a slow link.

    Args:
        chance: Where jitter is drawn from.
    """

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._free_s = 0.0
        """When all that was sent before has left."""

    def due_s(
        self, sent_s: float, size_bytes: int, slowness: Slowness | None, after_s: float
    ) -> float:
        """Return when bytes arrive, in seconds of the caller's clock.

        Args:
            sent_s: When they were sent.
            size_bytes: How many they are.
            slowness: How slow the link is; None: it is not.
            after_s: When the bytes before them arrive, on the same connection.
        """
        if slowness is None:
            return max(sent_s, after_s)
        self._free_s = max(self._free_s, sent_s) + size_bytes / slowness.bytes_per_s
        late_s = slowness.latency_s + self._chance.uniform(0.0, slowness.jitter_s)
        return max(self._free_s + late_s, after_s)
