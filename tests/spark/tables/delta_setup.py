"""Shared by test_delta.py and other tests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import deltalake
import pyarrow as pa

from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.fence import Decision, Entry, FenceKey, compare
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.types import OffsetRange

GROUP = "flights"


TOPIC = uuid.UUID(int=7)


KEY = FenceKey(GROUP, TOPIC, 0)


SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


AFTER_PYTHON = 10**18
"""As a time in microseconds, this is in the year 33658."""


def reads(from_offset: int, until_offset: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TOPIC, "departures", partition, from_offset, until_offset)


def rows(each: OffsetRange, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return the records of a range; each value is `partition-offset`."""
    offsets = range(each.from_offset, each.until_offset)
    columns = {
        "topic": [each.topic] * len(each),
        "partition": [each.partition] * len(each),
        "offset": list(offsets),
        "value": [f"{each.partition}-{offset}".encode() for offset in offsets],
        "timestamp": list(offsets),
        "carrier": ["AA"] * len(each),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema)


class Writer:
    """A driver that writes batches to a table, one step at a time.

    Args:
        path: The table.
        group_id: The driver's group.
    """

    def __init__(self, path: Path, group_id: str = GROUP) -> None:
        self.table = delta_table(path)
        self.group_id = group_id
        self._batch = 0

    def look(self, *ranges: OffsetRange) -> None:
        """Compare a batch with the current entries."""
        self.state = self.table.read(self.group_id, frozenset({TOPIC}))
        self.decision = compare(self.group_id, ranges, self.state, table=str(self.table))

    def stage(self, schema: pa.Schema = SCHEMA) -> Sequence[Piece]:
        """Stage the rows of the decision."""
        self.attempt = Attempt(self.group_id, self._batch, uuid.uuid4().hex[:12])
        self._batch += 1
        batches = [rows(each, schema) for each in self.decision.write]
        return [*self.table.task_writer(self.attempt).write(batches, "0")]

    def commit(self, schema: pa.Schema = SCHEMA) -> None:
        """Stage the rows of the decision, and commit them."""
        pieces = self.stage(schema)
        self.table.commit(self.attempt, pieces, self.decision, self.state)

    def write(self, *ranges: OffsetRange, schema: pa.Schema = SCHEMA) -> Decision:
        """Write a batch."""
        self.look(*ranges)
        if self.decision.write:
            self.commit(schema)
        return self.decision


def offsets(path: Path, partition: int = 0) -> list[int]:
    """Return the offsets of the table's rows."""
    table = deltalake.DeltaTable(path).to_pyarrow_table()
    found = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    return sorted(offset for index, offset in found if index == partition)


def entries(path: Path, group_id: str = GROUP) -> dict[FenceKey, Entry]:
    """Return the table's entries, read by a new table object."""
    return dict(delta_table(path).read(group_id).entries)
