"""The command line of a job: what it sets, and how wrong options end it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from spark_groups.spark.jobs.job_options import CopyOptions, ReplayOptions
from spark_groups.spark.jobs.run import main

ROOT = Path(__file__).resolve().parents[3]
DRY_RUN = {"--dry-run": ("replay.dryRun", "Only look.")}


def never(*_: object) -> NoReturn:
    raise AssertionError("it ran")


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["jobs/replay.py", *arguments])


def test_wrong_options_end_it_with_two_and_name_the_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(
        monkeypatch,
        *("--config", str(ROOT / ReplayOptions.example), "--topics", "", "--dry-run"),
        *(
            "--set",
            "replay.to=nowhere",
            "--set",
            "replay.dryRun=perhaps",
            "--set",
            "query.trigger=soon",
        ),
    )
    with pytest.raises(SystemExit) as ended:
        main("Help.", ReplayOptions, never, flags=DRY_RUN)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("replay.py: the job's configuration is wrong:\n")
    for line in (
        "--topics: source.subscribe: ",
        "--set replay.dryRun: replay.dryRun: 'perhaps' is wrong",
        "--set replay.to: replay.to: 'nowhere' is wrong",
        "--set query.trigger: query.trigger: 'soon'",
    ):
        assert f"\n  - {line}" in said, said


def test_argument_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(monkeypatch, "--target", "t")
    with pytest.raises(SystemExit) as ended:
        main("Help.", CopyOptions, never)
    assert ended.value.code == 2
    assert "--target" in capsys.readouterr().err
