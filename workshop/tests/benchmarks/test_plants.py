"""The table of planted bugs: each bug is in it, and counts as found only by a check it is for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from group_lab.commands.simulation import Break, Run
from workshop.benchmarks import noted, plants, reach
from workshop.benchmarks.plants import (
    GOOD,
    Controls,
    Faults,
    Finding,
    NoReportError,
    Schedules,
    Way,
)
from workshop.chaos.plants import Part, Plant

QUIET = Console(quiet=True)
BROKEN_SEED = 66
"""Its runs lose records without a bug."""


def test_the_page_names_every_bug_and_who_found_it() -> None:
    assert noted.PAGE.read_text(encoding="utf-8") == plants.page()
    known = noted.rows(plants.RESULTS)
    played = [(each["plant"], each["way"]) for each in known]
    assert played == [
        (plant.value, (Way.SIMULATION if isinstance(of, Schedules) else of.way).value)
        for plant, plays in plants.PLAYS.items()
        for of in plays
    ]
    assert {each for each, _ in played} == {each.value for each in Plant}
    assert all(each["found_by"] for each in known)
    # Empty: the control was not played yet.
    assert {each["control_result"] for each in known} <= {"", GOOD}


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
    assert found.schedule is not None
    third = reach.piece_of(plants.FIRST_SEED, 3, (reach.GroupProtocol.CONSUMER,))[2]
    assert found.schedule == third
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
    faults = Faults(("records lost",), minutes=0.0)
    line = plants.played(Plant.LAST_RECORD, faults, Controls(QUIET), QUIET)
    assert (line["found_by"], line["control"], line["control_result"]) == ("", "", "")


def test_words_of_a_run_are_those_that_repeat_it() -> None:
    faults = Faults(("records lost",), minutes=1.0, seed=3)
    rest = "--seed 3 --minutes 1 --sinks sqlite"
    assert (
        " ".join(faults.words(Plant.CUT_FETCH)) == f"-m workshop.chaos.run --plant cut-fetch {rest}"
    )
    assert " ".join(faults.words(None)) == f"-m workshop.chaos.run {rest}"
    on_network = replace(faults, way=Way.NETWORK)
    assert (
        " ".join(on_network.words(None))
        == f"-m workshop.chaos.run {rest} --brokers 3 --faults network"
    )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Plant | None]:
    """The runs of chaos so far: by their bugs. A bug loses records, and a control is good."""
    made: list[Plant | None] = []

    def problems_of(faults: Faults, plant: Plant | None) -> list[str]:
        made.append(plant)
        return ["7 records lost in sqlite"] if plant or faults.seed == BROKEN_SEED else []

    monkeypatch.setattr(plants, "problems_of", problems_of)
    return made


def test_bugs_with_the_same_run_share_one_control(runs: list[Plant | None]) -> None:
    faults, controls = Faults(("records lost",)), Controls(QUIET)
    lines = [
        plants.played(each, faults, controls, QUIET)
        for each in (Plant.LAST_RECORD, Plant.CUT_FETCH)
    ]
    assert runs == [Plant.LAST_RECORD, None, Plant.CUT_FETCH]
    command = "python -m workshop.chaos.run --seed 18 --minutes 0.5 --sinks sqlite"
    assert [(each["control"], each["control_result"]) for each in lines] == [(command, GOOD)] * 2
    assert all(map(plants.is_found, lines))
    plants.played(Plant.CUT_FETCH, replace(faults, minutes=1.0), controls, QUIET)
    assert runs[3:] == [Plant.CUT_FETCH, None]


def test_find_does_not_count_if_the_control_finds_something_too(
    runs: list[Plant | None],
) -> None:
    faults = Faults(("records lost",), seed=BROKEN_SEED)
    line = plants.played(Plant.LAST_RECORD, faults, Controls(QUIET), QUIET)
    assert runs == [Plant.LAST_RECORD, None]
    assert line["found_by"] == line["control_result"] == "7 records lost in sqlite"
    assert not plants.is_found(line)
    shown = "\n".join(plants.table([line]))
    assert "| DOES NOT COUNT: without the bug: 7 records lost in sqlite |" in shown


def test_control_without_a_report_is_not_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def problems_of(_: Faults, plant: Plant | None) -> list[str]:
        if plant is None:
            raise NoReportError("no Java")
        return ["7 records lost in sqlite"]

    monkeypatch.setattr(plants, "problems_of", problems_of)
    line = plants.played(Plant.LAST_RECORD, Faults(("records lost",)), Controls(QUIET), QUIET)
    assert (line["found_by"], line["control_result"]) == ("7 records lost in sqlite", "no Java")
    assert not plants.is_found(line)


def test_control_of_a_schedule_is_the_schedule_without_the_bug(breaking: list[str]) -> None:
    (schedule,) = reach.piece_of(plants.FIRST_SEED, 1, (reach.GroupProtocol.CONSUMER,))[:1]
    found = Finding("1 schedule", "no gap", schedule=schedule)
    controls, schedules = Controls(QUIET), Schedules(("no gap",))
    assert controls.of(schedules, found) == (schedule.command, GOOD)
    breaking += ["no gap"]
    assert controls.of(schedules, found)[1] == GOOD, "it is played once"
    assert Controls(QUIET).of(schedules, found)[1] == "no gap: a record was skipped"


def line(plant: Plant, way: Way, found_by: str) -> dict[str, str]:
    counted = {"after": "7 schedules", "seconds": "3", "load_average": "1.5"}
    control = {"control": "without", "control_result": GOOD if found_by else ""}
    fixed = {"commit": "abc", "repeat": "again", **counted, **control}
    return {"plant": plant.value, "way": way.value, "found_by": found_by, **fixed}


def test_new_line_takes_the_place_of_the_old_one_in_the_file(tmp_path: Path) -> None:
    last = line(Plant.KAFKA_FIRST, Way.CHAOS, "3 gaps refused by a table")
    old = [line(Plant.EARLY_RELEASE, Way.CHAOS, ""), last]
    new = line(Plant.EARLY_RELEASE, Way.CHAOS, "2 doubled rows without a cause")
    path = tmp_path / "plants.csv"
    noted.write(plants.merged(old, [new]), plants.COLUMNS, path)
    assert noted.rows(path) == [new, last]


def test_table_says_what_found_a_bug_and_how_fast() -> None:
    shown = plants.table(
        [
            line(Plant.NEWEST_EPOCH, Way.SIMULATION, "commit epochs"),
            line(Plant.CUT_FETCH, Way.CHAOS, ""),
        ]
    )
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


def test_only_plays_without_a_good_control_are_played_again(
    results: Path, monkeypatch: pytest.MonkeyPatch, runs: list[Plant | None]
) -> None:
    good = line(Plant.KAFKA_FIRST, Way.CHAOS, "3 gaps refused by a table")
    without = {**line(Plant.LAST_RECORD, Way.CHAOS, "7 records lost"), "control_result": ""}
    noted.write([without, good], plants.COLUMNS, plants.RESULTS)
    names = [Plant.LAST_RECORD.value, Plant.KAFKA_FIRST.value]
    monkeypatch.setattr("sys.argv", ["plants", "--missing", *names])
    assert plants.main() == 0
    assert runs == [Plant.LAST_RECORD, None]
    assert [each["control_result"] for each in noted.rows(plants.RESULTS)] == [GOOD, GOOD]
    assert "not yet played" not in results.read_text(encoding="utf-8")


@pytest.mark.parametrize(("commit", "plays"), [("abc", 0), ("abd", 1), ("abc+", 1)])
def test_control_of_the_same_commit_is_not_played_again(
    monkeypatch: pytest.MonkeyPatch, runs: list[Plant | None], commit: str, plays: int
) -> None:
    faults = Faults(("records lost",))
    command = " ".join(["python", *faults.words(None)])
    known = {**line(Plant.CUT_FETCH, Way.CHAOS, "7 records lost"), "control": command}
    known["commit"] = commit if commit.endswith("+") else known["commit"]
    monkeypatch.setattr(noted, "commit_of", lambda *_: commit)
    found = Finding("0.5 min of faults", "7 records lost")
    assert Controls(QUIET, [known]).of(faults, found) == (command, GOOD)
    assert len(runs) == plays


@pytest.mark.parametrize(("found_by", "status"), [("no gap", 0), ("", 1)])
def test_exit_status_says_whether_every_bug_was_found(
    results: Path, monkeypatch: pytest.MonkeyPatch, found_by: str, status: int
) -> None:
    (schedule,) = reach.piece_of(plants.FIRST_SEED, 1, (reach.GroupProtocol.CONSUMER,))[:1]
    found = Finding("7 schedules", found_by, schedule=schedule)
    monkeypatch.setattr(plants, "simulate", lambda *_: found)
    monkeypatch.setattr("sys.argv", ["plants", "commits-planned", "--way", "simulation"])
    assert plants.main() == status
    shown = results.read_text(encoding="utf-8").splitlines()
    assert shown[0] == "before"
    assert shown[-1] == "after"
    assert "| ledger | `commits-planned` |" in "".join(shown)
