"""One line for each event, with the columns that docs/simulation.md tells of."""

from __future__ import annotations

import uuid
from pathlib import Path

from spark_groups.lab.sim.event_log import LINE_LENGTH, LINES_KEPT, EventLog
from spark_groups.types import TopicIdPartition

ROOT = Path(__file__).parents[3]


def test_columns_are_time_who_epoch_what_and_details() -> None:
    log = EventLog()
    log.add(12.3456, "q1.2", "7", "runs", TopicIdPartition(uuid.UUID(int=1), 3), "two\nlines")
    assert log.lines() == ["    12.346 q1.2          7 runs       AQ-3 two lines"]


def test_only_the_last_lines_are_kept_and_none_is_endless() -> None:
    log = EventLog()
    for number in range(LINES_KEPT + 5):
        log.add(number, "q1", "", "says", "x" * 1_000)
    lines = log.lines()
    assert len(lines) == LINES_KEPT
    assert lines[0].split()[0] == "5.000"
    assert {len(line) for line in lines} == {LINE_LENGTH}


def test_every_word_that_is_logged_is_documented() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    source = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "spark_groups/lab/sim").glob("*.py")
    )
    words = {"starts", "dies", "fails", "freezes", "runs", "leaves", "says", "answers", "moves"}
    words |= {"crash", "move", "nolog", "cut", "grows", "deletes", "creates", "elects", "retains"}
    assert [word for word in words if f'"{word}"' not in source] == []
    assert [word for word in words if f"`{word}`" not in text] == []
