"""Who takes part in a run and what goes wrong in it, drawn from a seed.

A schedule says when a fault is due and whom it is for. What it comes to depends on the machine: a
target that is down already is left alone, which the report counts. A kind of fault is one row of
`FAULTS`; a new one is added there, and to what carries it out in `workshop.chaos.members.ensemble`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from group_lab.sim.chance import Chance


class Point(Enum):
    """Where a batch can be interrupted; the value says it in a report."""

    BEFORE_OFFSET_LOG = "before offsets/N is written"
    AFTER_OFFSET_LOG = "after offsets/N is written"
    AFTER_READ = "rows read, before any sink is written"
    IN_APPEND = "in the middle of the append sink's rows"
    AFTER_APPEND = "between the append sink and the tables"
    BEFORE_STAGING = "compared with a table, before rows are staged for it"
    BEFORE_COMMIT = "rows staged for a table, before its commit"
    IN_COMMIT = "in a table's commit"
    AFTER_COMMIT = "after a table's commit"
    AFTER_SINKS = "after the sinks, before Spark's commit log, or a plain commit"
    AFTER_COMMIT_LOG = "after commits/N, before the offset commit"
    KAFKA_COMMIT_SENT = "the offset commit is handed to its connection"
    KAFKA_COMMIT_ACCEPTED = "Kafka has accepted the offset commit"


PLAIN_POINTS: Final = (
    Point.AFTER_READ,
    Point.IN_APPEND,
    Point.AFTER_APPEND,
    Point.BEFORE_STAGING,
    Point.BEFORE_COMMIT,
    Point.IN_COMMIT,
    Point.AFTER_COMMIT,
    Point.AFTER_SINKS,
    Point.KAFKA_COMMIT_ACCEPTED,
)
"""The points that a plain consumer passes."""
ZOMBIE_POINTS: Final = (Point.BEFORE_STAGING, Point.BEFORE_COMMIT, Point.IN_COMMIT)
"""Where a member that stands still has compared its batch, and has not committed it."""


class FaultKind(Enum):
    """What can go wrong; the value is its name in a report."""

    KILL = "SIGKILL"
    CRASH = "SIGKILL at a crash point"
    FREEZE = "SIGSTOP beyond the session"
    FREEZE_AT_POINT = "SIGSTOP beyond the session, at a crash point"
    PAUSE = "SIGSTOP within the session"
    TERMINATE = "SIGTERM"
    SLOW_BATCH = "a batch that takes seconds"
    GROW = "a topic gets partitions"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """How faults of a kind are drawn.

    Args:
        weight: How often it is drawn, beside the others.
        takes_s: The range, in seconds, from which is drawn how long the target stays down, or is
            slow.
        takes_sessions: The range, in session timeouts, from which is drawn how long it stands
            still.
    """

    weight: float
    takes_s: tuple[float, float] = (0.0, 0.0)
    takes_sessions: tuple[float, float] = (0.0, 0.0)


FAULTS: Final[dict[FaultKind, FaultRule]] = {
    FaultKind.KILL: FaultRule(6, takes_s=(0.0, 4.0)),
    FaultKind.CRASH: FaultRule(8, takes_s=(0.0, 4.0)),
    FaultKind.FREEZE: FaultRule(2, takes_sessions=(1.1, 1.8)),
    FaultKind.FREEZE_AT_POINT: FaultRule(4, takes_sessions=(1.1, 1.8)),
    FaultKind.PAUSE: FaultRule(2, takes_sessions=(0.1, 0.6)),
    FaultKind.TERMINATE: FaultRule(4, takes_s=(0.0, 6.0)),
    FaultKind.SLOW_BATCH: FaultRule(2, takes_s=(1.0, 5.0)),
    FaultKind.GROW: FaultRule(1),
}


class BrokerFaultKind(Enum):
    """What can go wrong with one of several brokers; the value is its name in a report."""

    KILL = "a broker: SIGKILL"
    FREEZE = "a broker: SIGSTOP beyond its session"
    PAUSE = "a broker: SIGSTOP within its session"
    RESTART = "a broker: restarted in good order"
    ROLL = "all brokers: restarted in turn"
    UNREACHED = "a broker: the others do not reach it"
    FULL = "a broker: its disk is full"


BROKER_FAULTS: Final[dict[BrokerFaultKind, FaultRule]] = {
    BrokerFaultKind.KILL: FaultRule(4, takes_s=(0.0, 15.0)),
    BrokerFaultKind.FREEZE: FaultRule(3, takes_sessions=(1.2, 5.0)),
    BrokerFaultKind.PAUSE: FaultRule(2, takes_sessions=(0.1, 0.8)),
    BrokerFaultKind.RESTART: FaultRule(2, takes_s=(0.0, 5.0)),
    BrokerFaultKind.ROLL: FaultRule(0.5),
}


class FaultClass(str, Enum):
    """Faults that a run has only if `--faults` names them, by the value."""

    NETWORK = "network"
    DISK = "disk"
    CLOCK = "clock"
    RETENTION = "retention"
    RESETS = "resets"
    CLUSTER = "cluster"


class RetentionFaultKind(Enum):
    """What retention does; the value is its name in a report."""

    OVERTAKE = "retention overtakes readers"


class ResetFaultKind(Enum):
    """What an operator does while no member runs; the value is its name in a report."""

    TOPIC = "between runs: a topic added"
    RESTORED = "between runs: an older checkpoint restored"
    COPIED = "between runs: a checkpoint copied to another query"
    EARLIEST = "between runs: offsets reset to the earliest"
    EARLIER = "between runs: offsets reset to earlier ones"
    TABLE = "between runs: offsets reset to those of the tables"
    REWRITTEN = "between runs: offsets reset, and the tables' rows deleted to be written again"
    METADATA_KEPT = "between runs: an offset set back by a tool that keeps its metadata"
    DELETED = "between runs: offsets deleted"
    REMEDY = "between runs: the command that a refused query prints"


FURTHER_BROKER_FAULTS: Final[Mapping[FaultClass, tuple[BrokerFaultKind, FaultRule]]] = {
    FaultClass.NETWORK: (BrokerFaultKind.UNREACHED, FaultRule(1, takes_s=(2.0, 20.0))),
    FaultClass.DISK: (BrokerFaultKind.FULL, FaultRule(1, takes_s=(2.0, 10.0))),
}
"""The faults of brokers that a class adds, drawn apart from all others."""
FURTHER_BROKER_GAP_S: Final = 25.0


class MachineFaultKind(Enum):
    """What can go wrong with the machine of members; the value is its name in a report."""

    CHECKPOINT_FULL = "a checkpoint's disk is full"
    TABLES_FULL = "the tables' disk is full"
    JUMP = "a member's clock jumps"

    @property
    def part(self) -> FaultClass:
        """Its class."""
        return FaultClass.CLOCK if self is MachineFaultKind.JUMP else FaultClass.DISK


MACHINE_FAULTS: Final[Mapping[FaultClass, Mapping[MachineFaultKind, FaultRule]]] = {
    FaultClass.DISK: {
        MachineFaultKind.CHECKPOINT_FULL: FaultRule(2, takes_s=(2.0, 12.0)),
        MachineFaultKind.TABLES_FULL: FaultRule(1, takes_s=(2.0, 8.0)),
    },
    FaultClass.CLOCK: {MachineFaultKind.JUMP: FaultRule(1, takes_s=(2.0, 15.0))},
}
MACHINE_GAP_S: Final = 10.0
"""How many seconds pass between two faults of a part, on average."""
SPARE_PAGES: Final = (0, 1, 2, 4, 8, 32)
"""How many pages of a full disk are left: a batch comes further before it fails."""
PAGE_BYTES: Final = 4096
JUMPS_S: Final = ((1.0, 120.0), (3_600.0, 43_200.0))
"""How far a clock jumps, forward or back: some seconds, or hours."""
RETENTION_GAP_S: Final = 6.0
OVERTAKEN: Final = (0.2, 0.9)
"""Which share of the records that are not committed is deleted."""
RESETS_GAP_S: Final = 30.0
ACTS: Final = (2, 4)
"""How much an operator does between two runs, at least and at most."""
APART_S: Final = (0.0, 3.0)
COORDINATES: Final = 0.4
"""How often it is the broker that coordinates the group, apart from when it is drawn by its id."""
BROKER_GAP_S: Final = 12.0
"""How many seconds pass between two faults of brokers, on average."""
AT_POINTS: Final = (FaultKind.CRASH, FaultKind.FREEZE_AT_POINT)
GAP_S: Final = 3.0
"""How many seconds pass between two faults, on average."""
SLOW_INTERVAL_S: Final = (1.0, 2.5)
GROWTH_MAX: Final = 3
"""How many partitions a topic gets at once, at most."""
ZOMBIES: Final = 0.5
"""How often a member that stands still at a point is one whose batch is compared already."""
LONG_DOWN: Final = 0.15
"""How often a member that ended stays away for longer than its session."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Args:
        at_s: When it is due, in seconds since the faults began.
        kind: What goes wrong.
        target: The member it happens to, or the topic.
        takes_s: How long the target stays down, stands still or is slow, in seconds.
        point: Where it happens, if that is one of the points of a batch.
        partitions: How many partitions a topic gets.
    """

    at_s: float
    kind: FaultKind
    target: str
    takes_s: float = 0.0
    point: Point | None = None
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class BrokerFault:
    """One fault of a broker.

    Args:
        at_s: When it is due, in seconds since the faults began.
        kind: What goes wrong.
        node: The node id; None: the broker that coordinates the group by then.
        takes_s: How long it stays down or stands still, in seconds.
    """

    at_s: float
    kind: BrokerFaultKind
    node: int | None
    takes_s: float


@dataclass(frozen=True, slots=True)
class MachineFault:
    """One fault of the machine of members.

    Args:
        at_s: When it is due, in seconds since the faults began.
        kind: What goes wrong.
        target: The member; the tables' disk is that of all.
        takes_s: How long it lasts, in seconds.
        spare_bytes: How much room a full disk has left.
        ahead_s: How far the clock is ahead, in seconds; negative: behind.
    """

    at_s: float
    kind: MachineFaultKind
    target: str
    takes_s: float
    spare_bytes: int
    ahead_s: float


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A deletion of records that the group has not read.

    Args:
        at_s: When it is due, in seconds since the faults began.
        share: Which share of them is deleted, in a partition that is not read.
    """

    at_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Standstill:
    """A time in which no member runs.

    Args:
        at_s: When it is due, in seconds since the faults began.
        kinds: What an operator does then, checkpoints before offsets.
        killed: How often a member ends by SIGKILL, and not by SIGTERM.
        apart_s: How long members run before the next one starts, in seconds.
    """

    at_s: float
    kinds: tuple[ResetFaultKind, ...]
    killed: float
    apart_s: float


@dataclass(frozen=True, slots=True)
class QueryTraits:
    """How one query differs from the others.

    Args:
        name: Names it, its checkpoint and its files.
        starting_offsets: `startingOffsets`.
        instance_id: Makes it a static member; None: it is none.
        leave_on_stop: `leaveOnStop`.
        max_offsets: `maxOffsetsPerTrigger`; None is no limit.
        reader: `reader`: fast or librdkafka.
        spark_passes_start: Whether Spark says where the last batch ended: 4.2 does, 4.0 and 4.1
            do not.
        listens: Whether the driver reports committed batches, and ends a batch before it stops.
        trigger_s: How long a trigger without rows waits, in seconds.
        interval_s: How far batches are apart at least, in seconds.
        fails_on_loss: `failOnDataLoss`.
        emit: `emit`: records or ranges.
    """

    name: str
    starting_offsets: str
    instance_id: str | None
    leave_on_stop: bool
    max_offsets: int | None
    reader: str
    spark_passes_start: bool
    listens: bool
    trigger_s: float
    interval_s: float = 0.0
    fails_on_loss: bool = True
    emit: str = "records"

    def __str__(self) -> str:
        parts = [
            f"startingOffsets={self.starting_offsets}",
            f"reader={self.reader}",
            f"maxOffsetsPerTrigger={self.max_offsets or 'none'}",
            f"called as Spark {'4.2' if self.spark_passes_start else '4.0'} does",
            "with a listener" if self.listens else "without a listener",
        ]
        if not self.fails_on_loss:
            parts.append("failOnDataLoss=false")
        if self.emit != "records":
            parts.append(f"emit={self.emit}")
        if self.instance_id is not None:
            left = "leaves when it is stopped" if self.leave_on_stop else "stays when it is stopped"
            parts.append(f"static: {left}")
        return f"{self.name}: {', '.join(parts)}"


def draw_queries(
    chance: Chance, count: int, *, fast: bool, is_slow: bool = False
) -> tuple[QueryTraits, ...]:
    """Draw the queries of a run: about a third of them are static members.

    Args:
        chance: Where they are drawn from.
        count: How many there are.
        fast: Whether the fast reader can be used.
        is_slow: Whether batches are few and large, as for tables of many files.
    """
    drawn = []
    for number in range(1, count + 1):
        is_static = number % 3 == 0
        drawn.append(
            QueryTraits(
                name=f"q{number}",
                starting_offsets=("latest", "earliest")[number % 2],
                instance_id=f"instance-{number}" if is_static else None,
                leave_on_stop=is_static and chance.random() < 0.5,
                max_offsets=chance.choice(
                    (None, 1_000, 4_000) if is_slow else (None, 60, 250, 1_000)
                ),
                reader="fast" if fast and chance.random() < 0.5 else "librdkafka",
                spark_passes_start=chance.random() < 0.7,
                listens=chance.random() < 0.6,
                trigger_s=chance.uniform(0.1, 0.6),
                interval_s=chance.uniform(*SLOW_INTERVAL_S) if is_slow else 0.0,
            )
        )
    return tuple(drawn)


def with_a_clock(queries: tuple[QueryTraits, ...], *, fast: bool) -> tuple[QueryTraits, ...]:
    """Return queries of which one has a clock that can jump: one that reads without librdkafka.

    Args:
        queries: The queries.
        fast: Whether the fast reader can be used.
    """
    if not fast or any(query.reader == "fast" for query in queries):
        return queries
    return (replace(queries[0], reader="fast"), *queries[1:])


def with_losses(queries: tuple[QueryTraits, ...]) -> tuple[QueryTraits, ...]:
    """Return queries of which some continue where offsets were deleted: of each starting offset.

    Args:
        queries: The queries.
    """
    numbered = enumerate(queries, 1)
    return tuple(replace(each, fails_on_loss=number // 2 % 2 == 1) for number, each in numbered)


def due_times_s(chance: Chance, duration_s: float, gap_s: float) -> Iterator[float]:
    """Yield when faults are due, in seconds since the faults began.

    Args:
        chance: Where they are drawn from, between the draws of the faults themselves.
        duration_s: How long faults are due, in seconds.
        gap_s: How many seconds pass between two faults, on average.
    """
    # However short a run is, it has a fault of each kind that is drawn apart.
    at_s = chance.uniform(0.0, min(gap_s, duration_s))
    while at_s < duration_s:
        yield at_s
        at_s += chance.uniform(0.0, 2 * gap_s)


def draw_faults(
    chance: Chance,
    *,
    duration_s: float,
    session_s: float,
    queries: tuple[str, ...],
    plain_consumers: tuple[str, ...],
    topics: tuple[str, ...],
    gap_s: float = GAP_S,
    kinds: Iterable[FaultKind] = tuple(FAULTS),
) -> tuple[Fault, ...]:
    """Draw what goes wrong, in the order of time.

    Args:
        chance: Where it is drawn from.
        duration_s: How long faults are due, in seconds.
        session_s: The group's session timeout, in seconds.
        queries: The queries.
        plain_consumers: The consumers beside them.
        topics: The topics.
        gap_s: How many seconds pass between two faults, on average.
        kinds: What can go wrong.
    """
    weighted = [kind for kind in kinds for _ in range(round(FAULTS[kind].weight * 2))]
    members = (*queries, *plain_consumers)
    faults = []
    for at_s in due_times_s(chance, duration_s, gap_s):
        kind = chance.choice(weighted)
        target = chance.choice(topics if kind is FaultKind.GROW else members)
        if kind is FaultKind.SLOW_BATCH:
            target = chance.choice(queries)
        points = PLAIN_POINTS if target in plain_consumers else tuple(Point)
        if kind is FaultKind.FREEZE_AT_POINT and chance.random() < ZOMBIES:
            points = ZOMBIE_POINTS
        faults.append(
            Fault(
                at_s=at_s,
                kind=kind,
                target=target,
                takes_s=_takes_s(chance, kind, session_s),
                point=chance.choice(points) if kind in AT_POINTS else None,
                partitions=chance.randint(1, GROWTH_MAX) if kind is FaultKind.GROW else 0,
            )
        )
    return tuple(faults)


def _takes_s(chance: Chance, kind: FaultKind, session_s: float) -> float:
    rule = FAULTS[kind]
    in_sessions = chance.uniform(*rule.takes_sessions) * session_s
    takes_s = chance.uniform(*rule.takes_s) + in_sessions
    is_long = chance.random() < LONG_DOWN
    ends_it = kind in (FaultKind.KILL, FaultKind.CRASH, FaultKind.TERMINATE)
    return takes_s + session_s if ends_it and is_long else takes_s


def draw_broker_faults(
    chance: Chance,
    *,
    duration_s: float,
    nodes: tuple[int, ...],
    session_s: float,
    rules: Mapping[BrokerFaultKind, FaultRule] = BROKER_FAULTS,
    gap_s: float = BROKER_GAP_S,
) -> tuple[BrokerFault, ...]:
    """Draw what goes wrong with brokers, in the order of time.

    Args:
        chance: Where it is drawn from, after all else: with one broker a seed stays what it was.
        duration_s: How long faults are due, in seconds.
        nodes: The node ids.
        session_s: After how many seconds of silence a broker is fenced.
        rules: How each kind is drawn.
        gap_s: How many seconds pass between two faults, on average.
    """
    kinds = [kind for kind, rule in rules.items() for _ in range(round(rule.weight * 2))]
    faults = []
    for at_s in due_times_s(chance, duration_s, gap_s):
        kind = chance.choice(kinds)
        rule = rules[kind]
        node = None if chance.random() < COORDINATES else chance.choice(nodes)
        in_sessions = chance.uniform(*rule.takes_sessions) * session_s
        faults.append(BrokerFault(at_s, kind, node, chance.uniform(*rule.takes_s) + in_sessions))
    return tuple(faults)


def draw_machine_faults(
    chances: Mapping[FaultClass, Chance],
    *,
    duration_s: float,
    queries: tuple[str, ...],
    clocks: tuple[str, ...],
) -> tuple[MachineFault, ...]:
    """Draw what goes wrong with the machine of members, in the order of time.

    Args:
        chances: Where they are drawn from: each class from its own, so that it changes no other.
        duration_s: How long faults are due, in seconds.
        queries: The queries, which have checkpoints.
        clocks: The members whose clocks jump: those that do without librdkafka.
    """
    faults = []
    for part, rules in MACHINE_FAULTS.items():
        targets = clocks if part is FaultClass.CLOCK else queries
        if part not in chances or not targets:
            continue
        chance = chances[part]
        kinds = [kind for kind, rule in rules.items() for _ in range(round(rule.weight))]
        for at_s in due_times_s(chance, duration_s, MACHINE_GAP_S):
            kind = chance.choice(kinds)
            faults.append(
                MachineFault(
                    at_s=at_s,
                    kind=kind,
                    target=chance.choice(targets),
                    takes_s=chance.uniform(*rules[kind].takes_s),
                    spare_bytes=chance.choice(SPARE_PAGES) * PAGE_BYTES,
                    ahead_s=chance.choice((-1, 1)) * chance.uniform(*chance.choice(JUMPS_S)),
                )
            )
    return tuple(sorted(faults, key=lambda each: each.at_s))


def draw_overtakings(chance: Chance, *, duration_s: float) -> tuple[Overtaking, ...]:
    """Draw when retention overtakes readers, in the order of time.

    Args:
        chance: Where it is drawn from.
        duration_s: How long faults are due, in seconds.
    """
    due_s = due_times_s(chance, duration_s, RETENTION_GAP_S)
    return tuple(Overtaking(at_s, chance.uniform(*OVERTAKEN)) for at_s in due_s)


def draw_standstills(chance: Chance, *, duration_s: float) -> tuple[Standstill, ...]:
    """Draw when no member runs, in the order of time; each kind comes once in as many draws.

    Args:
        chance: Where it is drawn from.
        duration_s: How long faults are due, in seconds.
    """
    # What a refused query prints follows from a refusal.
    kinds = [each for each in ResetFaultKind if each is not ResetFaultKind.REMEDY]
    left: list[ResetFaultKind] = []
    found = []
    for at_s in due_times_s(chance, duration_s, RESETS_GAP_S):
        acts = chance.randint(*ACTS)
        if len(left) < acts:
            left += sorted(kinds, key=lambda _: chance.random())
        chosen, left = tuple(kind for kind in kinds if kind in left[:acts]), left[acts:]
        found.append(Standstill(at_s, chosen, chance.random(), chance.uniform(*APART_S)))
    return tuple(found)
