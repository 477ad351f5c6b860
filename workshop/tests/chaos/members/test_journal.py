"""Notes survive their writer, and orders are carried out once."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest

from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.journal import Action, Journal, Orders, Points
from workshop.chaos.results.facts import Note, RunKey, read_facts
from workshop.parts.waiting import wait_until


def read(directory: Path) -> list[str]:
    return (directory / "q1.jsonl").read_text().splitlines()


def test_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path, RunKey("q1", 1))
    journal.note(Note.LATE, overdue_s=1.5)
    with (tmp_path / "q1.jsonl").open("ab") as file:
        file.write(b'{"at_s": 1')
    Journal(tmp_path, RunKey("q1", 2)).note(Note.LATE, overdue_s=2.5)
    facts = read_facts(read(tmp_path))
    found = {str(key): [each[1] for each in run.late] for key, run in facts.runs.items()}
    assert found == {"q1.1": [1.5], "q1.2": [2.5]}


def test_partitions_are_noted_if_there_are_any(tmp_path: Path) -> None:
    journal = Journal(tmp_path, RunKey("q1", 1))
    journal.note_partitions(Note.LOST, [], reason="fenced")
    journal.note_partitions(Note.LOST, [("bees", 1), ("ants", 2)], reason="fenced")
    departures = read_facts(read(tmp_path)).runs[RunKey("q1", 1)].departures
    assert set(departures) == {("ants", 2), ("bees", 1)}


def test_order_is_taken_at_its_point_and_once(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "order.json")
    assert orders.take(Point.AFTER_READ) is None
    orders.give(Action.BE_SLOW, Point.AFTER_READ, 2.5)
    assert orders.is_given()
    assert orders.take(Point.IN_APPEND) is None
    assert orders.take(Point.AFTER_READ) == (Action.BE_SLOW, 2.5)
    assert not orders.is_given()
    assert orders.take(Point.AFTER_READ) is None
    assert not orders.withdraw()


def test_slow_batch_is_reported_to_those_who_may_wait(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "order.json")
    points = Points(Journal(tmp_path, RunKey("q1", 1)), orders, lambda: False)
    orders.give(Action.BE_SLOW, Point.AFTER_READ, 0.01)
    assert points.observe(Point.AFTER_READ) == 0.01
    assert points.observe(Point.AFTER_READ) is None


def _reach(directory: Path) -> None:
    orders = Orders(directory / "order.json")
    Points(Journal(directory, RunKey("q1", 1)), orders, lambda: False).reach(Point.IN_COMMIT)


@pytest.mark.parametrize("action", [Action.KILL, Action.STAND_STILL])
def test_process_dies_or_stands_still_at_a_point_and_has_noted_it(
    tmp_path: Path, action: Action
) -> None:
    orders = Orders(tmp_path / "order.json")
    orders.give(action, Point.IN_COMMIT)
    process = multiprocessing.get_context("spawn").Process(target=_reach, args=(tmp_path,))
    process.start()
    try:
        if action is Action.STAND_STILL:
            wait_until(lambda: not orders.is_given(), what="the order to be taken")
            assert process.exitcode is None
            process.kill()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL
    finally:
        process.kill()
        process.join()
    run = read_facts(read(tmp_path)).runs[RunKey("q1", 1)]
    if action is Action.KILL:
        assert run.point == Point.IN_COMMIT.value
    else:
        assert len(run.frozen) == 1
