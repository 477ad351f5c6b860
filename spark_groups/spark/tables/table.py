"""The protocol of an adapter that writes batches to one kind of table exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.spark.tables.columns import TableColumns, schema_as_text
from spark_groups.spark.tables.upserts import Upsert
from spark_groups.types import TopicId

if TYPE_CHECKING:
    # Tasks import this module, and need no DataFrame.
    from pyspark.sql import DataFrame

PREFIX: Final = "spark-groups-"
"""The beginning of all names of attempts."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write a batch; the names of its staged rows differ from any other attempt's.

    Args:
        group_id: The group whose batch it is.
        batch_id: Spark's number for the batch.
        attempt_id: A unique name.
    """

    group_id: str
    batch_id: int
    attempt_id: str

    @property
    def name(self) -> str:
        """The beginning of the names of the attempt's staged files and staging tables."""
        return f"{PREFIX}{self.batch_id}-{self.attempt_id}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Staged rows of one task, which the table does not have yet: a file, or a staging table.

    Args:
        name: The name of the file or staging table.
        rows: The number of rows; 0: only the details count, which have the columns of a new table.
        size_bytes: Their size.
        details: Other facts that the adapter needs when it commits, as text.
    """

    name: str
    rows: int
    size_bytes: int = 0
    details: str = ""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A piece of an attempt that was never committed: a file, or a staging table.

    Args:
        name: Its name in the table's directory or schema.
        size_bytes: Its size.
        modified_s: The time it was written at, in seconds since 1970.
    """

    name: str
    size_bytes: int
    modified_s: float


def described(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with the columns of a new table.

    Without rows, too, a batch creates the table: it has to remember that it has the batch.

    Args:
        pieces: Those of a batch.
    """
    return [piece for piece in pieces if piece.rows] or [piece for piece in pieces if piece.details]


def no_rows(schema: pa.Schema) -> Piece:
    """Return what stands for a batch without rows, whose columns a new table has.

    Args:
        schema: The columns of the batch.
    """
    return Piece("", 0, details=schema_as_text(schema))


class TaskWriter(Protocol):
    """Stages rows in a task; pickled to executors."""

    @property
    def columns(self) -> TableColumns:
        """The columns of the table, to which the rows are fitted."""

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Stage the rows of one task; without rows yield what `no_rows` returns, if it has columns.

        Args:
            batches: The rows.
            task: A name that no other task of the attempt has, nor another try of the same task.

        Raises:
            TableError: The table has no type for a column, the columns differ between batches, or
                the store cannot be reached.
        """


class FencedTable(Protocol):
    """A table whose rows and fence change in one transaction; lives on the driver.

    For each batch the writer calls `read`, then stages the rows with `write_rows` or with tasks of
    `task_writer`, then calls `commit`. If `read` or `commit` raises `TableChangedError`, the writer
    calls `read` and compares the batch again. It never deletes staged rows: the table may have
    accepted a commit whose response was lost.
    """

    @property
    def keeps_letters(self) -> bool:
        """Whether `commit` takes pieces of the class `Letters`, for a table of dead letters."""

    @property
    def upsert(self) -> Upsert | None:
        """How rows change those with the same key; None: they are added."""

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""

    def check(self) -> TableColumns | None:
        """Refuse now what every batch would be refused for; changes nothing.

        Returns:
            The columns to which rows are fitted; None: the table takes any rows.

        Raises:
            OptionsError: This application cannot write such a table.
            TableChangedError: Another writer changes the table, so that it cannot be read now.
            TableError: The table cannot be reached, or has a setting that the writer refuses.
        """

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence.

        Args:
            group_id: The group whose last commit `recorded_version` is about.
            topic_ids: The topics whose entries are returned, for every group; None: all.

        Raises:
            TableChangedError: Another writer changes the table, so that it cannot be read now.
            TableError: A setting of the table would break its fence; the message names it.
        """

    def task_writer(self, attempt: Attempt) -> TaskWriter:
        """Return the writer that stages rows in the tasks of an attempt.

        Args:
            attempt: The attempt.
        """

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage the rows of a DataFrame with a Spark job.

        Args:
            rows: The rows.
            attempt: The attempt.

        Raises:
            TableError: The rows do not fit the table.
        """

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add staged rows and change entries, in one transaction.

        Inside the transaction, each changed entry has to equal the one that the decision expects.
        If tables have versions, the transaction records its own version for the group.

        Args:
            attempt: The attempt that staged the rows.
            pieces: Its staged rows; none: only entries change.
            decision: The result of the comparison.
            state: The fence that the batch was compared with.

        Raises:
            TableChangedError: An entry differs from the expected one; or the table has versions,
                and another writer has committed since the comparison; or the outcome of the commit
                is unknown.
            TableError: The rows do not fit the table.
        """
