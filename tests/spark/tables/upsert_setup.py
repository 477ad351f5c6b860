"""Rows with a key, a driver that writes them, and places of tables that they change."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from spark_groups.fence.compare import compare
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.postgres import postgres_table
from spark_groups.spark.tables.table import Attempt
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import GROUP, TOPIC, reads
from tests.spark.tables.places import PostgresPlace

SCHEMA = pa.schema(
    [
        *(pa.field(name, of) for name, of in PLACE.items()),
        ("id", pa.string()),
        ("count", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("_deleted", pa.bool_()),
    ]
)


def row(offset: int, key: str, count: int, *, partition: int = 0, deleted: Any = None) -> Any:
    return {
        "topic": "departures",
        "partition": partition,
        "offset": offset,
        "id": key,
        "count": count,
        "tags": [f"{count}", None],
        "_deleted": deleted,
    }


def batch(*rows: Any, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([*rows], schema=schema)


class Driver:
    """Writes batches of given rows to a table, one task for each record batch."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self._batch = 0

    def look(self, *ranges: OffsetRange) -> None:
        self.state = self.table.read(GROUP, frozenset({TOPIC}))
        self.decision = compare(GROUP, ranges, self.state, table=str(self.table))

    def commit(self, *tasks: pa.RecordBatch) -> None:
        attempt = Attempt(GROUP, self._batch, uuid.uuid4().hex[:12])
        self._batch += 1
        writer = self.table.task_writer(attempt)
        staged = [piece for n, each in enumerate(tasks) for piece in writer.write([each], f"{n}")]
        self.table.commit(attempt, staged, self.decision, self.state)

    def write(self, *tasks: pa.RecordBatch) -> None:
        """Write the rows of tasks, whose offsets are without a gap."""
        found: dict[int, list[int]] = {}
        for each in tasks:
            for partition, offset in zip(
                *(each[n].to_pylist() for n in ("partition", "offset")), strict=True
            ):
                found.setdefault(partition, []).append(offset)
        self.look(*(reads(min(each), max(each) + 1, at) for at, each in found.items()))
        self.commit(*tasks)


class DeltaById:
    """A Delta table whose rows replace those with the same id."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.path = path
        self.more = more

    def driver(self, **more: Any) -> Driver:
        return Driver(delta_table(self.path, **{"merge_on": "id", **self.more, **more}))

    def create(self, not_null: str) -> None:
        """Create the table with a column that must not be null."""
        stored = (each for each in SCHEMA if each.name not in {*PLACE, "_deleted"})
        schema = pa.schema([each.with_nullable(each.name != not_null) for each in stored])
        deltalake.DeltaTable.create(self.path, deltalake.Schema.from_arrow(schema))

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        found = deltalake.DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return in_order([tuple(each[name] for name in names or ("id", "count")) for each in found])


class PostgresById:
    """A PostgreSQL table whose rows replace those with the same id."""

    def __init__(self, dsn: str) -> None:
        self.place = PostgresPlace(dsn)

    def driver(self, **more: Any) -> Driver:
        return Driver(postgres_table(self.place.dsn, "rows", **{"merge_on": "id", **more}))

    def create(self, not_null: str) -> None:
        """Create the table with a column that must not be null."""
        self.place.run("CREATE TABLE rows (id text PRIMARY KEY, count bigint, tags text[])")
        self.place.run(f"ALTER TABLE rows ALTER {not_null} SET NOT NULL")

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        return in_order(self.place.values(*(names or ("id", "count"))))


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)
