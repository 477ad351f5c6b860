"""Every notebook runs, cell by cell, in a process of its own, and keeps what it showed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_groups
from workshop.parts.processes import environment

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FIRST_STEPS = ROOT / "notebooks" / "first_steps.ipynb"
THROUGH_CONNECT = [FIRST_STEPS, ROOT / "notebooks" / "kill_a_writer.ipynb"]


CLIENTS = frozenset(
    {"confluent_kafka", "deltalake", "IPython", "matplotlib", "pandas", "pyarrow", "pyspark"}
)
"""What notebooks import beside the standard library and the public names of this package."""


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    document = json.loads(notebook.read_text(encoding="utf-8"))
    return [each for each in document["cells"] if each["cell_type"] == "code"]


def code_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def run(notebook: Path, directory: Path, **variables: str) -> str:
    """Run a notebook in a directory, and return what Jupyter would show in red."""
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
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    logs = [each.read_text(encoding="utf-8") for each in directory.glob("*.log")]
    assert not any("Connection refused" in text for text in (done.stderr, *logs))
    return done.stderr


def not_public(code: str) -> Iterator[str]:
    """Yield imports that are neither public here nor from a library that users know."""
    allowed = CLIENTS | sys.stdlib_module_names
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules = [each.name for each in node.names]
            yield from (each for each in modules if each.split(".")[0] not in allowed)
        elif isinstance(node, ast.ImportFrom) and node.module == "spark_groups":
            names = [each.name for each in node.names]
            yield from (each for each in names if each not in dir(spark_groups))
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] not in allowed:
            yield str(node.module)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_uses_public_names_only(notebook: Path) -> None:
    assert [each for cell in cells_of(notebook) for each in not_public(code_of(cell))] == []


def test_imports_of_private_modules_are_found() -> None:
    code = (
        "from group_lab.sim.world import World\nfrom spark_groups import simulate, sim\n"
        "import numpy, spark_groups.wire\nimport json"
    )
    found = ["group_lab.sim.world", "sim", "numpy", "spark_groups.wire"]
    assert list(not_public(code)) == found


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_has_what_its_cells_showed(notebook: Path) -> None:
    """`make notebooks` stores it: a reader sees a notebook's pictures without a run."""
    cells = cells_of(notebook)
    assert [each["execution_count"] for each in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        shown = json.dumps(cell["outputs"])
        is_drawn = any(word in code_of(cell) for word in ("plt.show()", "\nwatch("))
        assert ("image/png" in shown) is is_drawn, code_of(cell)
        assert not any(word in shown for word in ("Traceback", "rdkafka", "stderr", "\\u001b"))
    assert any(cell["outputs"] for cell in cells)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_says_what_to_install_and_leads_to_another(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(each["source"]) for each in cells if each["cell_type"] == "markdown"]
    install = re.search(r"^pip install .* jupyterlab$", texts[0], re.MULTILINE)
    assert install, "it works in a checkout, and brings Jupyter"
    assert re.search(r"pip install ('\.\[|\. )", install[0])
    assert f"jupyter lab notebooks/{notebook.name}" in texts[0]
    onward = re.findall(r"\]\(([\w./]+)\)", texts[-1])
    assert any(each.endswith(".ipynb") for each in onward)
    assert all((notebook.parent / each).is_file() for each in onward)


def test_first_steps_lead_to_the_hand_over() -> None:
    cells = json.loads(FIRST_STEPS.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(each["source"]) for each in cells if each["cell_type"] == "markdown"]
    assert all("(watch_a_hand_over.ipynb)" in text for text in (texts[0], texts[-1]))


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    shown_in_red = run(notebook, tmp_path)
    if notebook.stem != "plan_a_deployment":
        assert shown_in_red == ""
        assert (tmp_path / f"{notebook.stem}.log").stat().st_size


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("notebook", THROUGH_CONNECT, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_through_spark_connect(notebook: Path, tmp_path: Path) -> None:
    run(notebook, tmp_path, SPARK_REMOTE="local[2]")
