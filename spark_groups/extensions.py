"""Commands and functions that the laboratory adds by entry points when it is installed."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Final

from spark_groups.errors import NotInstalledError

COMMANDS: Final = "spark_groups.commands"
"""The group of entry points whose objects are commands of `spark-groups`."""
FUNCTIONS: Final = "spark_groups.functions"
"""The group of entry points whose objects are functions of the package."""
LABORATORY: Final = "kafka-group-lab"
NAMES: Final = {COMMANDS: ("simulate", "replay"), FUNCTIONS: ("simulate",)}
"""The names of each group, in the order in which help shows them; others are not used."""


def installed(kind: str) -> tuple[str, ...]:
    """Return the names of a group that an installed package defines.

    Args:
        kind: `COMMANDS` or `FUNCTIONS`.
    """
    found = entry_points(group=kind).names
    return tuple(name for name in NAMES[kind] if name in found)


def load(kind: str, name: str) -> Any:
    """Return the object of an entry point.

    Args:
        kind: `COMMANDS` or `FUNCTIONS`.
        name: One of `NAMES`.

    Raises:
        NotInstalledError: The laboratory is not installed.
    """
    for each in entry_points(group=kind, name=name):
        return each.load()
    raise NotInstalledError(
        f"{name} belongs to the package {LABORATORY}, which is not installed:"
        f" pip install {LABORATORY}"
    )
