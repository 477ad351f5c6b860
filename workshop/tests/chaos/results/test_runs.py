"""Runs are noted in a file, good or bad, and the page adds them up."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import pytest

from spark_groups.cli.table_names import TableKind
from workshop.benchmarks import noted
from workshop.chaos.results import runs
from workshop.chaos.results.account import Cause
from workshop.chaos.results.report import INCOMPLETE
from workshop.tests.chaos.results.report_setup import circumstances, replayed
from workshop.tests.chaos.stories import TABLE

COMMAND = "python -m workshop.chaos.run --minutes 2 --seed 7"


def started() -> dict[str, object]:
    return runs.started(
        argparse.Namespace(command=COMMAND, seed=7, minutes=2.0, brokers=3, sinks=[TableKind.DELTA])
    )


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- chaos: begin -->\nold\n<!-- chaos: end -->\nafter\n")
    return path


def test_page_has_the_runs_of_the_file() -> None:
    assert noted.PAGE.read_text(encoding="utf-8") == runs.page_text()


def test_a_line_says_what_a_run_was_and_what_came_of_it(tmp_path: Path, page: Path) -> None:
    line = {**started(), **runs.result(circumstances(), replayed()), "exit_status": 0}
    runs.note(line, tmp_path / "chaos.csv", page)
    (read,) = noted.rows(tmp_path / "chaos.csv")
    assert tuple(read) == runs.COLUMNS
    assert re.fullmatch(r"[0-9a-f]{7,}\+?", read.pop("commit"))
    assert read == {
        "command": COMMAND,
        "seed": "7",
        "minutes": "2",
        "brokers": "3",
        "sinks": "delta",
        "load_mean": "1.2",
        "load_max": "3.5",
        "records": "5",
        "faults": "SIGKILL=4; a broker: SIGKILL=3; network: connections are reset=5",
        "lost": "0",
        "doubled": "append=5; delta=0",
        "causes": f"append: {Cause.REPLAYED_KILLED.value}=5",
        "sessions_lost_to_load": "0",
        "worst_recovery_s": "9.5",
        "exit_status": "0",
    }
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text


def test_page_adds_up_all_runs_and_shows_those_that_failed(tmp_path: Path, page: Path) -> None:
    path = tmp_path / "chaos.csv"
    broken = replayed()
    broken.tables[TABLE].lost, broken.tables[TABLE].doubled = 2, 3
    broken.table_causes[TABLE] = Counter({Cause.NONE: 3})
    for account, status in ((replayed(), 0), (broken, 1)):
        line = {**started(), **runs.result(circumstances(), account), "exit_status": status}
        runs.note({**line, "commit": "abc"}, path, page)
    runs.note({**started(), "commit": "abc", "exit_status": INCOMPLETE}, path, page)
    text = page.read_text()
    counts = "Runs with a result: 2; not good: 1; that could not complete"
    assert f"**4.0 minutes** of faults. {counts}, and do not count: 1." in text
    run = f"| abc | `{COMMAND}` |"
    assert f"{run} 1.2, 3.5 | 5 | 12 | 0 | 0 | 5 | 0 | 9.5 s | 0 |" in text
    assert f"{run} 1.2, 3.5 | 5 | 12 | 2 | 3 | 5 | 0 | 9.5 s | 1 |" in text
    assert f"{run}  |  |  |  |  |  |  |  | 2 |" in text
    assert "| sum | 4.0 minutes |  | 10 | 24 | 2 | 3 | 10 | 0 |  |  |" in text
    assert "| SIGKILL | 8 |" in text
    assert f"| append: {Cause.REPLAYED_KILLED.value} | 10 |" in text
    assert f"| {TABLE}: {Cause.NONE.value} | 3 |" in text


def test_page_without_runs_says_that(page: Path) -> None:
    assert "No run is noted yet." in runs.page_text(page.with_name("missing.csv"), page)
