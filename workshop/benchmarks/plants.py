"""`make plants`: plant bugs, have chaos and the simulation find them, and note how fast they do.

Each bug of `workshop.chaos.plants` is played as `PLAYS` says: in schedules of the simulation until
one
breaks a promise, or in a run of `chaos` on a real Kafka. A play must find its bug by a check that
it names; any other failure does not count. Nor does a find count unless its control is good: the
same schedule, or the same run, without the bug. The results are in docs/benchmarks/plants.csv, the
table in docs/benchmarks/reliability.md; playing some bugs replaces only their lines, and
`--missing` plays only those that were not found yet, or not with a good control. The exit status is
1 if a bug is not found.
"""

from __future__ import annotations

import argparse
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
from types import MappingProxyType
from typing import Final

from rich.console import Console

from group_lab.commands.simulation import Run, play
from group_lab.sim.swarm import GroupProtocol
from workshop.benchmarks import noted, reach
from workshop.chaos.member_plants import plant_in_member
from workshop.chaos.plants import DESCRIPTIONS, Plant

RESULTS: Final = noted.DOCS / "plants.csv"
COLUMNS: Final = (
    "plant",
    "way",
    "commit",
    "repeat",
    "after",
    "seconds",
    "found_by",
    "control",
    "control_result",
    "load_average",
)
PLACES: Final = ("spark_groups", "lab/group_lab", "workshop")
"""What a commit is the state of."""
GOOD: Final = "good"
"""The result of a control that breaks nothing."""
FIRST_SEED: Final = 600_001
FAULTS_SEED: Final = 18
"""With it all queries have the fast reader and limits, and members are stopped early."""
SPARE_S: Final = 600.0
"""How long a run of chaos may take beside its faults, in seconds."""
LINES_SHOWN: Final = 5
HEADS: Final = (
    "part",
    "`--plant`",
    "the bug",
    "played in",
    "after",
    "the check that found it",
    "load",
)


class Way(Enum):
    """What finds bugs; the value is its name in the table."""

    SIMULATION = "simulation"
    CHAOS = "chaos"
    NETWORK = "network"
    RESETS = "resets"


FURTHER: Final[Mapping[Way, tuple[str, ...]]] = {
    Way.CHAOS: (),
    Way.NETWORK: ("--brokers", "3", "--faults", "network"),
    Way.RESETS: ("--faults", "resets"),
}
"""The options of chaos that a way adds."""


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
        way: `NETWORK`: on three brokers, with faults of brokers and of the network; `RESETS`: with
            resets between runs.
    """

    problems: tuple[str, ...]
    minutes: float = 0.5
    seed: int = FAULTS_SEED
    way: Way = Way.CHAOS

    def words(self, plant: Plant | None) -> list[str]:
        """Return the arguments of the run; without a bug, those of its control."""
        return [
            *("-m", "workshop.chaos.run"),
            *(("--plant", plant.value) if plant else ()),
            *("--seed", str(self.seed), "--minutes", f"{self.minutes:g}", "--sinks", "sqlite"),
            *FURTHER[self.way],
        ]


class NoReportError(Exception):
    """A run of chaos ended without a report, or did not end."""


UNEXPLAINED: Final = "without a cause"
LOST: Final = "records lost"
DOUBLED: Final = "rows doubled"
GAPS: Final = "gaps refused"
WENT_BACK: Final = "went back"
OVERRULED: Final = "overruled"

PLAYS: Final[Mapping[Plant, tuple[Schedules | Faults, ...]]] = MappingProxyType(
    {
        Plant.EARLY_RELEASE: (
            Schedules(("clean hand over",)),
            Faults((UNEXPLAINED,)),
            # Commits are slow: the next owner often reads from an offset that is not the last one.
            Faults((UNEXPLAINED,), minutes=1.0, way=Way.NETWORK),
        ),
        Plant.NEWEST_EPOCH: (Schedules(("commit epochs",)),),
        # 2,000 schedules from 600001 on do not find it: an epoch is rarely fenced in a batch.
        Plant.KEEPS_FENCED: (
            Schedules(("commit ownership", "group settles"), 1_000, first_seed=400_001),
        ),
        Plant.TRUSTS_REPEATED: (Schedules(("clean hand over",)),),
        Plant.COMMITS_PLANNED: (Schedules(("no gap",)),),
        Plant.COMMITS_LOST: (Faults((WENT_BACK,), minutes=1.0, seed=7),),
        Plant.KEEPS_POSITION: (
            Schedules(("clean hand over", "read once")),
            Faults((WENT_BACK, UNEXPLAINED)),
        ),
        Plant.VALUE_AS_EVIDENCE: (
            Schedules(("resets respected",)),
            Faults((OVERRULED,), minutes=1.0, seed=8, way=Way.RESETS),
        ),
        Plant.REPLAY_UNNOTED: (Schedules(("clean hand over",)),),
        Plant.REPLAY_FINISHED: (Schedules(("commit ownership",)),),
        Plant.LAST_RECORD: (Faults((LOST,)),),
        Plant.BEYOND_RANGE: (Faults((UNEXPLAINED,)),),
        Plant.BATCH_START: (Faults((UNEXPLAINED,)),),
        Plant.CUT_FETCH: (Faults((LOST,)),),
        Plant.NO_COMPARE: (Faults((DOUBLED,)),),
        Plant.COMPARE_BEFORE: (
            Faults((DOUBLED,), minutes=1.0),
            # A member that is cut off still writes its batch, beside the next owner.
            Faults((DOUBLED,), minutes=1.0, way=Way.NETWORK),
        ),
        Plant.KAFKA_FIRST: (Faults((GAPS, LOST)),),
    }
)
"""How each bug is played; every play has to find it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a play.

    Args:
        after: How much was played until the bug showed.
        found_by: The check that found it; empty: none that the play names.
        details: What else there was, if it was not found.
        schedule: The schedule that found it, if one did.
    """

    after: str
    found_by: str
    details: str = ""
    schedule: Run | None = None


def hunt(plant: Plant, schedules: Schedules) -> Finding:
    """Plant a bug in this process for good, and play schedules until one breaks a promise.

    Args:
        plant: The bug.
        schedules: The schedules to play.
    """
    plant_in_member(plant)
    runs = reach.piece_of(schedules.first_seed, schedules.schedules_max, (GroupProtocol.CONSUMER,))
    others: list[str] = []
    for number, run in enumerate(runs, start=1):
        broken = play(run)
        if broken is not None and broken.promise in schedules.promises:
            return Finding(_schedules(number), broken.promise, schedule=run)
        if broken is not None:
            others.append(f"{broken.promise}: {run.command}")
    return Finding(_schedules(len(runs)), "", "\n".join(others[:LINES_SHOWN]))


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


def problems_of(faults: Faults, plant: Plant | None) -> list[str]:
    """Make a run of chaos, and return the problems of its report.

    Args:
        faults: The run to make.
        plant: The bug; None: the run is a control.

    Raises:
        NoReportError: It could not be made, or did not end.
    """
    limit_s = faults.minutes * 60 + SPARE_S
    with tempfile.TemporaryDirectory(prefix="plants-") as kept:
        process = subprocess.Popen(
            [sys.executable, *faults.words(plant), "--json", "--keep", f"{kept}/run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            shown, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise NoReportError(f"the run did not end within {limit_s:g} s") from None
        finally:
            # After SIGTERM it ends all that it has started.
            process.terminate()
            process.wait(SPARE_S)
    if not shown:
        raise NoReportError("\n".join(errors.splitlines()[-LINES_SHOWN:]))
    found: list[str] = json.loads(shown)["problems"]
    return found


def run_chaos(plant: Plant, faults: Faults) -> Finding:
    """Make a run of chaos with a bug.

    Args:
        plant: The bug.
        faults: The run to make.
    """
    after = f"{faults.minutes:g} min of faults"
    try:
        problems = problems_of(faults, plant)
    except NoReportError as error:
        return Finding(after, "", str(error))
    named = [problem for problem in problems if any(part in problem for part in faults.problems)]
    return Finding(after, "; ".join(named), "" if named else "; ".join(problems))


class Controls:
    """Plays without a bug, each of them once; several bugs may share one.

    Args:
        console: Where progress is shown.
        known: Lines of the file: the controls of this very commit are not played again.
    """

    def __init__(self, console: Console, known: Sequence[Mapping[str, str]] = ()) -> None:
        self._console = console
        commit = noted.commit_of(*PLACES)
        own = [each for each in known if each["commit"] == commit and not commit.endswith("+")]
        self._results = {each["control"]: each["control_result"] for each in own}

    def of(self, played: Schedules | Faults, finding: Finding) -> tuple[str, str]:
        """Return the command of the control of a play, and its result.

        Args:
            played: The schedules, or the run, that had a bug.
            finding: What came of it.
        """
        if finding.schedule is not None:
            command = finding.schedule.command
        else:
            assert isinstance(played, Faults)
            command = " ".join(["python", *played.words(None)])
        if command not in self._results:
            self._say(f"without a bug: {command} ...")
            self._results[command] = self._result(played, finding.schedule)
            self._say(f"without a bug: {self._results[command]}")
        return command, self._results[command]

    def _result(self, played: Schedules | Faults, schedule: Run | None) -> str:
        if schedule is not None:
            # This process has no bug: each hunt has a process of its own.
            broken = play(schedule)
            return f"{broken.promise}: {broken.text}" if broken else GOOD
        assert isinstance(played, Faults)
        try:
            return "; ".join(problems_of(played, None)) or GOOD
        except NoReportError as error:
            return str(error)

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False)


def played(
    plant: Plant, of: Schedules | Faults, controls: Controls, console: Console
) -> dict[str, str]:
    """Play a bug, and its control if it is found; return its line of the file.

    Args:
        plant: The bug.
        of: The schedules, or the run.
        controls: The plays without a bug.
        console: Where progress is shown.
    """
    way = _way(of)
    console.print(f"{plant.value}: {way.value} ...", markup=False)
    began_s = time.monotonic()
    finding = simulate(plant, of) if isinstance(of, Schedules) else run_chaos(plant, of)
    seconds, load = time.monotonic() - began_s, os.getloadavg()[0]
    control, control_result = controls.of(of, finding) if finding.found_by else ("", "")
    words = of.words(plant) if isinstance(of, Faults) else _words(plant, way)
    line = {
        "plant": plant.value,
        "way": way.value,
        "commit": noted.commit_of(*PLACES),
        "repeat": " ".join(["python", *words]),
        "after": finding.after,
        "seconds": f"{seconds:.0f}",
        "found_by": finding.found_by,
        "control": control,
        "control_result": control_result,
        "load_average": f"{load:.1f}",
    }
    console.print(f"{plant.value}: {_found(line)}, {finding.after}, {seconds:.0f} s", markup=False)
    if finding.details:
        console.print(finding.details, markup=False)
    return line


def _words(plant: Plant, way: Way) -> list[str]:
    return ["-m", "workshop.benchmarks.plants", plant.value, "--way", way.value]


def _way(of: Schedules | Faults) -> Way:
    return Way.SIMULATION if isinstance(of, Schedules) else of.way


def is_found(line: Mapping[str, str]) -> bool:
    """Return whether a check found the bug of a line, and finds nothing without it."""
    return bool(line["found_by"]) and line["control_result"] == GOOD


def _found(line: Mapping[str, str]) -> str:
    if not line["found_by"]:
        return "NOT FOUND"
    if not line["control_result"]:
        return f"{line['found_by']} (not yet played without the bug)"
    if is_found(line):
        return line["found_by"]
    return f"DOES NOT COUNT: without the bug: {line['control_result']}"


def merged(old: Sequence[dict[str, str]], new: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return lines of the file in the order of `PLAYS`, new ones in the place of old ones.

    Args:
        old: The lines of the file.
        new: Those of the plays.
    """
    by_play = {(each["plant"], each["way"]): each for each in (*old, *new)}
    wanted = [(plant.value, _way(of).value) for plant, plays in PLAYS.items() for of in plays]
    return [by_play[each] for each in wanted if each in by_play]


def table(known: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the table of the page: a row for each play.

    Args:
        known: The lines of the file.
    """
    rows = []
    for each in known:
        about = DESCRIPTIONS[Plant(each["plant"])]
        after = f"{each['after']}: {each['seconds']} s in all"
        played_in = (about.part.value, f"`{each['plant']}`", about.text, each["way"])
        rows.append((*played_in, after, _found(each), each["load_average"]))
    return noted.markdown_table(HEADS, rows)


def page() -> str:
    """Return the page with the table of all plays."""
    return noted.page_with("plants", table(noted.rows(RESULTS)), noted.PAGE)


def main() -> int:
    """Play bugs; the exit status is 1 if one is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plants", nargs="*", type=Plant, help="the bugs; default: all")
    parser.add_argument("--way", type=Way, help="one way of playing; default: all")
    parser.add_argument("--missing", action="store_true", help="only plays without a good control")
    chosen = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    known = noted.rows(RESULTS)
    controls, are_found = Controls(console, known), True
    skipped = {(each["plant"], each["way"]) for each in known if chosen.missing and is_found(each)}
    for plant in chosen.plants or Plant:
        for of in PLAYS[plant]:
            if chosen.way not in (None, _way(of)) or (plant.value, _way(of).value) in skipped:
                continue
            line = played(plant, of, controls, console)
            are_found = are_found and is_found(line)
            noted.write(merged(noted.rows(RESULTS), [line]), COLUMNS, RESULTS)
            noted.PAGE.write_text(page(), encoding="utf-8")
    return 0 if are_found else 1


if __name__ == "__main__":
    sys.exit(main())
