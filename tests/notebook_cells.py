"""Runs the cells of a notebook one by one, as Jupyter does: python -m tests.notebook_cells FILE."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell


def main(notebook: Path) -> None:
    """Run a notebook; ends with the error of the first cell that fails."""
    shell = InteractiveShell.instance()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            shell.run_cell("".join(cell["source"])).raise_error()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
