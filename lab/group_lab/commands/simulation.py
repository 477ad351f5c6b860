"""Simulated runs, and `spark_groups.simulate(...)`: `spark-groups simulate` as values."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import islice
from random import Random
from typing import Any, Final, TypeVar

from group_lab.commands.plan_options import planned
from group_lab.coordinator.metrics import mean_metrics
from group_lab.coordinator.profile import DESIGN_0_9, KAFKA_4_3, PROFILES, profile_named
from group_lab.sim.figures import FigureCounter, Figures, application_of, mean
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import (
    Assignor,
    Deploy,
    Faults,
    GroupProtocol,
    Swarm,
    drawn,
    shrunk,
    with_faults,
    with_protocol,
)
from group_lab.sim.timeline import Timeline, TimelineRecorder
from group_lab.sim.world import World
from spark_groups.errors import OptionsError

RUNS_EACH: Final = 20
"""How many runs a process plays before it reports progress."""
BREAKS_SHOWN: Final = 3
"""A hunt ends after so many broken runs; more are mostly the same."""
LINES_SHOWN: Final = 60
SEEDS_TRIED: Final = 10
"""With how many seeds a smaller run is tried."""


@dataclass(frozen=True, slots=True)
class Run:
    """The definition of a run.

    Args:
        swarm: None draws it from the seed.
        protocols: Those of the members that are drawn.
    """

    seed: int
    profile: str
    swarm: Swarm | None = None
    protocols: tuple[GroupProtocol, ...] = (GroupProtocol.CONSUMER,)

    @property
    def made_of(self) -> Swarm:
        return self.swarm or drawn(Random(self.seed), self.protocols)

    @property
    def command(self) -> str:
        """The command that replays it."""
        words = ["spark-groups", "simulate", "--profile", self.profile, "--seed", str(self.seed)]
        if self.swarm is None:
            if self.protocols != (GroupProtocol.CONSUMER,):
                words += ["--protocol", ",".join(protocol.value for protocol in self.protocols)]
            return shlex.join([*words, "--schedules", "1"])
        return shlex.join([*words, "--swarm", self.swarm.text])


@dataclass(frozen=True, slots=True)
class Break:
    """A run that broke a promise.

    Args:
        promise: The promise, or the name of another error.
    """

    run: Run
    promise: str
    text: str
    lines: tuple[str, ...]


def world_of(run: Run, listeners: Sequence[Callable[[Scene], Listeners]] = ()) -> World:
    """Return a run that has not begun."""
    made_of = run.made_of
    is_design = made_of.classic and made_of.classic_protocol is GroupProtocol.DESIGN_0_9
    profile = DESIGN_0_9 if is_design else PROFILES[run.profile]
    return World(Random(run.seed), profile, made_of, listeners)


def play(run: Run, listeners: Sequence[Callable[[Scene], Listeners]] = ()) -> Break | None:
    """Play a run; return the broken promise, or None."""
    world = world_of(run, listeners)
    try:
        world.run()
    except Exception as error:
        promise = getattr(error, "checker", type(error).__name__)
        lines = tuple(world.scene.log.lines()[-LINES_SHOWN:])
        return Break(run, promise, str(error), lines)
    return None


def play_all(runs: Iterable[Run]) -> list[Break]:
    """Play runs and return those that broke a promise."""
    return [broken for broken in map(play, runs) if broken is not None]


def hunt(
    runs: Sequence[Run],
    *,
    jobs: int,
    played: Callable[[int], object] = lambda _: None,
    play_all: Callable[[Iterable[Run]], list[Break]] = play_all,
) -> list[Break]:
    """Play runs in several processes; end early once some broke a promise.

    Args:
        jobs: How many processes; 1: this one.
        played: Called with the number of runs played since the last call.
    """
    breaks: list[Break] = []
    parts = _parts(runs)
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        while turn := list(islice(parts, jobs * 2)):
            all_found = pool.map(play_all, turn) if pool else map(play_all, turn)
            for part, found in zip(turn, all_found, strict=True):
                played(len(part))
                breaks += found
            if len(breaks) >= BREAKS_SHOWN:
                break
    return breaks


def _parts(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    return (runs[first : first + RUNS_EACH] for first in range(0, len(runs), RUNS_EACH))


def shrink(broken: Break) -> Break:
    """Return the smallest run found that breaks the same promise."""

    def breaks_with(swarm: Swarm) -> Break | None:
        for seed in range(broken.run.seed, broken.run.seed + SEEDS_TRIED):
            found = play(Run(seed, broken.run.profile, swarm))
            if found is not None and found.promise == broken.promise:
                return found
        return None

    return shrunk(broken.run.made_of, breaks_with) or broken


Chosen = TypeVar("Chosen", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedFor:
    """A period in which one member held a partition.

    Args:
        partition: The partition, as topic-index.
        application: The member's application: q1, q2, ...
        is_revoking: Whether the partition was pending revocation.
        is_away: Whether the member was static and away: the partition was not read.
        begins_s: Seconds of virtual time.
        ends_s: Seconds of virtual time.
    """

    partition: str
    application: str
    member_id: str
    member_epoch: int
    is_revoking: bool
    is_away: bool
    begins_s: float
    ends_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A fault or change from outside.

    Args:
        at_s: Seconds of virtual time.
        text: Its description; a query that is stopped "leaves".
    """

    at_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A group that was played in virtual time.

    Args:
        figures: The figures: means over the seeds; of the longest times the maximum.
        ownership: The owners of each partition with the first seed; sorted by partition and time.
        incidents: The incidents with the first seed.
        ends_at_s: When the run with the first seed was over, in seconds of virtual time.
        broken_promises: The broken promises of all seeds, each with the command that replays it.
            Empty unless spark-groups has a bug.
        coordinator_metrics: The coordinator's metrics over the time counted, by the names of the
            profile: means over the seeds; of the maxima the greatest.
    """

    figures: Figures
    ownership: tuple[OwnedFor, ...]
    incidents: tuple[Incident, ...]
    ends_at_s: float
    broken_promises: tuple[str, ...] = ()
    coordinator_metrics: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "figures": asdict(self.figures),
            "ownership": [asdict(each) for each in self.ownership],
            "incidents": [asdict(incident) for incident in self.incidents],
            "ends_at_s": self.ends_at_s,
            "broken_promises": list(self.broken_promises),
            "coordinator_metrics": dict(self.coordinator_metrics),
        }


def simulate(
    *,
    members: int = 3,
    partitions: int = 12,
    batch_length_s: float = 5.0,
    trigger_s: float = 1.0,
    records_per_second: float = 10.0,
    protocol: str = "consumer",
    assignor: str = "uniform",
    static: int = 0,
    pattern: bool = False,
    growth: int = 0,
    heartbeat_interval_s: float = 5.0,
    session_timeout_s: float = 45.0,
    rebalance_timeout_s: float = 300.0,
    initial_rebalance_delay_s: float = 3.0,
    rebalance_delay_s: float = 20.0,
    first_delay_s: float = 0.0,
    moves_per_round: int = 1,
    move_interval_s: float = 5.0,
    client_assignors: bool = False,
    deploy: str = "rolling",
    restart_time_s: float = 15.0,
    faults: str = "none",
    duration_s: float = 120.0,
    profile: str = KAFKA_4_3.name,
    seed: int = 1,
    seeds: int = 5,
) -> Simulation:
    """Play a group of queries in virtual time, on a model of Kafka's group coordinator.

    The queries run the same client as in production; neither Kafka nor Spark is needed. The
    arguments are the options of `spark-groups simulate`, with their defaults.

    Args:
        members: Queries in the group.
        partitions: Partitions of the topic.
        batch_length_s: Seconds a batch takes at most; it takes four fifths of it at least.
        trigger_s: Seconds of the processing-time trigger; 0 begins a batch when the last one ends.
        records_per_second: Records that are written to each partition in a second.
        protocol: How members rebalance: a value of `--protocol` of `spark-groups simulate`.
        assignor: The server-side assignor of the consumer protocol: uniform or range.
        static: How many of the queries have instance ids.
        pattern: Whether queries subscribe by a pattern.
        growth: How often the topic gets one more partition.
        heartbeat_interval_s: The group's heartbeat interval.
        session_timeout_s: The group's session timeout.
        rebalance_timeout_s: How long a member may take to revoke partitions.
        initial_rebalance_delay_s: How long an empty classic group waits for more members.
        rebalance_delay_s: How long leaders wait for a lost member (delayed, incremental).
        first_delay_s: How long leaders of a new group wait for more members (the same).
        moves_per_round: How many partitions move at a time (incremental).
        move_interval_s: The time between two such moves.
        client_assignors: Whether members compute the targets (only profile kip-848).
        deploy: The pattern of the redeployment: none, rolling, all-at-once or autoscale.
        restart_time_s: Seconds from the leave of an application until its next run reads.
        faults: The amount of faults meanwhile: none, some or many.
        duration_s: Seconds to count from the end of the start-up, at least.
        profile: Whose coordinator: kafka-4.0 to kafka-4.4, or kip-848; not for design-0.9.
        seed: The first seed; a seed is one run, on any machine.
        seeds: How many runs.

    Raises:
        OptionsError: A name is unknown, or a number is out of range.
    """
    given: dict[str, Any] = locals()
    given["assignor"] = _named(Assignor, "assignor", assignor)
    given["deploy"] = _named(Deploy, "deploy", deploy)
    return _simulated(planned(given), faults, protocol, profile, _seeds(seed, seeds))


def _simulated(
    swarm: Swarm, faults: str, protocol: str, profile: str, seeds: Iterable[int]
) -> Simulation:
    """Play a group with named faults and protocol."""
    faulty, name = with_faults(swarm, _named(Faults, "faults", faults)), _profile(profile)
    if swarm.computing and not PROFILES[name].kip_heartbeats:
        raise OptionsError(f"client_assignors needs the profile kip-848: {name} has none")
    made_of = with_protocol(faulty, _named(GroupProtocol, "protocol", protocol))
    return simulation_of([Played(Run(seed, name, made_of)) for seed in seeds])


class Played:
    """A finished run with its figures and timeline."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.broken: Break | None = play(run, (self._count, self._record))
        self.figures: Figures = self._counter.figures
        self.coordinator_metrics = self._counter.coordinator_metrics
        self.timeline: Timeline = self._recorder.finish()

    def _count(self, scene: Scene) -> Listeners:
        self._counter = FigureCounter(scene)
        return self._counter.listeners()

    def _record(self, scene: Scene) -> Listeners:
        self._recorder = TimelineRecorder(scene)
        return self._recorder.listeners()


def simulation_of(played: Sequence[Played]) -> Simulation:
    """Return runs as one value."""
    timeline = played[0].timeline
    return Simulation(
        figures=mean([each.figures for each in played]),
        ownership=_ownership(timeline),
        incidents=tuple(Incident(at_s=at_s, text=text) for at_s, text in timeline.incidents),
        ends_at_s=timeline.ends_at,
        broken_promises=tuple(
            f"{each.broken.promise}: {each.broken.text}; again: {each.broken.run.command}"
            for each in played
            if each.broken is not None
        ),
        coordinator_metrics=mean_metrics([each.coordinator_metrics for each in played]),
    )


def _ownership(timeline: Timeline) -> tuple[OwnedFor, ...]:
    keys = sorted(timeline.spans, key=lambda key: (str(key.topic_id), key.partition))
    return tuple(
        OwnedFor(
            partition=timeline.names[key],
            application=application_of(span.member_id),
            member_id=span.member_id,
            member_epoch=span.member_epoch,
            is_revoking=span.is_revoking,
            is_away=span.is_away,
            begins_s=span.begins,
            ends_s=span.ends,
        )
        for key in keys
        for span in timeline.spans[key]
    )


def _named(kind: type[Chosen], argument: str, text: str) -> Chosen:
    try:
        return kind(text)
    except ValueError as error:
        names = ", ".join(str(each.value) for each in kind)
        raise OptionsError(f"{argument} is {text!r}: it is one of {names}") from error


def _seeds(first: int, count: int) -> range:
    if not count >= 1:
        raise OptionsError(f"seeds is {count!r}: it must be at least 1")
    return range(first, first + count)


def _profile(text: str) -> str:
    try:
        return profile_named(text).name
    except KeyError as error:
        raise OptionsError(f"profile is {text!r}: it is one of {', '.join(PROFILES)}") from error
