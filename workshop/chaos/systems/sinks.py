"""Where batches are written to: a plain file, and tables of the package that are fenced.

A table is written through the package's own loop: compare, stage, commit. Only the tasks are not
Spark's: the rows are at hand, and are staged by the table's own task writer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spark_groups.fence.beginnings import Batch
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange
from workshop.chaos.results.account import SinkRow
from workshop.chaos.systems.record import is_right
from workshop.parts.table_write import write_batch

APPENDED: Final = "*.rows"
SCHEMA: Final = pa.schema(
    [
        ("execution", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
    ]
)
"""The columns of a table."""


class Row(NamedTuple):
    """A record as it was read, with bytes or with the fields of a decoded value."""

    topic: str
    partition: int
    offset: int
    value: Any


def rows_digest(rows: Iterable[Row]) -> str:
    """Return a digest of the rows of a batch, which is the same whenever it has the same rows.

    Args:
        rows: The rows, in any order.
    """
    return hashlib.sha256(repr(sorted(map(tuple, rows))).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The rows of one write.

    Args:
        execution: What its rows are marked with.
        group_id: The consumer group.
        number: The batch's number.
        ranges: The ranges read, one for each partition.
        rows: The rows, in the order of their offsets in each partition.
    """

    execution: str
    group_id: str
    number: int
    ranges: tuple[OffsetRange, ...]
    rows: tuple[Row, ...]


def _nothing() -> None:
    pass


class AppendSink:
    """Appends rows to a file of the member: rows written again are there again.

    Args:
        path: The file.
        midway: Called when half of a batch is written.
        is_right: Whether a value is the one that was written at a topic, a partition and an offset.
    """

    def __init__(
        self,
        path: Path,
        midway: Callable[[], None] = _nothing,
        is_right: Callable[[Any, str, int, int], bool] = is_right,
    ) -> None:
        self._is_right = is_right
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._midway = midway

    def write(self, batch: SinkBatch) -> None:
        """Append a batch."""
        half = (len(batch.rows) + 1) // 2
        self._append(batch.execution, batch.rows[:half])
        self._midway()
        self._append(batch.execution, batch.rows[half:])

    def _append(self, execution: str, rows: tuple[Row, ...]) -> None:
        places = [(*row[:3], self._is_right(row.value, *row[:3])) for row in rows]
        lines = [f"{execution} {topic} {at[0]} {at[1]} {at[2]:d} ." for topic, *at in places]
        # What comes before may have been cut off.
        left = memoryview(("\n" + "\n".join(lines) + "\n").encode("ascii")) if lines else b""
        while left:
            left = left[os.write(self._descriptor, left) :]


def appended_rows(path: Path) -> Iterator[SinkRow]:
    """Return what an append sink holds, without lines that were cut off.

    Args:
        path: Its file.
    """
    with path.open(encoding="ascii") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) == 6 and fields[5] == ".":
                execution, topic, partition, offset, right, _ = fields
                yield SinkRow(execution, topic, int(partition), int(offset), right == "1")


class TableSink:
    """Writes batches to a fenced table, each by two tasks.

    Args:
        table: The table.
        before_staging: Called when a batch was compared, before its rows are staged.
        before_commit: Called when they are staged.
    """

    def __init__(
        self,
        table: FencedTable,
        before_staging: Callable[[], None] = _nothing,
        before_commit: Callable[[], None] = _nothing,
    ) -> None:
        self._table = table
        self._before_staging = before_staging
        self._before_commit = before_commit
        self._notices = Notices()

    def write(self, batch: SinkBatch) -> None:
        """Write the rows that the table lacks.

        Raises:
            TableError: The table refuses the batch.
        """

        def stage(ranges: tuple[OffsetRange, ...], attempt: Attempt) -> Sequence[Piece]:
            self._before_staging()
            pieces = self._staged(batch, ranges, attempt)
            self._before_commit()
            return pieces

        written = Batch(batch.group_id, batch.number, batch.ranges)
        write_batch(self._table, written, stage, self._notices)

    def _staged(
        self, batch: SinkBatch, ranges: tuple[OffsetRange, ...], attempt: Attempt
    ) -> list[Piece]:
        rows = list(_within(batch.rows, ranges))
        half = (len(rows) + 1) // 2
        writer = self._table.task_writer(attempt)
        return [
            piece
            for task, part in enumerate((rows[:half], rows[half:]))
            for piece in writer.write([_arrow(batch.execution, part)], f"{task}-0")
        ]


def _within(rows: Iterable[Row], ranges: Iterable[OffsetRange]) -> Iterator[Row]:
    wanted = {(offset_range.topic, offset_range.partition): offset_range for offset_range in ranges}
    for row in rows:
        span = wanted.get(row[:2])
        if span is not None and span.from_offset <= row.offset < span.until_offset:
            yield row


def _arrow(execution: str, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*((execution, *row) for row in rows), strict=True) if rows else [()] * 5
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)],
        schema=SCHEMA,
    )
