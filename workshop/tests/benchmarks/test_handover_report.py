"""The benchmark of hand-overs: pauses of diaries, and figures become a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workshop.benchmarks.handover_report import LIMITS_S, Figure, goals, page_of
from workshop.parts.handover_diary import Diary, Event, pauses, read_diary


def rows(at_s: float, *partitions: int) -> Event:
    return Event("rows", at_s, partitions)


def test_pause_is_the_longest_time_between_rows_of_all_members_around_a_moment() -> None:
    owner = [rows(1.0, 0, 1), rows(2.0, 0, 1), rows(3.0, 1), rows(9.0, 1)]
    joiner = [Event("joining", 2.5, ()), rows(6.0, 0), rows(6.5, 0)]
    found = pauses([*joiner, *owner], (0, 1), from_s=2.5, until_s=6.2)
    assert found == {0: 4.0, 1: 6.0}
    assert pauses(owner, (0,), from_s=5.0, until_s=8.0) == {0: 3.0}, "it was not read at all"


def test_diary_is_read_while_it_is_written(tmp_path: Path) -> None:
    assert read_diary(tmp_path) == []
    diary = Diary(tmp_path)
    diary.note("rows", {2, 1})
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"what": "ro')
    (event,) = read_diary(tmp_path)
    assert (event.what, event.partitions) == ("rows", (1, 2))


def reading(number: int, kind: str, figure: Figure, worst_s: float) -> dict[str, Any]:
    return {
        "round": number,
        "kind": kind,
        "figure": figure.name,
        "worst_s": worst_s,
        "median_s": worst_s / 2,
    }


def results(*readings: dict[str, Any]) -> dict[str, Any]:
    busy = {"number": 1, "took_s": 300.0, "load_average": 0.4, "company_cores": 0.05, "failed": []}
    unknown = {
        "number": 2,
        "took_s": 310.0,
        "load_average": 0.6,
        "company_cores": None,
        "failed": ["spark: static"],
    }
    return {
        "measured_at": "2026-01-01",
        "partitions": 6,
        "kafka": "4.3.1",
        "rounds": [busy, unknown],
        "readings": list(readings),
    }


def test_goals_are_compared_with_the_median_of_the_worst_partition() -> None:
    taken = [reading(number, "spark", Figure.JOIN, at) for number, at in enumerate((0.5, 0.9, 4.0))]
    (met,) = [each for each in goals(taken) if each.what == str(Figure.JOIN)]
    assert (met.verdict, met.limit) == ("met", 1.0)
    others = {each.verdict for each in goals(taken) if each.what != str(Figure.JOIN)}
    assert others == {"not measured"}
    assert len(goals(taken)) == len(LIMITS_S)


def test_page_has_rounds_goals_and_the_figures_of_every_kind() -> None:
    page = page_of(
        results(
            reading(1, "spark", Figure.JOIN, 2.5),
            reading(1, "consumer", Figure.JOIN, 5.0),
            reading(2, "consumer", Figure.JOIN, 6.0),
        )
    )
    assert "- round 1: 300 s; load average before it 0.4; other processes used 0.05" in page
    assert "other processes were not counted; failed: spark: static" in page
    assert f"| {Figure.JOIN} | <= 1 s | 2.50 s (2.50 to 2.50) | **missed** |" in page
    assert f"| {Figure.JOIN} | 2.50 (2.50 to 2.50) | 5.50 (5.00 to 6.00) | - |" in page
    assert "|  | 1.25 (1.25 to 1.25) | 2.75 (2.50 to 3.00) | - |" in page
    assert str(Figure.RESTART) not in page.split("## All figures")[1]


@pytest.mark.parametrize("figure", Figure)
def test_every_figure_has_its_own_words(figure: Figure) -> None:
    assert sum(each.value == figure.value for each in Figure) == 1
