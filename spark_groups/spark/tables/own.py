"""`spark_groups.own_table`: exactly once into a store of the user's, which two functions reach.

The store keeps what the fence of a table keeps, and compares it in each write; this module only
adapts the functions to `write_table`, which decides what a batch still has to write.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import Entry, FenceKey, TableState, of_topics
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.types import TopicId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Read = Callable[[str], Mapping[tuple[TopicId | str, int], tuple[int, int]]]
"""Returns a group's entries: by topic id and partition, the first offset and the next offset."""
Write = Callable[["DataFrame | None", Decision], bool]
"""Writes rows and changes entries; returns whether the store had every entry as expected."""


def own_table(name: str, read: Read, write: Write) -> OwnTable:
    """Return a store of your own for `spark_groups.write_table`.

    `write` gets the rows that the store lacks (None: only entries begin) and a `Decision`, whose
    `changes` have a `key`, the `expected` entry (None: there must be none) and the new `entry`. For
    each change, the store has to compare and replace the entry in the same transaction, or the same
    conditional put, that adds the partition's rows. It may change partitions one by one: if one
    is refused, or the driver dies, the batch is compared again, and only the rest is written.

    Args:
        name: The name of the store in errors and logs.
        read: Takes the group id, and returns the group's entries, by topic id (a UUID or its text)
            and partition: the first offset and the next offset.
        write: Writes rows and entries, on the driver; False: an entry was not as expected.
    """
    return OwnTable(name, read, write)


@dataclass(frozen=True, slots=True)
class _Rows(Piece):
    """The rows of a batch, which Spark keeps until they are written."""

    frame: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table whose rows and fence a user's functions write; `own_table` makes one."""

    name: str
    reads: Read
    writes: Write

    def __str__(self) -> str:
        """Return the name of the store in errors and logs."""
        return self.name

    @property
    def upsert(self) -> None:
        """None: the user's functions get rows as they are."""

    @property
    def keeps_letters(self) -> bool:
        """Whether it keeps dead letters."""
        return False

    def check(self) -> None:
        """Return None: the functions take any rows."""

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence of a group.

        Raises:
            TableError: The function returned something else.
        """
        found = self.reads(group_id)
        try:
            entries = {
                # By its text, so that a fraction is refused.
                FenceKey(group_id, uuid.UUID(str(topic_id)), int(str(partition))): Entry(
                    *(int(str(each)) for each in offsets)
                )
                for (topic_id, partition), offsets in found.items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise TableError(
                f"{self}: read has to return {{(topic id, partition): (first offset, next"
                f" offset)}}: {error}"
            ) from error
        return TableState(is_there=True, entries=of_topics(entries, topic_ids))

    def task_writer(self, attempt: Attempt) -> NoReturn:
        """Refuse tasks that write rows: the function gets a DataFrame."""
        del attempt
        raise OptionsError(
            f"{self} takes rows: load the stream with emit=records, in a classic session"
        )

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Read the rows once: later reads might find that brokers have deleted records."""
        return [_Rows(attempt.name, 0, frame=rows.localCheckpoint())]

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Call the function that writes.

        Raises:
            TableChangedError: An entry was not as expected.
            TableError: The function did not say whether it has written.
        """
        del attempt, state
        frames = [piece.frame for piece in pieces if isinstance(piece, _Rows)]
        is_written = self.writes(frames[0] if frames else None, decision)
        if not isinstance(is_written, bool):
            raise TableError(f"{self}: write has to return True or False, not {is_written!r}")
        if not is_written:
            raise TableChangedError(f"another writer has changed an entry of {self}")
