"""Batches that are written to PostgreSQL and SQLite tables, on a real Spark and a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.functions import col, struct

import spark_groups
from spark_groups.errors import OptionsError
from spark_groups.spark.tables.fence import Entry
from spark_groups.spark.tables.table import Attempt
from tests.spark.tables.places import PostgresPlace, SqlitePlace
from tests.spark.tables.write_databases_setup import DatabaseQuery
from tests.spark.tables.write_setup import (
    PARTITIONS,
    ROWS,
    WAYS,
    crash_after_the_tables_commit,
    expected,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture(params=[f"{kind}-{way}" for kind in ("postgres", "sqlite") for way in WAYS])
def query(
    query_of: Callable[..., DatabaseQuery],
    tmp_path: Path,
    postgres: str,
    request: pytest.FixtureRequest,
) -> DatabaseQuery:
    """A query on a topic with rows; the parameter is the database and `emit`."""
    kind, way = request.param.split("-")
    place = PostgresPlace(postgres) if kind == "postgres" else SqlitePlace(tmp_path / "rows.db")
    return query_of(DatabaseQuery, way, place, maxRecordsPerPartition="7")


def only(*parameters: str) -> Any:
    return pytest.mark.parametrize("query", parameters, indirect=True)


def test_every_record_is_in_the_table_once(query: DatabaseQuery) -> None:
    """Each partition is read by several tasks, with at most seven records each."""
    assert query.run() == ""
    query.produce(ROWS, 30)
    assert query.run() == ""
    assert query.values() == expected(ROWS + 30)
    end = (ROWS + 30) // PARTITIONS
    found = query.place.entries(query.group_id)
    assert {key.partition: entry for key, entry in found.items()} == dict.fromkeys(
        range(PARTITIONS), Entry(0, end)
    )
    assert query.committed() == dict.fromkeys(range(PARTITIONS), end)
    assert query.place.staged() == []
    where = 'SELECT topic, partition, "offset", key, "timestampType" FROM rows WHERE value = '
    value = "'10'::bytea" if isinstance(query.place, PostgresPlace) else "CAST('10' AS BLOB)"
    assert query.place.run(where + value) == [(query.topic, 1, 3, b"k", 0)]


def test_crash_after_the_tables_commit_writes_no_record_twice(query: DatabaseQuery) -> None:
    crash_after_the_tables_commit(query)
    assert query.run() == ""
    assert query.values() == expected(ROWS)
    assert query.committed() == dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS)


def test_crash_before_the_tables_commit_loses_no_record(
    query: DatabaseQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("the driver dies here")

    table = type(query.place.table())
    with monkeypatch.context() as patch:
        patch.setattr(table, "commit", die)
        assert "the driver dies here" in query.run()
    orphans = query.place.staged()
    assert orphans
    assert all(each.startswith("spark-groups-0-") for each in orphans)
    assert query.run() == ""
    assert query.values() == expected(ROWS)


@only("postgres-ranges", "sqlite-ranges")
def test_transform_of_record_batches_runs_on_executors(query: DatabaseQuery) -> None:
    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        number = pc.cast(pc.cast(batch["value"], pa.string()), pa.int32())
        found = pa.RecordBatch.from_arrays(
            [batch["value"], number, batch["topic"].dictionary_encode()],
            names=["value", "number", "topic"],
        )
        return found.filter(pc.greater_equal(number, 10))

    query.transform = transform
    assert query.run() == ""
    found = query.place.run("SELECT number, topic FROM rows ORDER BY number")
    assert found == [(number, query.topic) for number in range(10, ROWS)]


@only("postgres-records", "sqlite-records")
def test_transform_returns_other_columns_and_an_unknown_type_is_named(
    query: DatabaseQuery,
) -> None:
    query.transform = lambda rows: rows.select(
        "value",
        (col("value").cast("string").cast("int") / 4).cast("decimal(8,2)").alias("quarter"),
        col("timestamp").cast("date").alias("day"),
        col("timestamp"),
    ).where("value != '0'")
    assert query.run() == ""
    assert sum(query.values().values()) == ROWS - 1
    (quarter, day, at), *_ = query.place.run(
        "SELECT quarter, day, timestamp FROM rows ORDER BY quarter DESC"
        if isinstance(query.place, PostgresPlace)
        else "SELECT quarter, day, timestamp FROM rows ORDER BY CAST(quarter AS REAL) DESC"
    )
    assert str(quarter) == f"{(ROWS - 1) / 4:.2f}"
    assert str(at).startswith(str(day))
    query.produce(ROWS, 30)
    query.transform = lambda rows: rows.select(struct("key").alias("quarter"))
    failure = query.run()
    assert "quarter is struct<key: binary>, not " in failure


def test_sqlite_needs_a_local_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Context:
        master: str

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", Context("spark://host:7077"))
    table = spark_groups.sqlite_table(tmp_path / "rows.db", "rows")
    with pytest.raises(OptionsError, match=r"the master is spark://host:7077: use local\[\*\]"):
        table.task_writer(Attempt("flights", 0, "a"))
