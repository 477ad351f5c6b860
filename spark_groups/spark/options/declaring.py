"""How an option of a source is declared, and how the texts of a load() become its values.

This imports no library: Spark starts a process after another for a query, and each would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, Final

_DECLARED: Final = "declared"
"""The key of a field's metadata."""


class OnRestart(Enum):
    """What a value does that changes between two runs from one checkpoint.

    Each value is a sentence of the how-to. The first batch of a run may be one that runs again,
    because the last run did not finish it.
    """

    CLUSTER = (
        "Other addresses of the same cluster take effect at once. Another cluster is refused"
        " (`CheckpointError`): set a new `checkpointLocation`."
    )
    GROUP = (
        "Is refused (`CheckpointError`) until the new group has committed offsets; the error names"
        " the command that copies those of the old group."
    )
    TOPICS = (
        "Takes effect at once, but is refused (`CheckpointError`) if the batch that runs again"
        " reads none of the new topics: run the unchanged query once. A topic that the checkpoint"
        " lacks is read from its beginning, unless `startingOffsets` names offsets of it."
    )
    COLUMNS = (
        "Takes effect at once: rows have other columns, which the sink and Spark's state have to"
        " accept."
    )
    ROWS = (
        "Takes effect at once: a batch that runs again keeps its ranges, and may have other rows."
    )
    NEXT_BATCH = "Takes effect with the next plan: a batch that runs again keeps its ranges."
    NEW_PARTITIONS = (
        "Takes effect only in partitions without a committed offset; in a topic that the checkpoint"
        " lacks, only where it names offsets."
    )
    BATCH_ONLY = "Is refused (`OptionsError`): a stream has no end."
    AT_ONCE = "Takes effect at once."


@dataclass(frozen=True, slots=True)
class Declared:
    """An option.

    Args:
        parse: Returns the value of a text, or raises a ValueError without the option's name.
        shown: The default in the table.
    """

    name: str
    parse: Callable[[str], Any]
    meaning: str
    shown: str
    on_restart: OnRestart


def option(
    name: str,
    parse: Callable[[str], Any],
    meaning: str = "",
    *,
    default: Any = None,
    shown: str | None = None,
    on_restart: OnRestart = OnRestart.AT_ONCE,
) -> Any:
    """Declare an option as the field of a dataclass; see `Declared`."""
    if shown is None:
        value = default.value if isinstance(default, Enum) else default
        shown = "none" if value is None else str(value).lower()
    declared = Declared(name, parse, meaning, shown, on_restart)
    return field(default=default, metadata={_DECLARED: declared})


def declared_options(kind: Any) -> dict[str, Declared]:
    """Return the options of a dataclass by field."""
    return {
        each.name: each.metadata[_DECLARED] for each in fields(kind) if _DECLARED in each.metadata
    }


def parsed(kind: Any, given: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Return the values of texts by field.

    Args:
        kind: The dataclass that declares the options.
        given: Texts by option, in lower case.
        problems: Gets a problem for each text without a value, and each option that is missing.
    """
    required = {each.name for each in fields(kind) if each.default is MISSING}
    values = {}
    for name, each in declared_options(kind).items():
        text = given.get(each.name.lower())
        if text is None:
            if name in required:
                problems.append(f"{each.name} is missing")
            continue
        try:
            values[name] = each.parse(text)
        except ValueError as error:
            problems.append(f"{each.name}: {error}")
    return values
