"""All runs that were noted: docs/benchmarks/chaos.csv, and the tables made from it.

`make chaos RECORD=1` adds a line to the file, also if the run fails or cannot complete, and writes
the tables in docs/benchmarks/reliability.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from workshop.benchmarks import noted
from workshop.chaos.results.account import Account, SessionLoss
from workshop.chaos.results.report import INCOMPLETE, Circumstances

RUNS: Final = noted.DOCS / "chaos.csv"
PLACES: Final = ("spark_groups", "workshop/chaos")
"""What a commit is the state of."""
COLUMNS: Final = (
    "commit",
    "command",
    "seed",
    "minutes",
    "brokers",
    "sinks",
    "load_mean",
    "load_max",
    "records",
    "faults",
    "lost",
    "doubled",
    "causes",
    "sessions_lost_to_load",
    "worst_recovery_s",
    "exit_status",
)
_HEADS: Final = (
    "commit",
    "command",
    "load: mean, highest",
    "records",
    "faults",
    "lost",
    "doubled: tables",
    "append",
    "sessions lost to load",
    "slowest recovery",
    "exit status",
)
APPEND: Final = "append"


def started(chosen: argparse.Namespace) -> dict[str, object]:
    """Return the part of a line that is known when a run starts.

    Args:
        chosen: The options of the run, and the command that repeats it.
    """
    return {
        "commit": noted.commit_of(*PLACES),
        "command": chosen.command,
        "seed": chosen.seed,
        "minutes": f"{chosen.minutes:g}",
        "brokers": chosen.brokers,
        "sinks": "+".join(sink.value for sink in chosen.sinks),
    }


def result(circumstances: Circumstances, account: Account) -> dict[str, object]:
    """Return the part of a line that is known when the sinks were compared.

    Args:
        circumstances: What the run was.
        account: What came of it.
    """
    sinks = {APPEND: account.append, **account.tables}
    faults = {kind: found.get("done", 0) for kind, found in circumstances.faults.items()}
    causes = {
        f"{name}: {cause.value}": count
        for name, found in {APPEND: account.causes, **account.table_causes}.items()
        for cause, count in found.items()
    }
    recoveries = circumstances.recoveries.by_kind
    return {
        "load_mean": round(circumstances.load_mean, 1),
        "load_max": round(circumstances.load_max, 1),
        "records": account.produced,
        "faults": _joined(faults),
        "lost": sum(sink.lost for sink in sinks.values()),
        "doubled": "; ".join(f"{name}={sink.doubled}" for name, sink in sinks.items()),
        "causes": _joined(causes),
        "sessions_lost_to_load": account.sessions_lost[SessionLoss.LOAD],
        "worst_recovery_s": round(
            max((recovery.reads_max_s for recovery in recoveries), default=0.0), 1
        ),
    }


def note(line: Mapping[str, object], path: Path = RUNS, page: Path = noted.PAGE) -> None:
    """Add a line to the file, and write the tables of the page.

    Args:
        line: The line.
        path: The file.
        page: The page.
    """
    noted.note(line, COLUMNS, path)
    noted.write_section(page, "chaos", tables(noted.rows(path)))


def page_text(path: Path = RUNS, page: Path = noted.PAGE) -> str:
    """Return the page with the tables of all runs.

    Args:
        path: The file.
        page: The page.
    """
    return noted.page_with("chaos", tables(noted.rows(path)), page)


def tables(known: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the tables: a line for each run, faults by kind, doubled rows by cause.

    Args:
        known: The lines of the file.
    """
    if not known:
        return ["No run is noted yet."]
    ended = [each for each in known if each["exit_status"] != str(INCOMPLETE)]
    failed = [each for each in ended if each["exit_status"] != "0"]
    minutes = sum(float(each["minutes"]) for each in ended)
    sums = ("sum", f"{minutes:,.1f} minutes", "", *_sums(ended), "", "")
    lines = [
        f"**{minutes:,.1f} minutes** of faults. Runs with a result: {len(ended):,}; not"
        f" good: {len(failed):,}; that could not complete, and do not count:"
        f" {len(known) - len(ended):,}.",
        "",
        *noted.markdown_table(_HEADS, (*map(_run_cells, known), sums)),
    ]
    for column, what, how_many in (
        ("faults", "fault", "how often"),
        ("causes", "sink, and why rows are in it again", "rows"),
    ):
        found: Counter[str] = Counter()
        for each in ended:
            found += _parted(each[column])
        counts = ((name, f"{count:,}") for name, count in found.most_common())
        lines += noted.markdown_table((what, how_many), counts)
    return lines


def _run_cells(run: Mapping[str, str]) -> Iterable[str]:
    commit, command = run["commit"], f"`{run['command']}`"
    if run["exit_status"] == str(INCOMPLETE):
        return (commit, command, *("" for _ in _HEADS[3:]), run["exit_status"])
    load = f"{run['load_mean']}, {run['load_max']}"
    slowest = f"{run['worst_recovery_s']} s"
    return (commit, command, load, *_sums([run]), slowest, run["exit_status"])


def _sums(runs: Sequence[Mapping[str, str]]) -> Iterable[str]:
    """Return the cells of columns that can be added up."""
    doubled = [_parted(run["doubled"]) for run in runs]
    in_append = sum(each[APPEND] for each in doubled)
    sums = (
        sum(int(run["records"]) for run in runs),
        sum(_parted(run["faults"]).total() for run in runs),
        sum(int(run["lost"]) for run in runs),
        sum(each.total() for each in doubled) - in_append,
        in_append,
        sum(int(run["sessions_lost_to_load"]) for run in runs),
    )
    return (f"{each:,}" for each in sums)


def _joined(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{name}={count}" for name, count in counts.items() if count)


def _parted(text: str) -> Counter[str]:
    """Read counts that `_joined` has written."""
    found: Counter[str] = Counter()
    for part in filter(None, text.split("; ")):
        name, _, count = part.rpartition("=")
        found[name] = int(count)
    return found
