"""The files of the examples are right, without a broker: configurations, and shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_groups.spark.jobs.job_options import ConsumeOptions, JobOptions, ReplayOptions, load_job
from tests.documents import assert_command_exists, blocks_of, commands_of
from tests.examples.played import EXAMPLES, PLAYED, played_blocks

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
CONFIGURATIONS = sorted(EXAMPLES.glob("*/*.toml"))


def kind_of(path: Path) -> type[JobOptions]:
    return ReplayOptions if path.stem == "replay" else ConsumeOptions


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_configuration_is_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.chdir(path.parent)
    options = load_job(kind_of(path), path)
    assert options.source["kafka.bootstrap.servers"] == "localhost:9092"


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_shell(name: str) -> None:
    script = "".join(each.text for each in played_blocks(name))
    assert script.count("localhost:9092") >= 1
    done = subprocess.run(
        ["bash", "-n"], input=script, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_commands_before_exist(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8").partition(PLAYED)[0]
    commands = [each for block in blocks_of(text) for each in commands_of(block)]
    assert commands
    for command in commands:
        assert_command_exists(command)
