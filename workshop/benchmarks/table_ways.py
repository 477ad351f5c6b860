"""The ways to write a topic into a table that are compared, by their names in reports."""

from __future__ import annotations

import shutil
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_groups import delta_table, iceberg_table, postgres_table, write_table
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.spark.source.foreach_batch_rows import TUNING
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.copy_format import HEADER, TRAILER, columns_of, copied
from spark_groups.spark.tables.copy_format import POSTGRES as RULES
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.types import TopicId

_WORK_MEMORY = "512MB"


class PartitionCount(NamedTuple):
    """The rows of a partition in a table.

    Args:
        rows: How many there are.
        different: How many different offsets they have.
        first: The least offset.
        last: The largest.
    """

    rows: int
    different: int
    first: int
    last: int


def partition_counts(batches: Iterable[pa.RecordBatch]) -> dict[int, PartitionCount]:
    """Count the rows of each partition.

    Args:
        batches: Rows with the columns partition and offset.
    """
    found: dict[int, list[np.ndarray[Any, Any]]] = {}
    for batch in batches:
        partitions = batch.column("partition").to_numpy()
        offsets = batch.column("offset").to_numpy()
        for partition in np.unique(partitions):
            found.setdefault(int(partition), []).append(offsets[partitions == partition])
    counts = {}
    for partition, parts in found.items():
        offsets = np.concatenate(parts)
        sizes = len(offsets), len(np.unique(offsets))
        counts[partition] = PartitionCount(*sizes, int(offsets.min()), int(offsets.max()))
    return counts


def problems_of(found: Mapping[int, PartitionCount], wanted: Mapping[int, int]) -> list[str]:
    """Return the partitions of a topic whose records are not in a table exactly once.

    Args:
        found: Its rows.
        wanted: How many records each partition of the topic has, from offset 0.
    """
    whole = {
        partition: PartitionCount(rows, rows, 0, rows - 1)
        for partition, rows in wanted.items()
        if rows
    }
    return [
        f"partition {each}: {found.get(each)}, not {whole.get(each)}"
        for each in sorted({*found, *whole})
        if found.get(each) != whole.get(each)
    ]


class Target:
    """An empty table that one query writes, removed when it was counted.

    Args:
        directory: A directory of its own.
        dsn: How libpq reaches a PostgreSQL.
    """

    def __init__(self, directory: Path, dsn: str) -> None:
        self.directory = directory
        self.dsn = dsn
        self.name = directory.name.replace("-", "_")

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        raise NotImplementedError

    def counts(self) -> dict[int, PartitionCount]:
        """Count its rows."""
        raise NotImplementedError

    def problems(self, ends: Mapping[int, int], query: StreamingQuery) -> list[str]:
        """Return its faults after a query that read a topic up to these offsets."""
        del query
        return problems_of(self.counts(), ends)

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.directory, ignore_errors=True)


class DeltaTarget(Target):
    """A Delta table that `write_table` writes."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        return writer.foreachBatch(write_table(delta_table(self.directory)))

    def counts(self) -> dict[int, PartitionCount]:
        """Count the rows of the files that the table's log has."""
        return partition_counts(self._rows())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        for uri in deltalake.DeltaTable(self.directory).file_uris():
            path = urllib.parse.unquote(urllib.parse.urlsplit(uri).path)
            yield from parquet.ParquetFile(path).iter_batches(columns=["partition", "offset"])


SHARDS = 32
"""How many partitions a partitioned table has."""


def with_shard(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records with a column by whose values a table is partitioned."""
    shard = pc.bit_wise_and(batch["offset"], SHARDS - 1).cast(pa.int32())
    return batch.append_column("shard", shard)


class PartitionedDeltaTarget(DeltaTarget):
    """A partitioned Delta table that `write_table` writes."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        table = delta_table(self.directory, partition_by="shard")
        return writer.foreachBatch(write_table(table, with_shard))


class DeltaSparkTarget(DeltaTarget):
    """A Delta table that delta-spark writes."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        return writer.format("delta").option("path", str(self.directory))


class IcebergTarget(Target):
    """An Iceberg table that `write_table` writes, with a catalog in SQLite."""

    transform: Any = None
    partition_by: tuple[str, ...] = ()

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        table = iceberg_table(
            "lake.rows", self._catalog, self._properties, partition_by=self.partition_by
        )
        return writer.foreachBatch(write_table(table, self.transform))

    def counts(self) -> dict[int, PartitionCount]:
        """Count the rows of its current snapshot."""
        table = load_catalog(self._catalog, **self._properties).load_table("lake.rows")
        scan = table.scan(selected_fields=("partition", "offset"))
        return partition_counts(scan.to_arrow_batch_reader())

    @property
    def _catalog(self) -> str:
        return self.name

    @property
    def _properties(self) -> Mapping[str, str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": (self.directory / "warehouse").as_uri(),
        }


class PartitionedIcebergTarget(IcebergTarget):
    """A partitioned Iceberg table that `write_table` writes."""

    transform = staticmethod(with_shard)
    partition_by = ("shard",)


class PostgresTarget(Target):
    """A table of PostgreSQL that `write_table` writes."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        self._run("CHECKPOINT")
        return writer.foreachBatch(write_table(postgres_table(self.dsn, self.name)))

    def counts(self) -> dict[int, PartitionCount]:
        """Count its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"SET work_mem = '{_WORK_MEMORY}'")
            rows = connection.execute(
                'SELECT partition, count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
                f" FROM {self.name} GROUP BY partition"
            ).fetchall()
        return {partition: PartitionCount(*numbers) for partition, *numbers in rows}

    def remove(self) -> None:
        """Drop it."""
        self._run(f"DROP TABLE IF EXISTS {self.name}")

    def _run(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)


class CopyTarget(PostgresTarget):
    """A table of PostgreSQL that tasks fill by COPY, without a fence."""

    def write(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Have a query write the table."""
        fields = (f'"{each.name}" {each.table_type}' for each in columns_of(ROW_SCHEMA))
        self._run(f"CREATE TABLE {self.name} ({', '.join(fields)})")
        self._run("CHECKPOINT")
        return writer.foreachBatch(write_table(UnfencedTable(self.dsn, self.name)))


@dataclass(frozen=True)
class UnfencedTable:
    """A table of PostgreSQL without a fence: tasks copy rows into it, and there is no commit.

    Args:
        dsn: How the server is reached.
        table: The table's name.
    """

    dsn: str
    table: str

    @property
    def columns(self) -> TableColumns:
        """The types that the table may have."""
        return TableColumns(self.table, RULES)

    @property
    def keeps_letters(self) -> bool:
        """Whether it keeps dead letters."""
        return False

    @property
    def upsert(self) -> None:
        """None: rows are added."""

    def check(self) -> TableColumns:
        """Return the types that the table may have."""
        return self.columns

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Return that the table has nothing yet."""
        del group_id, topic_ids
        return TableState()

    def task_writer(self, attempt: Attempt) -> UnfencedTable:
        """Return itself."""
        del attempt
        return self

    def write_rows(self, rows: Any, attempt: Attempt) -> Sequence[Piece]:
        """Refuse what does not come from ranges."""
        raise NotImplementedError

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Do nothing: every task has committed its rows."""

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> Iterator[Piece]:
        """Copy the rows of a task into the table."""
        rows = 0
        into = f"COPY {self.table} FROM STDIN (FORMAT binary)"
        with psycopg.connect(self.dsn) as connection, connection.cursor().copy(into) as copy:
            copy.write(HEADER)
            for batch in self.columns.fitted(batches):
                rows += batch.num_rows
                for chunk in copied(batch):
                    copy.write(chunk)
            copy.write(TRAILER)
        yield Piece(task, rows)


@dataclass(frozen=True)
class Way:
    """A way to write a topic into a table.

    Args:
        target: Makes the table that is written.
        what: What it is, for readers of the report.
        source: Spark's format of the stream.
        options: Its options, except those that select the topic and offsets.
        settings: The session's, while it runs.
        decoded: Makes of the stream the one that is written.
    """

    target: Callable[[Path, str], Target]
    what: str
    source: str = "kafka-group"
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    decoded: Callable[[DataFrame], DataFrame] = lambda stream: stream


SPARK = "delta-spark"
SPARK_TUNED = "delta-spark, tuned"
ROWS = "rows to Delta"
ARROW = "Arrow to Delta"
ICEBERG = "Arrow to Iceberg"
DELTA_BY = f"Arrow to Delta, {SHARDS} partitions"
ICEBERG_BY = f"Arrow to Iceberg, {SHARDS} partitions"
POSTGRES = "Arrow to PostgreSQL"
COPY = "plain COPY"

_ARROW_OPTIONS = {"emit": "ranges"}
WAYS: Mapping[str, Way] = {
    SPARK: Way(
        DeltaSparkTarget,
        "Spark's own Kafka source with larger fetches, and delta-spark as it comes",
        "kafka",
        TUNING,
    ),
    SPARK_TUNED: Way(
        DeltaSparkTarget,
        "the same without Parquet's dictionaries and without statistics",
        "kafka",
        TUNING,
        {
            "parquet.enable.dictionary": "false",
            "parquet.column.statistics.enabled": "false",
            "spark.databricks.delta.stats.collect": "false",
        },
    ),
    ROWS: Way(DeltaTarget, "`write_table`, Spark writes the rows' files"),
    ARROW: Way(
        DeltaTarget, "`write_table`, tasks read and write files themselves", options=_ARROW_OPTIONS
    ),
    ICEBERG: Way(IcebergTarget, "the same into Iceberg, catalog in SQLite", options=_ARROW_OPTIONS),
    POSTGRES: Way(PostgresTarget, "the same into PostgreSQL", options=_ARROW_OPTIONS),
    COPY: Way(
        CopyTarget,
        "tasks read and COPY into a table of PostgreSQL, with neither fence nor staging",
        options=_ARROW_OPTIONS,
    ),
    DELTA_BY: Way(
        PartitionedDeltaTarget,
        f"`write_table` into a Delta table that is partitioned by offset modulo {SHARDS}",
        options=_ARROW_OPTIONS,
    ),
    ICEBERG_BY: Way(
        PartitionedIcebergTarget,
        "`write_table` into an Iceberg table that is partitioned in the same way",
        options=_ARROW_OPTIONS,
    ),
}
