"""Where a command's answer goes: to people, or to programs."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from typing import Final

from rich.console import Console

from spark_groups.ops.removal import RemovalView
from spark_groups.ops.render import render_group
from spark_groups.ops.render_removal import render_removals
from spark_groups.ops.render_settings import render_settings
from spark_groups.ops.setting_changes import SettingsView
from spark_groups.ops.views import GroupView

PARTITION_ROWS_MAX: Final = 60
_UNBOUNDED_COLUMNS: Final = 10_000


class Output(ABC):
    """Shows what a command found out."""

    @abstractmethod
    def group(self, view: GroupView) -> None:
        """Show a group.

        Args:
            view: The group.
        """

    @abstractmethod
    def settings(self, view: SettingsView) -> None:
        """Show a group's settings.

        Args:
            view: The settings.
        """

    @abstractmethod
    def removals(self, view: RemovalView) -> None:
        """Show what became of members that were to be removed.

        Args:
            view: What became of them.
        """


class JsonOutput(Output):
    """One JSON document on standard output."""

    def group(self, view: GroupView) -> None:
        """Write a group as one document."""
        write_json(view.to_json())

    def settings(self, view: SettingsView) -> None:
        """Write a group's settings as one document."""
        write_json(view.to_json())

    def removals(self, view: RemovalView) -> None:
        """Write what became of members as one document."""
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
        self._max_partition_rows = None if every_partition or piped else PARTITION_ROWS_MAX

    def group(self, view: GroupView) -> None:
        """Write a group as text and tables."""
        self._console.print(
            render_group(
                view,
                width=self._console.width,
                max_partition_rows=self._max_partition_rows,
            )
        )

    def settings(self, view: SettingsView) -> None:
        """Write a group's settings as a table."""
        self._console.print(render_settings(view))

    def removals(self, view: RemovalView) -> None:
        """Write a line for each id."""
        self._console.print(render_removals(view))


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
