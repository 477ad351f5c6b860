"""Runs the cells of a notebook one by one, as Jupyter does: python -m tests.notebook_cells FILE.

With --store it writes into the notebook what its cells show: text, values and pictures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output

CLEARED = "\033[2K\r"
"""What `clear_output` writes where there is no Jupyter."""


class Shell(InteractiveShell):
    """IPython without a window: pictures go into the notebook."""

    def enable_gui(self, gui: str | None = None) -> None:
        """Begin no event loop."""


def run(document: dict[str, Any], *, stores: bool) -> None:
    """Run a notebook; ends with the error of the first cell that fails.

    Args:
        document: The notebook; what its cells show is put into it, if `stores`.
        stores: Whether it is, with pictures as Jupyter draws them.
    """
    shell = Shell.instance()
    if stores:
        shell.enable_matplotlib("inline")
    cells = [each for each in document["cells"] if each["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        code = "".join(cell["source"])
        if not stores:
            shell.run_cell(code).raise_error()
            continue
        results: list[dict[str, Any]] = []
        shell.display_trap.hook = CapturingDisplayHook(shell, results)
        with capture_output() as shown:
            shell.run_cell(code).raise_error()
        cell["execution_count"] = number
        cell["outputs"] = outputs(shown, results, number)


def outputs(shown: CapturedIO, results: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Return what a cell showed as a notebook has it; what it wrote to stderr is left out.

    Args:
        shown: What it printed and displayed.
        results: The value of its last line, if it has one.
        number: Which cell it was.
    """
    found: list[dict[str, Any]] = []
    text = shown.stdout.replace(CLEARED, "")
    if text:
        found.append({"output_type": "stream", "name": "stdout", "text": lines(text)})
    for each in shown.outputs:
        kind = {"output_type": "display_data", "metadata": each.metadata}
        found.append({**kind, "data": plain(each.data)})
    for result in results:
        kind = {"output_type": "execute_result", "metadata": {}, "execution_count": number}
        found.append({**kind, "data": plain(result["data"])})
    return found


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Return the shown values by their type: texts as lines, and a picture as its base64."""
    return {kind: lines(each) if "text/" in kind else each for kind, each in data.items()}


def lines(text: str) -> list[str]:
    """Return a text as a notebook has it."""
    return text.splitlines(keepends=True)


def main(notebook: Path, *, stores: bool) -> None:
    """Run the notebook in a file.

    Args:
        notebook: The file.
        stores: Whether what its cells show is written into it.
    """
    document = json.loads(notebook.read_text(encoding="utf-8"))
    run(document, stores=stores)
    if stores:
        text = json.dumps(document, indent=1, ensure_ascii=False)
        notebook.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), stores="--store" in sys.argv[2:])
