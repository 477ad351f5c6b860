"""The fuzzer finds planted faults, and a short slice of every target finds none."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from workshop.fuzz.run import ROOT, feed
from workshop.fuzz.targets import TARGETS

SEED = 13
INPUTS = {
    "records": 100,
    "toml": 100,
    "options": 300,
    "Delta tables": 200,
    "Iceberg tables": 200,
    "PostgreSQL tables": 200,
    "allow-lists": 300,
}
BROKEN = "workshop.tests.fuzz.broken"


# Each may run in another worker: together they take longer than all other tests of a file.
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(each.name, marks=pytest.mark.xdist_group(f"fuzz {each.name}"))
        for each in TARGETS
    ],
)
def test_a_short_slice_finds_nothing(target: str, tmp_path: Path) -> None:
    count = INPUTS.get(target, 600)
    outcome = feed(target, seed=SEED, count=count, directory=tmp_path)
    assert outcome.problem == "", f"{outcome.problem}\n{outcome.again}"
    assert outcome.fed > count


@pytest.mark.parametrize(
    ("target", "says"),
    [("overread", "signal 11"), ("raises", "KeyError"), ("memory", "MemoryError")],
)
def test_a_planted_fault_is_found_saved_and_played_again(
    target: str, says: str, tmp_path: Path
) -> None:
    outcome = feed(target, seed=SEED, count=5000, directory=tmp_path, table=BROKEN)
    assert says in outcome.problem
    assert outcome.saved is not None
    assert outcome.saved.parent == tmp_path
    again = subprocess.run(
        shlex.split(outcome.again), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert again.returncode != 0
    assert says in again.stdout + again.stderr or again.returncode == -signal.SIGSEGV


def test_a_right_target_is_fed_to_its_end(tmp_path: Path) -> None:
    outcome = feed("right", seed=SEED, count=10, directory=tmp_path, table=BROKEN)
    assert (outcome.fed, outcome.problem) == (11, "")
    assert list(tmp_path.iterdir()) == []
