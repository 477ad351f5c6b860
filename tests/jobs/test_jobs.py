"""All jobs, as they are called: their help, their examples, their length."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_options import CopyOptions, load_job
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import ERROR
from spark_groups.spark.processing.replay import replay_route
from tests.jobs.submitted import ROOT

JOBS = sorted((ROOT / "jobs").glob("[a-z]*.py"))
SOURCES = ROOT / "spark_groups" / "jobs"
LINES_MAX = 80


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_job_is_short_has_an_example_and_shows_it(job: Path) -> None:
    source = SOURCES / job.name
    assert len(source.read_text(encoding="utf-8").splitlines()) < LINES_MAX
    example = f"conf/{job.stem}.toml"
    assert (ROOT / example).is_file()
    done = subprocess.run(
        [sys.executable, str(job), "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=True,
    )
    for part in (f"jobs/{job.name}", example, "--config", "--set", "--group"):
        assert part in done.stdout


def test_what_strangers_wrote_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    job = runpy.run_module("spark_groups.jobs.replay_dead_letters")
    letter = Record(None, None, "t", 0, 0, 0, ((ERROR, b"\x1b[2Jbad\nworse"),))
    job["show"]([letter], replay_route())
    assert "topic): ?[2Jbad?worse\n1 dead letters" in capsys.readouterr().out


def test_copy_that_would_be_copied_again_is_refused() -> None:
    job = runpy.run_module("spark_groups.jobs.copy_topic")
    settings = [("--topics", "source.subscribe", "a,b"), ("--target", "target.topic", "b")]
    options = load_job(CopyOptions, ROOT / CopyOptions.example, settings)
    with pytest.raises(OptionsError, match=r"target\.topic: the job also reads b"):
        job["run"](None, options)
