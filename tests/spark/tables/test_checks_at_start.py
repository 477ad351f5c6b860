"""Everything that is known before the first batch is refused before the query starts."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

import spark_groups
from spark_groups import SkipOrDeadLetter, TableWriter
from spark_groups.errors import OptionsError, TableError
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.tables import write
from tests.spark.queries import GroupQuery
from tests.spark.tables.batches_setup import SCHEMA, reads
from tests.spark.tables.delta_setup import DeltaPlace
from tests.spark.tables.places import PostgresPlace, SqlitePlace, Writer
from workshop.parts.brokers import create_topic

# Tables by themselves, when `write_table` is called.


def test_database_that_cannot_be_reached_is_named_at_once() -> None:
    table = spark_groups.postgres_table("host=127.0.0.1 port=1 user=flights", "rows")
    with pytest.raises(TableError, match=r"PostgreSQL cannot be reached: .*port 1 failed"):
        spark_groups.write_table(table)


def test_role_that_may_not_stage_rows_is_refused_with_the_right_that_it_lacks(
    postgres: str, on_postgres: PostgresPlace
) -> None:
    role = f"r{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(f"GRANT USAGE ON SCHEMA {on_postgres.schema} TO {role}")
        try:
            dsn = f"{postgres} options='-crole={role} -csearch_path={on_postgres.schema}'"
            with pytest.raises(TableError, match=f"GRANT CREATE ON SCHEMA {on_postgres.schema} TO"):
                spark_groups.write_table(spark_groups.postgres_table(dsn, "rows"))
        finally:
            connection.execute(f"DROP OWNED BY {role} CASCADE")
            connection.execute(f"DROP ROLE {role}")


def test_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    table = spark_groups.sqlite_table(tmp_path / "none" / "rows.db", "rows")
    with pytest.raises(TableError, match=f"there is no directory {tmp_path / 'none'}"):
        spark_groups.write_table(table)


def test_setting_of_a_delta_table_is_refused_at_once(tmp_path: Path) -> None:
    settings = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    schema = deltalake.Schema.from_arrow(SCHEMA)
    deltalake.DeltaTable.create(tmp_path, schema, configuration=settings)
    with pytest.raises(TableError, match="UNSET TBLPROPERTIES"):
        spark_groups.write_table(spark_groups.delta_table(tmp_path))


def test_check_makes_no_table_and_remembers_none(tmp_path: Path) -> None:
    """A table that is dropped before the first batch is no table that was dropped while it ran."""
    place = DeltaPlace(tmp_path / "rows")
    fenced = place.fenced()
    spark_groups.write_table(fenced)
    assert not place.path.exists()
    Writer(place).write(reads(0, 10))
    fenced = place.fenced()
    spark_groups.write_table(fenced)
    place.path.rename(tmp_path / "away")
    assert not fenced.read("flights").is_there


# Streams, when `check` is called.


@dataclass
class Unhashable:
    """A transform as applications write them."""

    names: list[str]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self.names)


def test_transform_without_a_hash_is_checked_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SqlitePlace(tmp_path / "rows.db")
    not_null(place)
    options = SourceOptions.of(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "kafka.group.id": "flights",
            "subscribe": "departures",
            "emit": "ranges",
        }
    )
    monkeypatch.setattr(write, "loaded_stream", lambda *_: (options, True))
    stream: Any = None
    with pytest.raises(TableError, match="number is missing, and must not be null"):
        spark_groups.write_table(place.fenced(), Unhashable(["value"])).check(stream)


def not_null(place: SqlitePlace) -> None:
    place.run("CREATE TABLE rows (value BLOB, number INTEGER NOT NULL)")


def nothing(place: SqlitePlace) -> None:
    del place


def value_alone(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value"])


FITTING: Any = pytest.mark.parametrize(
    ("emit", "make", "transform", "problem"),
    [
        ("records", not_null, lambda rows: rows.select("value"), "number is missing, and must not"),
        ("ranges", not_null, value_alone, "number is missing, and must not be null"),
        ("records", not_null, lambda rows: rows.select("value", "key"), "key is not a column"),
        ("records", nothing, lambda rows: rows.selectExpr("parse_json('1') AS a"), "a is VARIANT"),
        ("ranges", nothing, lambda batch: batch.to_pylist(), "returns one, not list"),
    ],
)


@pytest.fixture
def stream_of(
    spark: Any, kafka: Any, group_id: str, topic_name: str, tmp_path: Path
) -> Callable[..., DataFrame]:
    create_topic(kafka.bootstrap_servers, topic_name, 1)

    def made(emit: str, **more: str) -> DataFrame:
        options = {"emit": emit, **more}
        return GroupQuery(spark, kafka, group_id, topic_name, tmp_path, options).source()

    return made


def on_spark(test: Any) -> Any:
    return pytest.mark.broker(pytest.mark.spark(test))


@on_spark
@FITTING
def test_columns_that_do_not_fit_are_refused_before_the_query_starts(  # noqa: PLR0917
    stream_of: Callable[..., DataFrame],
    tmp_path: Path,
    emit: str,
    make: Callable[[SqlitePlace], None],
    transform: Any,
    problem: str,
) -> None:
    place = SqlitePlace(tmp_path / "rows.db")
    make(place)
    writer = spark_groups.write_table(place.fenced(), transform)
    with pytest.raises(TableError, match=problem):
        writer.check(stream_of(emit))


@on_spark
@pytest.mark.parametrize("emit", ["records", "ranges"])
def test_partition_column_that_the_rows_lack_is_refused_in_both_ways(
    stream_of: Callable[..., DataFrame], tmp_path: Path, emit: str
) -> None:
    table = spark_groups.delta_table(tmp_path / "rows", partition_by="day")
    stream = stream_of(emit)
    with pytest.raises(TableError, match="partition_by names day, which the batch lacks"):
        spark_groups.write_table(table).check(stream)
    fitting = spark_groups.delta_table(tmp_path / "rows", partition_by="topic")
    spark_groups.write_table(fitting).check(stream)
    assert not (tmp_path / "rows").exists()


@on_spark
def test_streams_and_options_that_do_not_fit_are_refused(
    stream_of: Callable[..., DataFrame], tmp_path: Path, topic_name: str, group_id: str
) -> None:
    table = spark_groups.sqlite_table(tmp_path / "rows.db", "rows")
    records, ranges = stream_of("records"), stream_of("ranges")
    with_headers = stream_of("records", includeHeaders="true")
    mine = spark_groups.own_table("a store", lambda group: {}, lambda rows, decision: True)
    letters = spark_groups.write_table(table, value_of, on_error=SkipOrDeadLetter())
    wrong = spark_groups.write_table(table, lambda rows: rows.select("nothing"))
    refusals: list[tuple[TableWriter, DataFrame, type[Exception], str]] = [
        (letters, records.where("partition = 0"), OptionsError, "as load() returned it"),
        (letters, records, OptionsError, "includeHeaders must be true"),
        (
            letters,
            with_headers,
            OptionsError,
            f"there is no topic {topic_name}.{group_id}.dead-letter",
        ),
        (spark_groups.write_table(mine), ranges, OptionsError, "load the stream with emit=records"),
        (wrong, records, AnalysisException, "nothing"),
    ]
    for writer, stream, kind, problem in refusals:
        with pytest.raises(kind) as refused:
            writer.check(stream)
        assert problem in str(refused.value)
    # A transform that needs rows tells nothing without them.
    spark_groups.write_table(table, lambda rows: rows.where(rows.first()["key"])).check(records)
    spark_groups.write_table(table, lambda batch: batch[batch.num_rows - 1 : 0]["x"]).check(ranges)
    assert not (tmp_path / "rows.db").exists()


def value_of(rows: DataFrame) -> DataFrame:
    return rows.select("value")
