"""Plays the README of an example as a reader would: block by block, in one shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.documents import ROOT, Block, blocks_of
from tests.jobs.submitted import spark_environment

EXAMPLES = ROOT / "examples"
PLAYED = "## Play it"
ADDRESS = "localhost:9092"
SUFFIXES = frozenset({".avsc", ".md", ".py", ".sql", ".toml"})
PLAY_S = 900.0


def played_blocks(name: str, language: str = "bash") -> list[Block]:
    """Return the blocks of a README that come after the heading `Play it`."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    _, heading, after = text.partition(f"\n{PLAYED}\n")
    assert heading, f"{name} has no part {PLAYED!r}"
    return [each for each in blocks_of(after) if each.language == language]


def play(
    name: str,
    directory: Path,
    bootstrap_servers: str,
    *,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run the commands of a README in a copy of its folder; return what they printed.

    The output has to contain every block of text that the README shows.

    Args:
        name: The folder of the example.
        directory: Where the copy is made.
        bootstrap_servers: Replaces the address of the README and of the files beside it.
        variables: Further environment variables.
    """
    copy = directory / name
    copy.mkdir()
    for path in (EXAMPLES / name).iterdir():
        # Not the output of an example that was played there.
        if path.suffix in SUFFIXES:
            text = path.read_text(encoding="utf-8")
            (copy / path.name).write_text(text.replace(ADDRESS, bootstrap_servers))
    blocks = "".join(each.text for each in played_blocks(name))
    script = "set -euo pipefail\n" + blocks.replace(ADDRESS, bootstrap_servers)
    log = directory / f"{name}.log"
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = spark_environment(PATH=programs, **(variables or {}))
    with log.open("wb") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code: int | None = shell.wait(PLAY_S)
        except subprocess.TimeoutExpired:
            exit_code = None
        finally:
            # What the script left running, if it failed.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(300)
    printed = log.read_text(encoding="utf-8", errors="replace")
    logs = "\n".join(
        f"--- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-4000:]}"
        for path in sorted(copy.glob("*.log"))
    )
    assert exit_code == 0, f"exit code {exit_code}\n{printed}\n{logs}"
    for shown in played_blocks(name, "text"):
        assert shown.text in printed, printed
    return printed
