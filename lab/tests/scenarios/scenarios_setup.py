"""Shared by test_scenarios.py and other tests."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

from lab.tests.scenarios.facts import list_facts
from lab.tests.scenarios.transcript import Transcript, rewrite

FOLDER = Path(__file__).parent


README = FOLDER / "README.md"


SCENARIOS = sorted(FOLDER.glob("*.txt"))


SHOWN = 3


def compare(path: Path, version: str | None, play_line: Callable[[str], list[str]]) -> None:
    """Run the commands of a transcript, and compare or rewrite it.

    Args:
        path: The transcript.
        version: The minor version of the broker; None if there is none.
        play_line: Runs a command and returns what it prints.
    """
    outputs, wrong = run(path, version, play_line)
    if os.environ.get("REWRITE") == "1":
        rewrite(path, version, outputs)
        list_facts(README, SCENARIOS)
    else:
        assert not wrong, "\n" + "\n\n".join(wrong[:SHOWN])


def run(
    path: Path, version: str | None, play_line: Callable[[str], list[str]]
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Run the commands of a transcript; return the output of each block, and the differences."""
    outputs: list[tuple[str, ...]] = []
    wrong: list[str] = []
    for block in Transcript.read(path).blocks:
        where = f"{path.relative_to(FOLDER)}:{block.line}"
        said: list[str] = []
        try:
            for command in block.commands:
                said.extend(play_line(command))
        except Exception as error:
            so_far = "\n".join([f"{where}: {error!r} after {said}", *wrong[:SHOWN]])
            raise AssertionError(so_far) from error
        outputs.append(tuple(said))
        expected = block.expected.get(version or "4.0")
        if expected is None and (said or block.expected):
            wrong.append(f"{where}: no output is written for Kafka {version}")
        elif expected is not None and expected != tuple(said):
            difference = difflib.unified_diff(
                expected, said, "written", f"Kafka {version}", lineterm="", n=20
            )
            wrong.append("\n".join([f"{where}: {' ; '.join(block.commands)}", *difference]))
    return outputs, wrong
