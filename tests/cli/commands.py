"""Commands of `spark-groups`, run as somebody types them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner, Result

from spark_groups.cli.main import app
from workshop.parts.processes import environment

QUIET = {"SPARK_GROUPS_BOOTSTRAP_SERVERS": "", "COLUMNS": "", "FORCE_COLOR": "", "NO_COLOR": ""}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def runner(state_directory: Path) -> Run:
    """Return what runs one command with a state directory of its own; variables by name."""

    def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        state = {"SPARK_GROUPS_STATE_DIR": str(state_directory)}
        return subprocess.run(
            [sys.executable, "-m", "spark_groups.cli.main", *args],
            env={
                name: value
                for name, value in environment(**(QUIET | state | variables)).items()
                if value or name not in QUIET
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )

    return run


def invoke(*args: str, **variables: str) -> Result:
    """Run one command in this process, which is quicker; what it raises is in the result."""
    env = {"COLUMNS": None, "NO_COLOR": "1", **variables}
    return CliRunner().invoke(app, args, env=env, color=False)
