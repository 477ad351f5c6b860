"""Notebooks as pages of the docs site: their text, their code and their stored output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def markdown_of(notebook: str) -> str:
    """Return a notebook (nbformat 4, as JSON) as Markdown.

    Raises:
        KeyError: An output is neither text nor a PNG picture.
    """
    return "\n\n".join(_parts(json.loads(notebook)["cells"]))


def _parts(cells: list[dict[str, Any]]) -> Iterator[str]:
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
        else:
            yield f"```python\n{source}\n```"
            yield from map(_output, cell["outputs"])


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _text(output["text"])
    data = output["data"]
    if "image/png" in data:
        png = "".join("".join(data["image/png"]).split())
        return f'<p><img alt="Output of the cell above" src="data:image/png;base64,{png}"></p>'
    return _text(data["text/plain"])


def _text(lines: str | list[str]) -> str:
    return f"```text\n{''.join(lines).rstrip()}\n```"
