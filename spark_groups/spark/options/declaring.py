"""How an option of the `kafka-group` source is declared: name, meaning, default, and on restart."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field


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


def option(
    name: str,
    meaning: str,
    *,
    default: Any = None,
    shown: str | None = None,
    on_restart: OnRestart = OnRestart.AT_ONCE,
) -> Any:
    """Declare an option; `shown` replaces the default in the table."""
    if shown is None:
        value = default.value if isinstance(default, Enum) else default
        shown = "none" if value is None else str(value).lower()
    extra: dict[str, Any] = {"default": shown, "on_restart": on_restart.name}
    return Field(default, alias=name, description=meaning, json_schema_extra=extra)


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


Text = Annotated[str, BeforeValidator(_text)]
