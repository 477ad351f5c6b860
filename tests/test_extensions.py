"""Without the laboratory its names are refused in one line; with it they are there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import spark_groups
from spark_groups import extensions

WITHOUT = """
import importlib.metadata, sys
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **wanted: found(group="no such group", **{
    name: value for name, value in wanted.items() if name != "group"})
"""
SENTENCE = "simulate belongs to the package kafka-group-lab, which is not installed"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def test_its_command_says_in_one_line_what_to_install() -> None:
    program = "from spark_groups.cli.main import main; sys.argv[1:] = {}; main()"
    done = run(program.format("['simulate', '--schedules', '1']"))
    assert done.returncode == 1
    assert done.stderr == f"spark-groups: {SENTENCE}: pip install kafka-group-lab\n"
    shown = run(program.format("['--help']")).stdout
    assert "describe" in shown
    assert "simulate" not in shown


def test_its_function_says_in_one_line_what_to_install() -> None:
    done = run("from spark_groups import simulate")
    assert done.stderr.splitlines()[-1].endswith(f"{SENTENCE}: pip install kafka-group-lab")
    assert run("from spark_groups.errors import *; from spark_groups import describe").stderr == ""


def test_they_appear_when_it_is_installed() -> None:
    assert extensions.installed(extensions.COMMANDS) == ("simulate", "replay")
    assert "simulate" in dir(spark_groups)
    assert spark_groups.simulate.__module__ == "group_lab.commands.simulation"
    with pytest.raises(extensions.NotInstalledError, match="nothing belongs to the package"):
        extensions.load(extensions.COMMANDS, "nothing")
