"""Rendered output as plain lines."""

from __future__ import annotations

import re

from rich.console import Console, RenderableType


def lines(shown: RenderableType, width: int = 200) -> list[str]:
    """Return the lines of a text, without the spaces that fill them up."""
    console = Console(width=width, color_system=None, _environ={})
    with console.capture() as capture:
        console.print(shown)
    return [line.rstrip() for line in capture.get().splitlines()]


def cells(shown: RenderableType, width: int = 200) -> list[list[str]]:
    """Return the cells of each line, which are two spaces apart or more."""
    return [re.split(r" {2,}", line) for line in lines(shown, width)]
