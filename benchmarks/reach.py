"""`make reach`: play schedules of the simulation with fresh seeds, and note the results in a file.

It continues after the last seed in docs/benchmarks/reach.csv, and adds a line for each piece; the
table in docs/benchmarks/reliability.md sums them up. Stop it at any time: only whole pieces count.
A piece with a broken promise ends early; the command prints how to repeat the run, and exits
with 1.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from spark_groups.lab.commands.simulation import Run, hunt
from spark_groups.lab.coordinator.profile import PROFILES
from spark_groups.lab.sim.swarm import GroupProtocol

REACH: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "reach.csv"
COLUMNS: Final = (
    "commit",
    "protocols",
    "first_seed",
    "last_seed",
    "schedules",
    "broken_seeds",
    "seconds",
    "load_average",
)
PAGE: Final = REACH.with_name("reliability.md")
BEGIN: Final = "<!-- reach: begin -->"
END: Final = "<!-- reach: end -->"
FIRST_SEED: Final = 30_000_001
"""Greater than every seed of a hunt before this file."""
PIECE: Final = 3_000
"""How many schedules a line of the file has."""


def rows(path: Path = REACH) -> list[dict[str, str]]:
    """Return the lines of the file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def next_seed(known: Sequence[dict[str, str]]) -> int:
    """Return the first seed after all that were played, with any protocol."""
    return max((int(each["last_seed"]) + 1 for each in known), default=FIRST_SEED)


def piece_of(first_seed: int, schedules: int, protocols: tuple[GroupProtocol, ...]) -> list[Run]:
    """Return runs of each seed on every profile, at least so many.

    The 0.9 design has a coordinator of its own, so its seeds are played once.
    """
    is_design = protocols == (GroupProtocol.DESIGN_0_9,)
    profiles = list(PROFILES)[:1] if is_design else list(PROFILES)
    seeds = range(first_seed, first_seed + -(-schedules // len(profiles)))
    return [Run(seed, name, protocols=protocols) for seed in seeds for name in profiles]


def _commit() -> str:
    """Return the commit of this code, with a plus if the package is modified."""
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    )
    compared = ["git", "diff", "--quiet", "HEAD", "--", "spark_groups"]
    is_modified = subprocess.run(compared, check=False).returncode != 0
    return head.stdout.strip() + "+" * is_modified


def play(runs: Sequence[Run], jobs: int) -> dict[str, object]:
    """Play a piece, and return its line."""
    began_s = time.monotonic()
    breaks = hunt(runs, jobs=jobs)
    for each in breaks:
        broken = f"broken: {each.promise}: {each.text}\nrepeat: {each.run.command}"
        Console(stderr=True).print(broken, soft_wrap=True, markup=False)
    return {
        "commit": _commit(),
        "protocols": "+".join(each.value for each in runs[0].protocols),
        "first_seed": runs[0].seed,
        "last_seed": runs[-1].seed,
        "schedules": len(runs),
        "broken_seeds": "+".join(sorted({str(each.run.seed) for each in breaks})),
        "seconds": round(time.monotonic() - began_s),
        "load_average": round(os.getloadavg()[0], 1),
    }


def note(line: dict[str, object], path: Path = REACH) -> None:
    """Add a line to the file."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(line)


def table(known: Sequence[dict[str, str]]) -> str:
    """Return the text between the markers of the page: a line for each set of protocols."""
    lines = ["| protocols | seeds | schedules | hours | broken seeds |", "|---|---|---|---|---|"]
    for protocols in dict.fromkeys(each["protocols"] for each in known):
        own = [each for each in known if each["protocols"] == protocols]
        schedules = sum(int(each["schedules"]) for each in own)
        hours = sum(int(each["seconds"]) for each in own) / 3600
        broken = "+".join(each["broken_seeds"] for each in own if each["broken_seeds"])
        seeds = f"{own[0]['first_seed']} to {own[-1]['last_seed']}"
        name = protocols.replace("+", ", ")
        lines.append(f"| {name} | {seeds} | {schedules:,} | {hours:.1f} | {broken or 'none'} |")
    return "\n".join([BEGIN, *lines, END])


def page() -> str:
    """Return the page with the table of all pieces."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return before + table(rows()) + rest.split(END)[1]


def main() -> int:
    """Play pieces until there are enough schedules; the exit status is 1 if one breaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=PIECE, help="at least so many")
    parser.add_argument(
        "--protocol", default="consumer", help="as spark-groups simulate --protocol"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    chosen = parser.parse_args()
    protocols = tuple(GroupProtocol(each) for each in chosen.protocol.split(","))
    left = chosen.schedules
    while left > 0:
        line = play(piece_of(next_seed(rows()), min(left, PIECE), protocols), chosen.jobs)
        note(line)
        PAGE.write_text(page(), encoding="utf-8")
        Console().print(", ".join(f"{name} {value}" for name, value in line.items()))
        if line["broken_seeds"]:
            return 1
        left -= int(str(line["schedules"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
