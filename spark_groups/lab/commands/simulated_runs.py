"""Runs of the simulation by seed: one, many on all cores, and the smallest that fails alike."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from spark_groups.lab.coordinator.profile import PROFILES
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.lab.sim.swarm import Swarm, drawn, shrunk
from spark_groups.lab.sim.world import World

RUNS_EACH: Final = 20
"""How many runs a process plays before it says how far it is."""
BREAKS_SHOWN: Final = 3
"""After so many broken runs a hunt ends: the next ones mostly tell the same."""
LINES_SHOWN: Final = 60
SEEDS_TRIED: Final = 10
"""With how many seeds a smaller run is tried."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run, whole.

    Args:
        swarm: What it is made of; None: that is drawn from the seed, too.
    """

    seed: int
    profile: str
    swarm: Swarm | None = None

    @property
    def made_of(self) -> Swarm:
        return self.swarm or drawn(Random(self.seed))

    @property
    def command(self) -> str:
        """What replays it."""
        words = ["spark-groups", "simulate", "--profile", self.profile, "--seed", str(self.seed)]
        if self.swarm is None:
            return shlex.join([*words, "--schedules", "1"])
        return shlex.join([*words, "--swarm", self.swarm.text])


@dataclass(frozen=True, slots=True)
class Break:
    """A run that broke a promise.

    Args:
        promise: Which promise, or what else went wrong.
    """

    run: Run
    promise: str
    text: str
    lines: tuple[str, ...]


def world_of(run: Run, listeners: Sequence[Callable[[Scene], Listeners]] = ()) -> World:
    """Return a run that has not begun."""
    return World(Random(run.seed), PROFILES[run.profile], run.made_of, listeners)


def play(run: Run, listeners: Sequence[Callable[[Scene], Listeners]] = ()) -> Break | None:
    """Play a run; return what it broke, None if it kept every promise."""
    world = world_of(run, listeners)
    try:
        world.run()
    except Exception as error:
        promise = getattr(error, "checker", type(error).__name__)
        lines = tuple(world.scene.log.lines()[-LINES_SHOWN:])
        return Break(run, promise, str(error), lines)
    return None


def play_all(runs: Iterable[Run]) -> list[Break]:
    """Play runs and return what they broke."""
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
        played: Is told how many runs were played since it was told last.
    """
    breaks: list[Break] = []
    parts = _parts(runs)
    with ProcessPoolExecutor(jobs) as pool:
        while turn := list(islice(parts, jobs * 2)):
            for part, found in zip(turn, pool.map(play_all, turn), strict=True):
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
