"""The base of tables whose rows tasks stage before the commit.

Executors import this module with the writers of files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from spark_groups.errors import TableError
from spark_groups.spark.tables.left_out import LETTER_COLUMNS
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.upserts import Upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_Table = TypeVar("_Table", bound="StagedTable")


class StagedTable(FencedTable):
    """The base of tables whose rows tasks stage, in files or staging tables, before the commit.

    Args:
        name: The name of the table in errors and logs.
        letters: The name of a table of dead letters in the same database; None: there is none.
        upsert: How rows change those with the same key; None: they are added.
    """

    _made_of: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls: type[_Table], *given: Any, **named: Any) -> _Table:
        """Note the arguments: a copy in another process is made of these, without connections."""
        made = super().__new__(cls)
        made._made_of = given, named
        return made

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        given, named = self._made_of
        return partial(type(self), **named), given

    def __copy__(self: _Table) -> _Table:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __init__(self, name: str, letters: str | None = None, upsert: Upsert | None = None) -> None:
        self._name = name
        self._upsert = upsert
        self._letters = letters
        # Two queries of one application may write to the same table.
        self._lock = threading.RLock()

    @property
    def keeps_letters(self) -> bool:
        """Whether the database has a table of dead letters."""
        return self._letters is not None

    @property
    def upsert(self) -> Upsert | None:
        """How rows change those with the same key."""
        return self._upsert

    def _check_letter_columns(self, columns: Collection[str]) -> None:
        """Check the table of dead letters, if it is there.

        Args:
            columns: Its columns.

        Raises:
            TableError: It is another table.
        """
        if missing := [name for name in LETTER_COLUMNS if name not in columns]:
            raise TableError(
                f"{self}: the table {self._letters!r} is no table of dead letters, because it lacks"
                f" the columns {', '.join(missing)}; name one that is not there, and it is made"
            )

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""
        return self._name

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage a DataFrame's rows with a Spark job; its tasks use the writer of `task_writer`."""
        # The commands for tables need no Spark.
        from spark_groups.spark.tables.tasks import stage_rows  # noqa: PLC0415

        return stage_rows(rows, self.task_writer(attempt))
