"""What an adapter has to do, so that batches are written to its kind of table exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from spark_groups.spark.tables.fence import Decision, TableState
from spark_groups.types import TopicId

if TYPE_CHECKING:
    # Tasks import this module, too, and need none of it.
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to write a batch: its staged rows have names that no other try has.

    Args:
        group_id: The group whose batch it is.
        batch_id: Spark's number for the batch.
        attempt_id: A name that no other try has.
    """

    group_id: str
    batch_id: int
    attempt_id: str

    @property
    def name(self) -> str:
        """What names of staged files and tables begin with: they are ours, and whose."""
        return f"spark-groups-{self.batch_id}-{self.attempt_id}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a batch that are staged, and not part of the table yet: a file, or rows set aside.

    Args:
        name: How the adapter finds them again.
        rows: How many.
        size_bytes: How large.
        details: What else the adapter wants to know when it commits, as text.
    """

    name: str
    rows: int
    size_bytes: int = 0
    details: str = ""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Rows of an attempt that is not part of any version of the table: a file, or staged rows.

    Args:
        name: Its name in the table's directory or schema.
        size_bytes: How large.
        modified_s: When it was written, in seconds since 1970.
    """

    name: str
    size_bytes: int
    modified_s: float


class TaskWriter(Protocol):
    """Stages rows in a task; pickled to executors."""

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Stage the rows of one task.

        Args:
            batches: The rows; all of one schema.
            task: A name that no other task of the attempt has, nor a second try of the same task.
        """


class FencedTable(Protocol):
    """A table whose rows and fence change in one transaction; lives on the driver.

    A batch goes through `read`, `write_rows` or the tasks of `task_writer`, and `commit`. Where
    `read` or `commit` raises `TableChangedError`, the table is read and the batch compared again.
    Staged rows that are not committed are left where they are: a commit may have been accepted
    although its answer was lost.
    """

    def __str__(self) -> str:
        """Return how errors and logs call the table."""

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the fence as it is now.

        Args:
            group_id: Whose last commit `recorded_version` is about.
            topic_ids: Whose entries are wanted, of every group; None: all.

        Raises:
            TableChangedError: Another writer changes the table, so that it cannot be read now.
            TableError: The table cannot keep a fence as it is set up; says which setting.
        """

    def task_writer(self, attempt: Attempt) -> TaskWriter:
        """Return what stages rows in the tasks of an attempt.

        Args:
            attempt: The attempt.
        """

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage the rows of a DataFrame, by a job of Spark.

        Args:
            rows: The rows.
            attempt: The attempt.
        """

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add staged rows and change entries, in one transaction that does both or nothing.

        Inside the transaction, every entry that the decision changes has to be what it expects.
        The transaction records its own version for the group, where tables have versions.

        Args:
            attempt: The attempt that staged the rows.
            pieces: What it staged; none: only entries change.
            decision: The outcome of the comparison.
            state: What it was compared with.

        Raises:
            TableChangedError: An entry is not the expected one, or the table cannot tell.
        """
