"""A source whose rows come from nowhere: the rest is the way from Python into Spark's rows.

A source in Python can be as fast as this one at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_groups.spark.options.packed import COLUMNS
from spark_groups.spark.reading.rows import ROW_SCHEMA

ROWS_AT_ONCE = 10_000


class NowhereSource(DataSource):
    """Rows like a topic's; options: rows, batch_rows, value_bytes, tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "nowhere"

    def schema(self) -> str:
        """Return the columns of a Kafka source."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of one query."""
        return NowhereReader({name: int(value) for name, value in self.options.items()})


@dataclass
class Rows(InputPartition):
    """How many rows a task makes."""

    count: int


class NowhereReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Makes the same record batch again and again.

    Args:
        options: The options of the load, as numbers.
    """

    def __init__(self, options: dict[str, int]) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query begins."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many rows a batch has."""
        return ReadMaxRows(self._options["batch_rows"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        assert isinstance(limit, ReadMaxRows)
        return {"row": min(self._options["rows"], start["row"] + limit.max_rows)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the last row is known."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        tasks, rows = self._options["tasks"], end["row"] - start["row"]
        return [Rows(rows // tasks + (task < rows % tasks)) for task in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Make the rows of one task; runs in executors."""
        assert isinstance(partition, Rows)
        value = b"%08d" * (self._options["value_bytes"] // 8 + 1)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([b"%08d" % row for row in range(ROWS_AT_ONCE)], pa.binary()),
                pa.array([value[: self._options["value_bytes"]]] * ROWS_AT_ONCE, pa.binary()),
                pa.repeat(pa.scalar("nowhere"), ROWS_AT_ONCE),
                pa.repeat(pa.scalar(0, pa.int32()), ROWS_AT_ONCE),
                pa.array(range(ROWS_AT_ONCE), pa.int64()),
                pa.repeat(pa.scalar(0, pa.timestamp("us", tz="UTC")), ROWS_AT_ONCE),
                pa.repeat(pa.scalar(0, pa.int32()), ROWS_AT_ONCE),
            ],
            schema=ROW_SCHEMA,
        )
        for first in range(0, partition.count, ROWS_AT_ONCE):
            yield batch[: min(ROWS_AT_ONCE, partition.count - first)]
