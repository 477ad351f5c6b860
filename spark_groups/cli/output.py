"""Views as JSON or as text on standard output. "—" stands for an unknown value."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.catch_up import CatchUp, Outlook
from spark_groups.observation.plain_values import View, duration_text

PARTITION_ROWS_MAX: Final = 60
_UNBOUNDED_COLUMNS: Final = 10_000


ViewT = TypeVar("ViewT", bound=View)


def show(
    view: ViewT,
    render: Callable[[ViewT], RenderableType],
    *,
    as_json: bool,
    is_success: bool = True,
) -> None:
    """Write a view on standard output, as one JSON document or as text.

    Raises:
        Exit: Exit code 1, because `is_success` is false.
    """
    if as_json:
        write_json(view.to_json())
    else:
        console().print(render(view))
    if not is_success:
        raise typer.Exit(1)


def partition_rows_max(*, every_partition: bool) -> int | None:
    """Return up to how many partitions each has a row; None, as in a pipe: always."""
    return None if every_partition or not console().is_terminal else PARTITION_ROWS_MAX


def write_json(document: object) -> None:
    """Write one JSON document on standard output."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def console() -> Console:
    """Return a console as wide as the terminal; without a terminal, lines are never folded."""
    found = Console(highlight=False, soft_wrap=False, emoji=False, markup=False)
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return Console(highlight=False, emoji=False, markup=False, width=_UNBOUNDED_COLUMNS)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that a command is at work; on standard error, until the block ends."""
    found = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if not found.is_terminal:
        yield
        return
    with found.status(Text(f"{text} ...")):
        yield


def dry_run_note(*, is_dry_run: bool) -> list[Text]:
    """Return the last line of a dry run."""
    return [Text("No action is performed: this is a dry run.")] if is_dry_run else []


UNKNOWN: Final = "—"
MOVING_STYLE, ALARM_STYLE, QUIET_STYLE = "yellow", "red", "dim"


def number(value: int | None) -> str:
    """Return a number with thousands separators."""
    return UNKNOWN if value is None else f"{value:,}"


def plain(value: int | None) -> str:
    """Return a number without separators, as Kafka's tools print it."""
    return UNKNOWN if value is None else str(value)


def behind_text(seconds: float | None) -> str:
    """Return the age of the first unread record."""
    return UNKNOWN if seconds is None else duration_text(seconds)


def catch_up_text(found: CatchUp) -> str:
    """Return whether a partition or a group keeps up, or when it catches up."""
    if found.outlook is Outlook.CATCHING_UP and found.catch_up_s is not None:
        return f"catches up in {duration_text(found.catch_up_s)}"
    return UNKNOWN if found.outlook is Outlook.UNKNOWN else found.outlook.value


def plain_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table.

    Args:
        cell: Returns the cell of a row; in a `str`, unprintable characters are replaced.
        is_number: Whether cells are right-justified and never wrapped.
        is_optional: Whether the column is left out if no cell has a value.
    """

    header: str
    cell: Callable[[Row], str | Text]
    is_number: bool = False
    is_shown: bool = True
    is_optional: bool = False


def table_of(rows: Iterable[Row], *columns: Column[Row]) -> Table:
    """Return a table with the columns that are shown."""
    there = [*rows]
    table = plain_table()
    shown = []
    for each in columns:
        cells = [each.cell(row) for row in there] if each.is_shown else []
        if not each.is_shown or (each.is_optional and {*map(str, cells)} <= {"", UNKNOWN}):
            continue
        justify: Literal["left", "right"] = "right" if each.is_number else "left"
        table.add_column(each.header, justify=justify, overflow="fold", no_wrap=each.is_number)
        shown.append(Text(printable(c)) if isinstance(c, str) else c for c in cells)
    for row_cells in zip(*shown, strict=True):
        table.add_row(*row_cells)
    return table
