"""Plays the small world with many seeds, on all cores, and tells which of them break a promise.

python -m tests.client.hunt 5000
python -m tests.client.hunt 1 --first 4711 --profile 4.2
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice, product

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.client.scripted_coordinator import PROFILES
from tests.client.world import World

SEEDS_EACH = 20
"""How many runs a process plays before it says how far it is."""
BREAKS_SHOWN = 3
"""After so many broken runs the hunt ends: the next ones mostly tell the same."""

Run = tuple[int, str]


@dataclass(frozen=True)
class Break:
    """A run that broke a promise.

    Args:
        seed: Its seed.
        profile: The version of Kafka it was played on.
        story: What happened, and what was promised.
    """

    seed: int
    profile: str
    story: str


def play(runs: Iterable[Run]) -> list[Break]:
    """Play runs and return those that broke a promise."""
    breaks = []
    for seed, profile in runs:
        world = World(seed, profile)
        try:
            world.run()
        except Exception as error:
            trace = "\n".join(world.trace)
            breaks.append(Break(seed, profile, f"{trace}\n{world.swarm}: {error!r}"))
    return breaks


def hunt(
    runs: Sequence[Run],
    *,
    jobs: int,
    played: Callable[[int], object] = lambda _: None,
    play: Callable[[Iterable[Run]], list[Break]] = play,
) -> list[Break]:
    """Play runs in several processes; end early once some broke a promise.

    Args:
        runs: Seeds and profiles.
        jobs: How many processes.
        played: Is told how many runs were played since it was told last.
        play: What plays some of them, in another process.
    """
    breaks: list[Break] = []
    parts = _parts(runs)
    with ProcessPoolExecutor(jobs) as pool:
        while turn := list(islice(parts, jobs * 2)):
            for part, found in zip(turn, pool.map(play, turn), strict=True):
                played(len(part))
                breaks += found
            if len(breaks) >= BREAKS_SHOWN:
                break
    return breaks


def _parts(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    return (runs[first : first + SEEDS_EACH] for first in range(0, len(runs), SEEDS_EACH))


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt as the command line says.

    Returns:
        0 if every promise was kept, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.client.hunt", description=__doc__)
    parser.add_argument("seeds", type=int, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="one version of Kafka only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    asked = parser.parse_args(arguments)
    profiles = [asked.profile] if asked.profile else sorted(PROFILES)
    runs = list(product(range(asked.first, asked.first + asked.seeds), profiles))
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"seeds on Kafka {', '.join(profiles)}", total=len(runs))
        breaks = hunt(runs, jobs=asked.jobs, played=lambda count: progress.advance(bar, count))
    for each in breaks[:BREAKS_SHOWN]:
        console.print(each.story, markup=False, highlight=False, soft_wrap=True)
    for each in breaks:
        again = f"python -m tests.client.hunt 1 --first {each.seed} --profile {each.profile}"
        console.print(f"seed {each.seed} on Kafka {each.profile} broke a promise; again: {again}")
    if not breaks:
        console.print(f"{len(runs):,} runs kept every promise")
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main())
