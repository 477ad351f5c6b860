"""A runner's notes say which batch a plan is of, and when a batch is finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.group.ledger.plan_text import NOTHING_PLANNED, plan_as_json, plan_text
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic, parse_topic_id
from workshop.chaos.faults.schedule import Point
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.journal import Action, Orders
from workshop.chaos.members.member_notes import digest
from workshop.chaos.members.runner_notes import RunnerNotes
from workshop.chaos.results.facts import BatchKey, Facts, RunKey, read_facts
from workshop.chaos.setting import Files

KEY = RunKey("a1", 2)
FIRST = dict(NOTHING_PLANNED)
ANTS = parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path / "run", tmp_path)
    files.make()
    return files


def plan(until: int) -> BatchPlan:
    topic = PlanTopic(ANTS, "ants", known_count=1)
    ranges = (OffsetRange(ANTS, "ants", 0, 0, until),)
    return BatchPlan("chaos", "a member", 3, ranges=ranges, topics=(topic,))


def facts_of(files: Files) -> Facts:
    return read_facts((files.journals / "a1.jsonl").read_text().splitlines())


def log(files: Files, number: int, planned: BatchPlan) -> None:
    """Write offsets/N as Spark does."""
    text = f'v1\n{{"batchWatermarkMs":0}}\n{plan_text(planned)}'
    Checkpoint(files.checkpoint("a1")).plan(number, text)


def test_plan_is_noted_with_the_number_that_its_batch_will_have(files: Files) -> None:
    notes = RunnerNotes(files, KEY, 10.0)
    notes.note_plan(FIRST, plan_as_json(plan(5)))
    log(files, 0, plan(5))
    notes.note_plan(FIRST, plan_as_json(plan(5)))
    notes.note_plan(FIRST, plan_as_json(plan(9)))
    keys = [
        BatchKey("a1", number, digest(plan_as_json(plan(end)))) for number, end in ((0, 5), (1, 9))
    ]
    batches = facts_of(files).batches
    assert list(batches) == keys
    assert {batch.planned_by for batch in batches.values()} == {KEY}
    assert [list(batch.planned_s) for batch in batches.values()] == [[("ants", 0)]] * 2


def test_nothing_is_noted_before_the_first_plan(files: Files) -> None:
    RunnerNotes(files, KEY, 10.0).note_plan(FIRST, dict(FIRST))
    assert not facts_of(files).batches


def test_point_after_the_commit_log_is_passed_once_for_each_batch(files: Files) -> None:
    orders = Orders(files.orders("a1"))
    notes = RunnerNotes(files, KEY, 10.0)
    for number in (0, 1):
        orders.give(Action.BE_SLOW, Point.AFTER_COMMIT_LOG)
        notes.before_plan()
        assert orders.is_given()
        Checkpoint(files.checkpoint("a1")).finish(number)
        notes.before_plan()
        assert not orders.is_given()


def test_batch_of_the_commit_log_is_finished_when_it_was_written(files: Files) -> None:
    checkpoint = Checkpoint(files.checkpoint("a1"))
    checkpoint.finish(3)
    path = files.checkpoint("a1") / "commits" / "3"
    assert checkpoint.finished_s() == {3: path.stat().st_mtime}
