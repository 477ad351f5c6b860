"""Where a command's answer goes, to people or to programs, and the words that texts are made of.

"—" is what is not known.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

PARTITION_ROWS_MAX: Final = 60
_UNBOUNDED_COLUMNS: Final = 10_000


class View(Protocol):
    """What a command found out, as one value."""

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much text fits.

    Args:
        width: Columns there are.
        max_partition_rows: With more partitions than that, not each has a row; None: each has.
    """

    width: int
    max_partition_rows: int | None = None


class Output(ABC):
    """Shows what a command found out."""

    @abstractmethod
    def show(self, view: View, render: Callable[[Room], RenderableType]) -> None:
        """Show a view."""


class JsonOutput(Output):
    """One JSON document on standard output: always all of the view."""

    def show(self, view: View, render: Callable[[Room], RenderableType]) -> None:  # noqa: ARG002
        """Write a view as one document."""
        write_json(view.to_json())


class ConsoleOutput(Output):
    """Text; colour and the terminal's width only where there is a terminal (and no NO_COLOR).

    Args:
        every_partition: Give each partition a row of its own, however many there are.
    """

    def __init__(self, *, every_partition: bool = False) -> None:
        self._console = console()
        # What is piped is for grep: nothing is folded, and nothing shares a row.
        piped = not self._console.is_terminal
        self._room = Room(
            self._console.width, None if every_partition or piped else PARTITION_ROWS_MAX
        )

    def show(self, view: View, render: Callable[[Room], RenderableType]) -> None:  # noqa: ARG002
        """Write a view as text and tables."""
        self._console.print(render(self._room))


def output_for(*, as_json: bool, every_partition: bool = False) -> Output:
    """Return where the answer of a command goes."""
    return JsonOutput() if as_json else ConsoleOutput(every_partition=every_partition)


def write_json(document: object) -> None:
    """Write one JSON document on standard output."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def console() -> Console:
    """Return what writes text: as wide as the terminal, without an end where there is none."""
    found = Console(highlight=False, soft_wrap=False, emoji=False, markup=False)
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return Console(highlight=False, emoji=False, markup=False, width=_UNBOUNDED_COLUMNS)


def dry_run_note(*, is_dry_run: bool) -> list[Text]:
    """Return the line that says that nothing was done, if nothing was."""
    return [Text("No action is performed: this is what would be done.")] if is_dry_run else []


UNKNOWN: Final = "—"
MOVING_STYLE, ALARM_STYLE, QUIET_STYLE = "yellow", "red", "dim"


def number(value: int | None) -> str:
    """Write a number with thousands separators; what is not known as "—"."""
    return UNKNOWN if value is None else f"{value:,}"


def plain(value: int | None) -> str:
    """Write a number without separators, as ids and epochs are; what is not known as "—"."""
    return UNKNOWN if value is None else str(value)


def plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
