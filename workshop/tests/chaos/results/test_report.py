"""The report says what a run was and what came of it, for people and for programs."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from dataclasses import replace

from rich.console import Console

from workshop.chaos.results.account import Account, Cause
from workshop.chaos.results.report import (
    Circumstances,
    all_problems,
    as_plain,
    as_tables,
    exit_status,
)
from workshop.tests.chaos.results.report_setup import circumstances, replayed
from workshop.tests.chaos.stories import TABLE


def shown(run: Circumstances, found: Account) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(as_tables(run, found))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_good_run_is_called_good() -> None:
    text = shown(circumstances(), replayed())
    assert "GOOD: nothing is lost, and every double has a cause" in text
    assert "NOT GOOD" not in text
    for part in (" 7 │", "1.2, 3.5", "SIGKILL", "in a table's commit", "Spark ran the batch"):
        assert part in text, part
    assert re.search(r"a broker: SIGKILL +│ +3 │ +2 │", text)
    assert re.search(r"network: connections are reset +│ +5 │ +6 │", text)
    assert re.search(r"a kind +│ +3 │ +4\.2 │ +9\.5 │ +5\.0 │ +11\.5 │ +1 │", text)
    assert re.search(r"broker 2, 10 s: a kind +│ read again after 9.5 s", text)
    assert "2.2 s: ants-0, q1.1, at 3 s" in text
    assert "python -m workshop.chaos.run --minutes 2 --seed 7" in text


def test_every_problem_is_reported() -> None:
    account = replayed()
    account.tables[TABLE].doubled = 3
    account.table_causes[TABLE] = Counter({Cause.FENCED_FROZEN: 3})
    account.examples.append("delta: the first of them")
    run = circumstances("not everything was committed")
    text = shown(run, account)
    assert "NOT GOOD: 3 rows doubled in delta" in text
    assert "NOT GOOD: not everything was committed" in text
    assert "delta: the first of them" in text
    assert re.search(r"why rows are in delta again +\n.*\n│ stood still beyond .* │ +3 │", text)
    assert as_plain(run, account)["table_causes"] == {TABLE: {Cause.FENCED_FROZEN.value: 3}}
    assert len(all_problems(run, account)) == 2


def test_run_that_does_not_count_is_not_good_and_a_broken_promise_comes_first() -> None:
    assert exit_status(circumstances(), replayed()) == 0
    untried = replace(circumstances(), shortfalls=("no record was produced",))
    text = shown(untried, replayed())
    assert "DOES NOT COUNT: no record was produced" in text
    assert "GOOD: nothing is lost" not in text
    assert exit_status(untried, replayed()) == 2
    plain = as_plain(untried, replayed())
    assert (plain["is_good"], plain["problems"]) == (False, [])
    assert exit_status(replace(untried, problems=("it hung",)), replayed()) == 1


def test_programs_get_the_same_as_json() -> None:
    plain = json.loads(json.dumps(as_plain(circumstances(), replayed())))
    assert plain["is_good"] is True
    assert plain["faults"]["SIGKILL"] == {"done": 4, "skipped": 1}
    assert plain["faults"]["a broker: SIGKILL"] == {"done": 3, "skipped": 2}
    assert plain["troubles"][0]["members"] == ["q1"]
    assert plain["disruptions"][0]["led"] == [["ants", 0]]
    assert plain["append"]["doubled"] == 5
    assert plain["tables"]["delta"]["rows"] == 5
    assert sum(plain["causes"].values()) == 5
    bad = as_plain(circumstances("it hung"), replayed())
    assert (bad["is_good"], bad["problems"]) == (False, ["it hung"])
