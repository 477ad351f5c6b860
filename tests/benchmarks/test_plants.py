"""The table of planted bugs: each bug is in it, and counts as found only by a check it is for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import noted, plants, reach
from benchmarks.plants import Faults, Finding, Schedules, Way
from chaos.plants import Part, Plant
from spark_groups.lab.commands.simulation import Break, Run

QUIET = Console(quiet=True)


def test_the_page_names_every_bug_and_who_found_it() -> None:
    assert noted.PAGE.read_text(encoding="utf-8") == plants.page()
    known = noted.rows(plants.RESULTS)
    played = [(each["plant"], each["way"]) for each in known]
    assert played == [
        (plant.value, (Way.SIMULATION if isinstance(of, Schedules) else Way.CHAOS).value)
        for plant, plays in plants.PLAYS.items()
        for of in plays
    ]
    assert {each for each, _ in played} == {each.value for each in Plant}
    assert all(each["found_by"] for each in known)


def test_ten_bugs_at_least_are_spread_over_all_parts() -> None:
    assert len(Plant) >= 10
    assert {plants.DESCRIPTIONS[each].part for each in plants.PLAYS} == set(Part)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The promises that schedules break, one after the other; then none."""
    promises: list[str] = []

    def play(run: Run) -> Break | None:
        promise = promises.pop(0) if promises else ""
        return Break(run, promise, "a record was skipped", ()) if promise else None

    monkeypatch.setattr(plants, "play", play)
    monkeypatch.setattr(plants, "plant_in_member", lambda _: None)
    return promises


def test_only_the_promises_of_a_bug_find_it(breaking: list[str]) -> None:
    breaking += ["", "request rate", "no gap"]
    found = plants.hunt(Plant.COMMITS_PLANNED, Schedules(("no gap",), 12))
    assert (found.after, found.found_by) == ("3 schedules", "no gap")
    breaking += ["request rate"]
    missed = plants.hunt(Plant.COMMITS_PLANNED, Schedules(("no gap",), 12))
    assert (missed.after, missed.found_by) == ("12 schedules", "")
    assert missed.details.startswith("request rate: spark-groups simulate")


def test_bug_of_one_hunt_is_in_no_other_process() -> None:
    found = plants.simulate(Plant.NEWEST_EPOCH, Schedules(("commit epochs",), 60))
    assert found.found_by == "commit epochs"
    runs = reach.piece_of(plants.FIRST_SEED, 6, (reach.GroupProtocol.CONSUMER,))
    assert not any(map(plants.play, runs))


def reported(problems: list[str], status: int) -> list[str]:
    """Return the arguments of a program with such a report, in place of chaos."""
    text = json.dumps({"problems": problems})
    return ["-c", f"import sys; print({text!r}); sys.exit({status})", "its arguments"]


@pytest.mark.parametrize(
    ("problems", "found_by"),
    [
        (["7 records lost in sqlite", "1 replays that differ"], "7 records lost in sqlite"),
        (["1 replays that differ"], ""),
        ([], ""),
    ],
)
def test_only_the_problems_of_a_bug_find_it(
    monkeypatch: pytest.MonkeyPatch, problems: list[str], found_by: str
) -> None:
    monkeypatch.setattr(Faults, "words", lambda *_: reported(problems, 1))
    found = plants.run_chaos(Plant.LAST_RECORD, Faults(("records lost",)))
    assert found.found_by == found_by
    assert found.details == ("" if found_by else "; ".join(problems))


def test_run_that_could_not_be_made_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-c", "import sys; sys.exit('no Java')"]
    monkeypatch.setattr(Faults, "words", lambda *_: words)
    found = plants.run_chaos(Plant.LAST_RECORD, Faults(("records lost",)))
    assert (found.found_by, found.details) == ("", "no Java")


def test_run_that_takes_too_long_is_ended_and_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Faults, "words", lambda *_: ["-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(plants, "SPARE_S", 1.0)
    line = plants.played(Plant.LAST_RECORD, Faults(("records lost",), minutes=0.0), QUIET)
    assert (line["found_by"], line["after"]) == ("", "1 s")


def test_words_of_a_run_are_those_that_repeat_it() -> None:
    words = Faults(("records lost",), minutes=1.0, seed=3).words(Plant.CUT_FETCH)
    shown = "-m chaos.run --plant cut-fetch --seed 3 --minutes 1 --sinks sqlite"
    assert " ".join(words) == shown


def line(plant: Plant, way: Way, found_by: str) -> dict[str, str]:
    counted = {"after": "7 schedules", "seconds": "3", "load_average": "1.5"}
    fixed = {"commit": "abc", "repeat": "again", **counted}
    return {"plant": plant.value, "way": way.value, "found_by": found_by, **fixed}


def test_new_line_takes_the_place_of_the_old_one_in_the_file(tmp_path: Path) -> None:
    last = line(Plant.KAFKA_FIRST, Way.CHAOS, "3 gaps refused by a table")
    old = [line(Plant.EARLY_RELEASE, Way.CHAOS, ""), last]
    new = line(Plant.EARLY_RELEASE, Way.CHAOS, "2 doubled rows without a cause")
    path = tmp_path / "plants.csv"
    plants.note(plants.merged(old, [new]), path)
    assert noted.rows(path) == [new, last]


def test_table_says_what_found_a_bug_and_how_fast() -> None:
    shown = plants.table(
        [
            line(Plant.NEWEST_EPOCH, Way.SIMULATION, "commit epochs"),
            line(Plant.CUT_FETCH, Way.CHAOS, ""),
        ]
    ).splitlines()
    assert shown[2].endswith("| simulation | 7 schedules: 3 s in all | commit epochs | 1.5 |")
    assert shown[3].endswith("| NOT FOUND | 1.5 |")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = tmp_path / "reliability.md"
    page.write_text(
        "before\n<!-- plants: begin -->\n<!-- plants: end -->\nafter\n", encoding="utf-8"
    )
    monkeypatch.setattr(noted, "PAGE", page)
    monkeypatch.setattr(plants, "RESULTS", tmp_path / "plants.csv")
    return page


@pytest.mark.parametrize(("found_by", "status"), [("no gap", 0), ("", 1)])
def test_exit_status_says_whether_every_bug_was_found(
    results: Path, monkeypatch: pytest.MonkeyPatch, found_by: str, status: int
) -> None:
    monkeypatch.setattr(plants, "simulate", lambda *_: Finding("again", "7 schedules", found_by))
    monkeypatch.setattr("sys.argv", ["plants", "commits-planned", "--way", "simulation"])
    assert plants.main() == status
    shown = results.read_text(encoding="utf-8").splitlines()
    assert shown[0] == "before"
    assert shown[-1] == "after"
    assert "| ledger | `commits-planned` |" in "".join(shown)
