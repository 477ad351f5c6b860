"""What a run consists of, as those see it who act in it or watch it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spark_groups.lab.sim.chance import Chance
from spark_groups.lab.sim.coordination import Coordination
from spark_groups.lab.sim.event_log import EventLog
from spark_groups.lab.sim.facts import Fact
from spark_groups.lab.sim.late_requests import LateRequests
from spark_groups.lab.sim.network import Network
from spark_groups.lab.sim.rights import Rights
from spark_groups.lab.sim.schedule import Schedule
from spark_groups.lab.sim.storage import Storage
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.offsets.starting import StartingOffsets
from spark_groups.protocol.membership import MemberState
from spark_groups.types import Assignment

Listeners = Mapping[type, Callable[[Any], None]]


class MemberView(Protocol):
    """What a participant believes about its membership."""

    @property
    def member_id(self) -> str: ...

    @property
    def state(self) -> MemberState: ...

    @property
    def assigned(self) -> Assignment: ...

    @property
    def owned(self) -> Assignment: ...


class Participant(Protocol):
    """A streaming query or a plain consumer."""

    @property
    def name(self) -> str:
        """What it is called, whichever incarnation of it runs."""

    @property
    def member(self) -> MemberView | None:
        """Its member of the group, None while it does not run."""

    def start(self) -> None:
        """Begin to run."""

    def restless(self) -> str:
        """Return why it has not come to rest, "" if it has."""


@dataclass(slots=True)
class Scene:
    """One run.

    Args:
        schedule: Virtual time.
        chance: All randomness.
        swarm: What the run is made of.
        storage: Topics and their logs.
        coordination: The group's coordinator.
        network: Between members and brokers.
        rights: What the group's principal may not do.
        starting: `startingOffsets` of the queries.
        late: Requests that came late, so that their senders may not know what they did.
        log: One line for each event.
        participants: Who shares the group.
    """

    schedule: Schedule
    chance: Chance
    swarm: Swarm
    storage: Storage
    coordination: Coordination
    network: Network
    rights: Rights = field(default_factory=Rights)
    starting: StartingOffsets = field(default_factory=StartingOffsets)
    late: LateRequests = field(default_factory=LateRequests)
    log: EventLog = field(default_factory=EventLog)
    participants: list[Participant] = field(default_factory=list)
    _listeners: dict[type, list[Callable[[Any], None]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def now(self) -> float:
        return self.schedule.now

    @property
    def is_faulty(self) -> bool:
        """False once nothing goes wrong any more."""
        return self.network.is_faulty

    def listen(self, listeners: Iterable[Listeners]) -> None:
        """Let somebody be told facts, by their kind."""
        for each in listeners:
            for kind, take in each.items():
                self._listeners[kind].append(take)

    def tell(self, fact: Fact) -> None:
        """Tell a fact to all who listen for its kind."""
        for take in self._listeners[type(fact)]:
            take(fact)
