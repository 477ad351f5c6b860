"""Every notebook runs, cell by cell, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "code")


def test_there_are_notebooks_and_none_keeps_its_output() -> None:
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), f"{notebook.name} was saved with output"


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("name", [each.name for each in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code_of(NOTEBOOKS / name)],
        cwd=tmp_path,
        env=environment(PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
