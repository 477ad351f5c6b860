"""Batches that are written to PostgreSQL and SQLite tables, on a real Spark and a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql.functions import col, struct

import spark_groups
from spark_groups.errors import OptionsError
from spark_groups.spark.tables.table import Attempt
from tests.spark.tables.every_table_setup import place_of
from tests.spark.tables.places import PostgresPlace
from tests.spark.tables.write_setup import ROWS, PlaceQuery

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture(params=["postgres", "sqlite"])
def query(
    query_of: Callable[..., PlaceQuery], tmp_path: Path, request: pytest.FixtureRequest
) -> PlaceQuery:
    """A query on a topic with rows; the parameter is the database."""
    place = place_of(request.param, request, tmp_path)
    return query_of(PlaceQuery, "records", place, maxRecordsPerPartition="7")


def test_transform_returns_other_columns_and_an_unknown_type_is_named(
    query: PlaceQuery,
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
