"""`make plants`: plant bugs, have chaos and the simulation find them, and note how fast they do.

Each bug of `chaos.plants` is played as `PLAYS` says: in schedules of the simulation until one
breaks a promise, or in a run of `chaos` on a real Kafka. A play must find its bug by a check that
it names; any other failure does not count. The results are in docs/benchmarks/plants.csv, the table
in docs/benchmarks/reliability.md; playing some bugs replaces only their lines. The exit status is 1
if a bug is not found.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console

from benchmarks import noted, reach
from chaos.member_plants import plant_in_member
from chaos.plants import DESCRIPTIONS, Plant
from spark_groups.lab.commands.simulation import play
from spark_groups.lab.sim.swarm import GroupProtocol

RESULTS: Final = noted.DOCS / "plants.csv"
COLUMNS: Final = (
    "plant",
    "way",
    "commit",
    "repeat",
    "after",
    "seconds",
    "found_by",
    "load_average",
)
FIRST_SEED: Final = 600_001
FAULTS_SEED: Final = 18
"""With it all queries have the fast reader and limits, and members are stopped early."""
SPARE_S: Final = 600.0
"""How long a run of chaos may take beside its faults, in seconds."""
LINES_SHOWN: Final = 5


class Way(Enum):
    """What finds bugs; the value is its name in the table."""

    SIMULATION = "simulation"
    CHAOS = "chaos"


@dataclass(frozen=True, slots=True)
class Schedules:
    """Schedules of the simulation, played until one breaks a promise.

    Args:
        promises: The promises; another broken one does not count.
        schedules_max: After how many schedules the bug counts as not found.
        first_seed: The seed of the first schedules, one on each profile.
    """

    promises: tuple[str, ...]
    schedules_max: int = 500
    first_seed: int = FIRST_SEED


@dataclass(frozen=True, slots=True)
class Faults:
    """A run of chaos.

    Args:
        problems: Parts of the report's problems, of which one must be there.
        minutes: For how long there are faults.
        seed: The seed.
        sinks: The tables, between commas.
    """

    problems: tuple[str, ...]
    minutes: float = 0.5
    seed: int = FAULTS_SEED
    sinks: str = "sqlite"

    def words(self, plant: Plant) -> list[str]:
        """Return the arguments of the run."""
        return [
            *("-m", "chaos.run", "--plant", plant.value, "--seed", str(self.seed)),
            *("--minutes", f"{self.minutes:g}", "--sinks", self.sinks),
        ]


UNEXPLAINED: Final = "without a cause"
LOST: Final = "records lost"
DOUBLED: Final = "rows doubled"
GAPS: Final = "gaps refused"
WENT_BACK: Final = "went back"

PLAYS: Final[Mapping[Plant, tuple[Schedules | Faults, ...]]] = MappingProxyType(
    {
        Plant.EARLY_RELEASE: (Schedules(("clean hand over",)), Faults((UNEXPLAINED,))),
        Plant.NEWEST_EPOCH: (Schedules(("commit epochs",)),),
        # 2,000 schedules from 600001 on do not find it: an epoch is rarely fenced in a batch.
        Plant.KEEPS_FENCED: (
            Schedules(("commit ownership", "group settles"), 1_000, first_seed=400_001),
        ),
        Plant.TRUSTS_REPEATED: (Schedules(("clean hand over",)),),
        Plant.COMMITS_PLANNED: (Schedules(("no gap",)),),
        Plant.COMMITS_LOST: (Faults((WENT_BACK,), minutes=1.0, seed=7),),
        Plant.KEEPS_POSITION: (
            Schedules(("clean hand over",)),
            Faults((WENT_BACK, UNEXPLAINED)),
        ),
        Plant.REPLAY_UNNOTED: (Schedules(("clean hand over",)),),
        Plant.REPLAY_FINISHED: (Schedules(("commit ownership",)),),
        Plant.LAST_RECORD: (Faults((LOST,)),),
        Plant.BEYOND_RANGE: (Faults((UNEXPLAINED,)),),
        Plant.BATCH_START: (Faults((UNEXPLAINED,)),),
        Plant.CUT_FETCH: (Faults((LOST,)),),
        Plant.NO_COMPARE: (Faults((DOUBLED,)),),
        Plant.COMPARE_BEFORE: (Faults((DOUBLED,), minutes=1.0),),
        Plant.KAFKA_FIRST: (Faults((GAPS, LOST)),),
    }
)
"""How each bug is played; every play has to find it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a play.

    Args:
        repeat: The command that repeats it.
        after: How much was played until the bug showed.
        found_by: The check that found it; empty: none that the play names.
        details: What else there was, if it was not found.
    """

    repeat: str
    after: str
    found_by: str
    details: str = ""


def hunt(plant: Plant, schedules: Schedules) -> Finding:
    """Plant a bug in this process for good, and play schedules until one breaks a promise.

    Args:
        plant: The bug.
        schedules: The schedules to play.
    """
    plant_in_member(plant)
    runs = reach.piece_of(schedules.first_seed, schedules.schedules_max, (GroupProtocol.CONSUMER,))
    others: list[str] = []
    repeat = f"python -m benchmarks.plants {plant.value} --way {Way.SIMULATION.value}"
    for number, run in enumerate(runs, start=1):
        broken = play(run)
        if broken is not None and broken.promise in schedules.promises:
            return Finding(repeat, _schedules(number), broken.promise)
        if broken is not None:
            others.append(f"{broken.promise}: {run.command}")
    return Finding(repeat, _schedules(len(runs)), "", "\n".join(others[:LINES_SHOWN]))


def _schedules(count: int) -> str:
    return f"{count:,} schedule{'s' if count > 1 else ''}"


def simulate(plant: Plant, schedules: Schedules) -> Finding:
    """Hunt a bug in a process of its own, which ends with its bug.

    Args:
        plant: The bug.
        schedules: The schedules to play.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(hunt, plant, schedules).result()


def run_chaos(plant: Plant, faults: Faults) -> Finding:
    """Make a run of chaos with a bug.

    Args:
        plant: The bug.
        faults: The run to make.
    """
    words = faults.words(plant)
    with tempfile.TemporaryDirectory(prefix="plants-") as kept:
        process = subprocess.Popen(
            [sys.executable, *words, "--json", "--keep", f"{kept}/run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            shown, errors = process.communicate(timeout=faults.minutes * 60 + SPARE_S)
        finally:
            # After SIGTERM it ends all that it has started.
            process.terminate()
            process.wait(SPARE_S)
    problems: list[str] = json.loads(shown)["problems"] if shown else []
    named = [each for each in problems if any(part in each for part in faults.problems)]
    last_lines = "\n".join(errors.splitlines()[-LINES_SHOWN:])
    return Finding(
        " ".join(["python", *words]),
        f"{faults.minutes:g} min of faults",
        "; ".join(named),
        "" if named else "; ".join(problems) or last_lines,
    )


def played(plant: Plant, of: Schedules | Faults, console: Console) -> dict[str, str]:
    """Play a bug, and return its line of the file.

    Args:
        plant: The bug.
        of: The schedules, or the run.
        console: Where progress is shown.
    """
    way = _way(of)
    console.print(f"{plant.value}: {way.value} ...", markup=False)
    began_s = time.monotonic()
    try:
        finding = simulate(plant, of) if isinstance(of, Schedules) else run_chaos(plant, of)
    except subprocess.TimeoutExpired as error:
        finding = Finding("", f"{error.timeout:g} s", "", "the run did not end")
    seconds = time.monotonic() - began_s
    result = f"found by: {finding.found_by}" if finding.found_by else "NOT FOUND"
    console.print(f"{plant.value}: {result}, {finding.after}, {seconds:.0f} s", markup=False)
    if finding.details:
        console.print(finding.details, markup=False)
    return {
        "plant": plant.value,
        "way": way.value,
        "commit": noted.commit_of("spark_groups"),
        "repeat": finding.repeat,
        "after": finding.after,
        "seconds": f"{seconds:.0f}",
        "found_by": finding.found_by,
        "load_average": f"{os.getloadavg()[0]:.1f}",
    }


def _way(of: Schedules | Faults) -> Way:
    return Way.SIMULATION if isinstance(of, Schedules) else Way.CHAOS


def merged(old: Sequence[dict[str, str]], new: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return lines of the file in the order of `PLAYS`, new ones in the place of old ones.

    Args:
        old: The lines of the file.
        new: Those of the plays.
    """
    by_play = {(each["plant"], each["way"]): each for each in (*old, *new)}
    wanted = [(plant.value, _way(of).value) for plant, plays in PLAYS.items() for of in plays]
    return [by_play[each] for each in wanted if each in by_play]


def note(lines: Sequence[dict[str, str]], path: Path) -> None:
    """Write the file.

    Args:
        lines: Its lines.
        path: The file.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def table(known: Sequence[Mapping[str, Any]]) -> str:
    """Return the text between the markers of the page: a row for each play.

    Args:
        known: The lines of the file.
    """
    lines = [
        "| part | `--plant` | the bug | found by | after | the check that found it | load |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in known:
        about = DESCRIPTIONS[Plant(each["plant"])]
        after = f"{each['after']}: {each['seconds']} s in all"
        cells = (about.part.value, f"`{each['plant']}`", about.text, each["way"], after)
        found_by = each["found_by"] or "NOT FOUND"
        lines.append(f"| {' | '.join(cells)} | {found_by} | {each['load_average']} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page with the table of all plays."""
    return noted.page_with("plants", table(noted.rows(RESULTS)), noted.PAGE)


def main() -> int:
    """Play bugs; the exit status is 1 if one is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plants", nargs="*", type=Plant, help="the bugs; default: all")
    parser.add_argument("--way", type=Way, help="simulation or chaos; default: both")
    chosen = parser.parse_args()
    console, is_found = Console(highlight=False, soft_wrap=True), True
    for plant in chosen.plants or Plant:
        for of in PLAYS[plant]:
            if chosen.way not in (None, _way(of)):
                continue
            line = played(plant, of, console)
            is_found = is_found and bool(line["found_by"])
            note(merged(noted.rows(RESULTS), [line]), RESULTS)
            noted.PAGE.write_text(page(), encoding="utf-8")
    return 0 if is_found else 1


if __name__ == "__main__":
    sys.exit(main())
