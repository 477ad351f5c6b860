"""The environments that make creates: the demo's is a part of the complete one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.documents import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COMPLETE = "--require-hashes -r requirements.lock"
DEMO = "--group demo --editable '.[spark]'"


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def planned(target: str, environment: Path) -> str:
    """What make would run for a target, with the environment in a directory."""
    return subprocess.run(
        ["make", "-n", target, f"VENV={environment}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=800,
    ).stdout


def complete(environment: Path) -> None:
    """An environment as `make env` leaves it."""
    (environment / "bin").mkdir(parents=True)
    for name in ("bin/uv", ".packages-installed", ".project-installed"):
        (environment / name).touch()


def test_the_demo_of_a_new_checkout_installs_only_what_it_needs(tmp_path: Path) -> None:
    commands = planned("demo", tmp_path / "new")
    assert DEMO in commands
    assert COMPLETE not in commands
    assert commands.index("venv --without-pip") < commands.index(DEMO)
    assert commands.index(DEMO) < commands.index("-m demo.run")


def test_the_demo_installs_nothing_in_a_complete_environment(tmp_path: Path) -> None:
    complete(tmp_path)
    commands = planned("demo", tmp_path)
    assert "pip install" not in commands
    assert "-m demo.run" in commands


def test_tests_get_the_complete_environment_after_the_demo(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/uv", ".demo-installed"):
        (tmp_path / name).touch()
    commands = planned("test", tmp_path)
    assert COMPLETE in commands
    assert "--without-pip" not in commands


def test_the_lock_has_a_version_of_all_that_the_demo_installs() -> None:
    """A package that the lock lacks would be installed without a hash."""
    table = project()
    asked = [
        *table["project"]["dependencies"],
        *table["project"]["optional-dependencies"]["spark"],
        *table["dependency-groups"]["demo"],
        *table["build-system"]["requires"],
    ]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==", lock, re.MULTILINE))
    assert {Requirement(each).name for each in asked} <= pinned


@pytest.mark.parametrize("group", ["demo", "docs"])
def test_the_complete_environment_includes_the_smaller_ones(group: str) -> None:
    assert {"include-group": group} in project()["dependency-groups"]["dev"]
