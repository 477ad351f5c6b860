"""All jobs, as they are called: their help, their examples, their length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.submitted import ROOT

JOBS = sorted((ROOT / "jobs").glob("*.py"))
LINES_MAX = 80


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_job_is_short_has_an_example_and_shows_it(job: Path) -> None:
    assert len(job.read_text(encoding="utf-8").splitlines()) < LINES_MAX
    example = f"conf/{job.stem}.toml"
    assert (ROOT / example).is_file()
    done = subprocess.run(
        [sys.executable, str(job), "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for part in (f"jobs/{job.name}", example, "--config", "--set", "--group"):
        assert part in done.stdout
