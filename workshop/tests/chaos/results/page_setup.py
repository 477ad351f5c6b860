"""Shared by test_page.py and other tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from workshop.chaos.results.facts import Note, read_notes
from workshop.chaos.results.recovery import Pause
from workshop.chaos.results.report import as_plain
from workshop.chaos.results.timeline import Timeline, read_timeline
from workshop.tests.chaos.results.report_setup import circumstances
from workshop.tests.chaos.stories import TOPIC, Story

CUT = "a broker: SIGKILL"


def laid_out(story: Story) -> tuple[Timeline, dict[str, Any]]:
    """Return the lanes of a story, and its report."""
    pause = Pause(3.0, (TOPIC, 0), "q1.1", 4.0)
    run = replace(
        circumstances(),
        began_s=0.0,
        faults_from_s=2.0,
        minutes=0.5,
        disruptions=tuple(story.disruptions),
        recoveries=replace(circumstances().recoveries, unaffected=pause, neighbour=Pause()),
    )
    report = json.loads(json.dumps(as_plain(run, story.account())))
    return read_timeline(story.evidence(), read_notes(story.lines), report), report


def quiet(story: Story, seconds: int) -> None:
    """Let some time go with notes that mean nothing."""
    for _ in range(seconds):
        story.note("q9.1", Note.THAWED)


def eventful() -> Story:
    """A process is stopped, loses its session and is killed; another one reads on, much later."""
    story = Story()
    story.note("q1.1", Note.BEGINS)
    story.whole_batch("q1.1", 0, range(5))
    story.note("q1.1", Note.FROZE)
    quiet(story, 3)
    story.note("q1.1", Note.THAWED)
    story.note_partition("q1.1", Note.LOST)
    story.note("q1.1", Note.CRASHES, point="in a table's commit")
    story.ends("q1.1")
    story.broker_fails(CUT)
    story.note("q2.1", Note.BEGINS)
    story.whole_batch("q2.1", 0, range(5, 10))
    story.note("q1.2", Note.BEGINS)
    story.note("ensemble.0", Note.GREW, topic=TOPIC)
    return story


def kept(story: Story, directory: Path) -> Path:
    """Write the files of a story as a run keeps them."""
    _, report = laid_out(story)
    (directory / "journals").mkdir()
    (directory / "journals" / "all.jsonl").write_text("\n".join(story.lines))
    (directory / "report.json").write_text(json.dumps(report))
    (directory / "setting.json").write_text(
        json.dumps({"queries": {"q1": {}, "q2": {}}, "rebalance_timeout_ms": 60_000})
    )
    return directory
