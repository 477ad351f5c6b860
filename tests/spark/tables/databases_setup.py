"""Shared by test_databases.py and other tests."""

from __future__ import annotations

import uuid

import pyarrow as pa

from spark_groups.spark.tables.fence import Decision, compare
from spark_groups.spark.tables.table import Attempt
from spark_groups.types import OffsetRange
from tests.spark.tables.delta_setup import GROUP, SCHEMA, rows
from tests.spark.tables.places import Place


class Writer:
    """A driver that writes batches to a table, one step at a time.

    Args:
        place: The database with the table.
        group_id: The driver's group.
    """

    def __init__(self, place: Place, group_id: str = GROUP) -> None:
        self.table = place.table()
        self.group_id = group_id
        self._batch = 0

    def look(self, *ranges: OffsetRange) -> None:
        """Compare a batch with the current entries."""
        topics = frozenset(each.topic_id for each in ranges)
        self.state = self.table.read(self.group_id, topics)
        self.decision = compare(self.group_id, ranges, self.state, table=str(self.table))

    def stage(self, schema: pa.Schema = SCHEMA) -> None:
        """Stage the rows of the decision, each range by a task of its own."""
        self.attempt = Attempt(self.group_id, self._batch, uuid.uuid4().hex[:12])
        self._batch += 1
        tasks = self.table.task_writer(self.attempt)
        self.pieces = [
            piece
            for index, each in enumerate(self.decision.write)
            for piece in tasks.write([rows(each, schema)], f"{index}-0")
        ]

    def commit(self) -> None:
        """Commit the staged rows."""
        self.table.commit(self.attempt, self.pieces, self.decision, self.state)

    def write(self, *ranges: OffsetRange, schema: pa.Schema = SCHEMA) -> Decision:
        """Write a batch."""
        self.look(*ranges)
        if self.decision.write:
            self.stage(schema)
            self.commit()
        return self.decision
