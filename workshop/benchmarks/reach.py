"""`make reach`: play schedules of the simulation with fresh seeds, and note the results in a file.

It continues after the last seed in docs/benchmarks/reach.csv, and adds a line for each piece; the
table in docs/benchmarks/reliability.md sums them up. Stop it at any time: only whole pieces count.
With `--schedules 0` it only writes that table.
A piece with a broken promise ends early; the command prints how to repeat the run, and exits
with 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from group_lab.commands.simulation import Run, hunt
from group_lab.coordinator.profile import PROFILES
from group_lab.sim.swarm import GroupProtocol
from workshop.benchmarks import noted
from workshop.benchmarks.noted import PAGE

REACH: Final = noted.DOCS / "reach.csv"
COLUMNS: Final = (
    "commit",
    "python",
    "protocols",
    "first_seed",
    "last_seed",
    "schedules",
    "broken_seeds",
    "seconds",
    "load_average",
)
FIRST_SEED: Final = 30_000_001
"""Greater than every seed of a hunt before this file."""
PIECE: Final = 3_000
"""How many schedules a line of the file has."""


def rows(path: Path = REACH) -> list[dict[str, str]]:
    """Return the lines of the file."""
    return noted.rows(path)


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


def play(runs: Sequence[Run], jobs: int) -> dict[str, object]:
    """Play a piece, and return its line."""
    began_s = time.monotonic()
    breaks = hunt(runs, jobs=jobs)
    for each in breaks:
        broken = f"broken: {each.promise}: {each.text}\nrepeat: {each.run.command}"
        Console(stderr=True).print(broken, soft_wrap=True, markup=False)
    return {
        "commit": noted.commit_of("spark_groups", "lab/group_lab"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "protocols": "+".join(protocol.value for protocol in runs[0].protocols),
        "first_seed": runs[0].seed,
        "last_seed": runs[-1].seed,
        "schedules": len(runs),
        "broken_seeds": "+".join(sorted({str(each.run.seed) for each in breaks})),
        "seconds": round(time.monotonic() - began_s),
        "load_average": round(os.getloadavg()[0], 1),
    }


def note(line: dict[str, object], path: Path = REACH) -> None:
    """Add a line to the file."""
    noted.note(line, COLUMNS, path)


def table(known: Sequence[dict[str, str]]) -> list[str]:
    """Return the table of the page: a line for each set of protocols."""
    lines = []
    for protocols in dict.fromkeys(each["protocols"] for each in known):
        own = [each for each in known if each["protocols"] == protocols]
        schedules = sum(int(each["schedules"]) for each in own)
        hours = sum(int(each["seconds"]) for each in own) / 3600
        broken = "+".join(each["broken_seeds"] for each in own if each["broken_seeds"])
        seeds = f"{own[0]['first_seed']} to {own[-1]['last_seed']}"
        name = protocols.replace("+", ", ")
        lines.append((name, seeds, f"{schedules:,}", f"{hours:.1f}", broken or "none"))
    heads = ("protocols", "seeds", "schedules", "hours", "broken seeds")
    return noted.markdown_table(heads, lines)


def page() -> str:
    """Return the page with the table of all pieces."""
    return noted.page_with("reach", table(rows()))


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
    PAGE.write_text(page(), encoding="utf-8")
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
