"""The parts of a run for participants and listeners, its event log, and whether it is settled."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from group_lab.sim.chance import Chance
from group_lab.sim.coordination import Coordination
from group_lab.sim.facts import Fact, Incident
from group_lab.sim.late_requests import LateRequests
from group_lab.sim.network import Network
from group_lab.sim.rights import Rights
from group_lab.sim.schedule import Schedule
from group_lab.sim.storage import Storage
from group_lab.sim.swarm import Swarm
from group_lab.sim.tables import Table
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.member.member_states import MemberState
from spark_groups.types import Assignment, BatchPlan, TopicIdPartition

LINES_KEPT: Final = 400
LINE_LENGTH: Final = 400

Row = tuple[float, str, str, str, tuple[object, ...]]


class EventLog:
    """The last events of a run; docs/simulation.md describes the columns.

    An event stays a row of immutable values until the log is read.
    """

    def __init__(self) -> None:
        self._rows: deque[Row] = deque(maxlen=LINES_KEPT)

    def add(self, now: float, who: str, epoch: str, what: str, *details: object) -> None:
        """Add an event.

        Args:
            who: An incarnation of a query, a plain consumer, "group" or "world".
            epoch: Its epoch, or "".
            what: One word.
            details: Immutable values, formatted when the log is read.
        """
        self._rows.append((now, who, epoch, what, details))

    def lines(self) -> list[str]:
        """Return the last events as text, the oldest first."""
        return [_line(*row) for row in self._rows]


_SET: Final = re.compile(r"frozenset\(\{(.*?)\}\)")
_BETWEEN_ELEMENTS: Final = re.compile(r"(?<=\)), (?=Topic)|(?<='), (?=')")


def _in_order(found: re.Match[str]) -> str:
    """Sort a set: its order depends on the process."""
    return f"frozenset({{{', '.join(sorted(_BETWEEN_ELEMENTS.split(found[1])))}}})"


def text_of(details: Iterable[object]) -> str:
    """Return the details of an event on one line, the same in each process."""
    return _SET.sub(_in_order, " ".join(map(str, details)).replace("\n", " "))


def _line(now: float, who: str, epoch: str, what: str, details: tuple[object, ...]) -> str:
    text = text_of(details)
    # Ids of topics are counted from one: most of each is zeroes.
    text = text.replace("00000000-0000-0000-0000-00000000000", "").replace(
        "AAAAAAAAAAAAAAAAAAAA", ""
    )
    return f"{now:10.3f} {who:<8} {epoch:>6} {what:<10} {text}"[:LINE_LENGTH].rstrip()


Listeners = Mapping[type, Callable[[Any], None]]


class MemberView(Protocol):
    """A participant's own view of its membership."""

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
        """Its name, the same for all incarnations."""

    @property
    def member(self) -> MemberView | None:
        """Its member of the group; None while it does not run."""

    def start(self) -> None:
        """Begin to run."""

    def restless(self) -> str:
        """Return why it is not settled, or ""."""


class Application(Participant, Protocol):
    """A participant that incidents and deployments end and start again."""

    @property
    def is_wanted(self) -> bool:
        """False once it is stopped for good."""

    @property
    def plan(self) -> BatchPlan | None:
        """The last plan in its checkpoint, if it has one."""

    @property
    def current(self) -> Running | None:
        """Its current run."""

    def kill(self, for_s: float, *, forget: bool) -> None:
        """End without a leave."""

    def stop(self, for_s: float | None) -> None:
        """Finish the batch, leave the group, and come back; None: stop for good."""

    def fail(self, for_s: float) -> None:
        """Fail the running batch."""

    def stay_down(self, for_s: float, *, kill: bool) -> None:
        """End, and do not restart for some seconds."""

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""

    def replace_frozen(self, for_s: float, replaced_after_s: float) -> None:
        """Freeze, be replaced by another run, and wake up beside it."""


class Running(Protocol):
    """One run of an application."""

    @property
    def name(self) -> str: ...

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""

    def die(self) -> None:
        """End at once."""


R = TypeVar("R", bound=Running)


class RestartedApplication(ABC, Generic[R]):
    """An application whose runs end, freeze and are replaced.

    Args:
        name: Its name, the same for all runs.
    """

    def __init__(self, scene: Scene, name: str) -> None:
        self.name = name
        self.current: R | None = None
        self.is_wanted = True
        """False once it is stopped for good."""
        self.plan: BatchPlan | None = None
        """The plan of the last batch, if it keeps a checkpoint."""
        self._scene = scene
        self._stop_for_s: float | None = None
        self._down_until = 0.0
        """It does not restart before then."""

    @abstractmethod
    def start(self) -> None:
        """Start another run, unless one runs."""

    @abstractmethod
    def kill(self, for_s: float, *, forget: bool) -> None:
        """End without a leave; restart after some seconds."""

    @abstractmethod
    def stop(self, for_s: float | None) -> None:
        """Finish the running batch, leave the group, and restart; None: stop for good."""

    @abstractmethod
    def _epoch(self, run: R) -> str:
        """Return the epoch of a run for the event log."""

    def stay_down(self, for_s: float, *, kill: bool) -> None:
        """End, and do not restart for some seconds.

        Args:
            kill: Whether it ends without a leave, instead of when its batch does.
        """
        self._down_until = self._scene.now + for_s
        if kill:
            self.kill(for_s, forget=False)
        else:
            self.stop(0.0)

    def stand_still(self, for_s: float) -> None:
        """Do nothing, notice nothing, for some seconds."""
        if self.current is not None:
            self._suffer(self.current, "freezes", f"{for_s} s")
            self.current.stand_still(for_s)

    def replace_frozen(self, for_s: float, replaced_after_s: float) -> None:
        """Freeze, be replaced by another run, and wake up beside it.

        A query's other run starts from the same checkpoint. Spark detects it when it writes its
        logs: the old run plans and finishes no more batches, but its client continues until then.
        """
        frozen = self.current
        if frozen is None:
            return
        self.stand_still(for_s)
        self._scene.schedule.after(for_s + self._scene.chance.uniform(0.0, 5.0), frozen.die)

        def replace() -> None:
            if self.current is frozen:
                self.current = None
                self.start()

        self._scene.schedule.after(replaced_after_s, replace)

    def _suffer(self, run: R, what: str, *details: object) -> None:
        """Log and publish an incident."""
        self._say(run, what, *details)
        self._scene.publish(Incident(what, " ".join(map(str, (run.name, *details))).rstrip()))

    def _say(self, run: R, what: str, *details: object) -> None:
        self._scene.log.add(self._scene.now, run.name, self._epoch(run), what, *details)


@dataclass(slots=True)
class Scene:
    """One run."""

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
    table: Table | None = None
    """What the queries write to, if it is played."""
    _listeners: dict[type, list[Callable[[Any], None]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def now(self) -> float:
        return self.schedule.now

    @property
    def is_faulty(self) -> bool:
        """False once the faults have ended."""
        return self.network.is_faulty

    def listen(self, listeners: Iterable[Listeners]) -> None:
        """Register callbacks by the type of the fact."""
        for listener in listeners:
            for kind, take in listener.items():
                self._listeners[kind].append(take)

    def publish(self, fact: Fact) -> None:
        """Call all listeners to facts of this type."""
        for take in self._listeners[type(fact)]:
            take(fact)


def restless(
    scene: Scene,
    is_excused: Callable[[TopicIdPartition, int | None], bool] = lambda _key, _committed: False,
    is_unassigned: Callable[[TopicIdPartition], bool] = lambda _key: False,
) -> Iterator[str]:
    """Yield why a group is not settled.

    Args:
        is_excused: Whether a partition may stay at this committed offset.
        is_unassigned: Whether a partition may stay unassigned.
    """
    coordination = scene.coordination
    state = coordination.state
    if state not in ("Stable", "Steady") and any(
        participant.member for participant in scene.participants
    ):
        yield f"the group is {state}"
    held = coordination.assigned.keys()
    # A group that has not seen a new, grown or deleted topic yet is not settled.
    for key in sorted(scene.storage.logs.keys() ^ held) if coordination.member_ids else ():
        if key in held or not is_unassigned(key):
            yield f"{key} is {'held, but gone' if key in held else 'not held'}"
    for participant in scene.participants:
        if why := participant.restless():
            yield why
    for key, log in scene.storage.logs.items():
        committed = coordination.committed(key)
        if committed != log.end_offset and not is_excused(key, committed):
            yield f"{key} is committed at {committed} of {log.end_offset}"
