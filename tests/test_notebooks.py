"""Every notebook runs, cell by cell, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def run(notebook: Path, directory: Path, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.notebook_cells", str(notebook)],
        cwd=directory,
        env=environment(
            PYSPARK_PYTHON=sys.executable,
            PYTHONPATH=str(ROOT),
            IPYTHONDIR=str(directory),
            MPLBACKEND="agg",
            **variables,
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_there_are_notebooks_and_none_keeps_its_output() -> None:
    assert NOTEBOOKS
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), f"{notebook.name} was saved with output"


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(420)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    run(notebook, tmp_path)


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(420)
def test_first_steps_run_through_spark_connect(tmp_path: Path) -> None:
    run(ROOT / "notebooks" / "first_steps.ipynb", tmp_path, SPARK_REMOTE="local[2]")
