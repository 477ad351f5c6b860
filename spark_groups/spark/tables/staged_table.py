"""The base of tables whose rows tasks stage before the commit.

Executors import this module with the writers of files.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_groups.spark.tables.table import Attempt, FencedTable, Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StagedTable(FencedTable):
    """The base of tables whose rows tasks stage, in files or staging tables, before the commit.

    Args:
        name: The name of the table in errors and logs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # Two queries of one application may write to the same table.
        self._lock = threading.RLock()

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""
        return self._name

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage a DataFrame's rows with a Spark job; its tasks use the writer of `task_writer`."""
        # The commands for tables need no Spark.
        from spark_groups.spark.tables.tasks import stage_rows  # noqa: PLC0415

        return stage_rows(rows, self.task_writer(attempt))
