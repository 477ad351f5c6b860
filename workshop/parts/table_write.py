"""Writes a batch to one table without Spark: the caller stages the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spark_groups.fence.beginnings import Batch
from spark_groups.spark.tables.routes import resumed
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.write import write_steps
from spark_groups.types import OffsetRange


def write_batch(
    table: FencedTable,
    batch: Batch,
    stage: Callable[[tuple[OffsetRange, ...], Attempt], Sequence[Piece]],
    *given: Any,
    **named: Any,
) -> None:
    """Write the part of a batch that one table lacks.

    Args:
        table: The table.
        batch: The batch.
        stage: Stages the rows of ranges for an attempt.
        given: Further arguments of `write_steps`.
        named: Further arguments of `write_steps`.

    Raises:
        TableError: The batch cannot be written.
    """
    writing = write_steps(table, batch, *given, **named)
    asked = resumed(writing)
    while asked is not None:
        asked = resumed(writing, stage(*asked))
