"""Fixtures of the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.commands import Run, runner


@pytest.fixture
def command(tmp_path: Path) -> Run:
    """Run one command of `spark-groups` with a state directory of its own."""
    return runner(tmp_path / "state")
