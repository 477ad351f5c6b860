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
        letters: The name of a table of dead letters in the same database; None: there is none.
    """

    def __init__(self, name: str, letters: str | None = None) -> None:
        self._name = name
        self._letters = letters
        # Two queries of one application may write to the same table.
        self._lock = threading.RLock()

    @property
    def keeps_letters(self) -> bool:
        """Whether the database has a table of dead letters."""
        return self._letters is not None

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""
        return self._name

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage a DataFrame's rows with a Spark job; its tasks use the writer of `task_writer`."""
        # The commands for tables need no Spark.
        from spark_groups.spark.tables.tasks import stage_rows  # noqa: PLC0415

        return stage_rows(rows, self.task_writer(attempt))
