"""Planted bugs: a run with one of them has to fail, or the checks of runs prove nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from spark_groups.errors import TableChangedError
from spark_groups.spark.tables.fence import Decision, Entry, EntryChange, TableState
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece, TaskWriter
from spark_groups.types import TopicId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Plant(str, Enum):
    """The bugs that a run may have."""

    NO_COMPARE = "no-compare"
    COMPARE_BEFORE = "compare-before"
    KAFKA_FIRST = "kafka-first"


class CompareBefore:
    """A table whose commit expects the current entries, instead of the compared ones.

    Args:
        table: The table.
    """

    def __init__(self, table: FencedTable) -> None:
        self._table = table

    def __str__(self) -> str:
        """Return the name of the table in errors and logs."""
        return str(self._table)

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the current fence."""
        return self._table.read(group_id, topic_ids)

    def task_writer(self, attempt: Attempt) -> TaskWriter:
        """Return the task writer of the table."""
        return self._table.task_writer(attempt)

    def write_rows(self, rows: DataFrame, attempt: Attempt) -> Sequence[Piece]:
        """Stage rows as the table does."""
        return self._table.write_rows(rows, attempt)

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Add the rows, even if another writer has committed since the comparison."""
        del state
        topic_ids = frozenset(each.key.topic_id for each in decision.changes)
        while True:
            now = self._table.read(attempt.group_id, topic_ids)
            changes = tuple(_unchecked(each, now) for each in decision.changes)
            try:
                self._table.commit(attempt, pieces, replace(decision, changes=changes), now)
            except TableChangedError:
                continue
            return


class NoCompare(CompareBefore):
    """A table that returns no entry, as if it had no batch."""

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return the fence without its entries."""
        return replace(super().read(group_id, topic_ids), entries={})


def _unchecked(change: EntryChange, now: TableState) -> EntryChange:
    there = now.entries.get(change.key)
    if there is None:
        return replace(change, expected=None)
    start_offset = min(there.start_offset, change.entry.start_offset)
    next_offset = max(there.next_offset, change.entry.next_offset)
    return replace(change, expected=there, entry=Entry(start_offset, next_offset))


def planted(table: FencedTable, plant: Plant | None) -> FencedTable:
    """Return a table with a bug, if the bug is one of tables.

    Args:
        table: The table.
        plant: The bug; None: there is none.
    """
    match plant:
        case Plant.NO_COMPARE:
            return NoCompare(table)
        case Plant.COMPARE_BEFORE:
            return CompareBefore(table)
        case _:
            return table
