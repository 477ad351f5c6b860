"""Which PostgreSQL table a name leads to, and what other clients of a pooler leave behind."""

from __future__ import annotations

import psycopg
import pytest

import spark_groups
from spark_groups.errors import TableError
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.postgres import PostgresTable
from tests.spark.tables.batches_setup import GROUP, KEY, reads
from tests.spark.tables.places import PostgresPlace, Writer


def connection_of(writer: Writer) -> psycopg.Connection[tuple[object, ...]]:
    assert isinstance(writer.table, PostgresTable)
    assert writer.table._connection is not None
    return writer.table._connection


def test_settings_that_another_client_of_a_pooler_left_change_nothing(
    on_postgres: PostgresPlace, postgres: str
) -> None:
    writer, other = Writer(on_postgres), PostgresPlace(postgres)
    writer.write(reads(0, 10))
    other.run('CREATE TABLE rows (partition int, "offset" bigint)')
    left = connection_of(writer)
    left.execute(f"SET search_path TO {other.schema}")
    left.execute("SET timezone TO 'Asia/Tokyo'")
    left.execute("SET datestyle TO 'German'")
    writer.write(reads(10, 20))
    assert on_postgres.offsets() == list(range(20))
    assert on_postgres.entries(GROUP) == {KEY: Entry(0, 20)}
    assert other.run("SELECT * FROM rows") == []
    assert other.run("SELECT to_regclass('spark_groups_fence')") == [(None,)]


@pytest.mark.parametrize("is_there_before", [True, False])
def test_new_table_earlier_on_the_path_stops_the_query(
    on_postgres: PostgresPlace, postgres: str, is_there_before: bool
) -> None:
    first = PostgresPlace(postgres)
    dsn = f"{postgres} options=-csearch_path={first.schema},{on_postgres.schema}"
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    writer.table = spark_groups.postgres_table(dsn, "rows")
    if is_there_before:
        writer.write(reads(10, 20))
    else:
        writer.look(reads(10, 20))
        writer.stage()
    first.run("CREATE TABLE rows AS SELECT 1 AS partition")
    act = (lambda: writer.write(reads(20, 30))) if is_there_before else writer.commit
    with pytest.raises(TableError, match="name leads to the one with the oid"):
        act()
    assert on_postgres.offsets() == list(range(20 if is_there_before else 10))
    assert first.run("SELECT * FROM rows") == [(1,)]


def test_table_that_was_created_again_without_its_fence_stops_the_query(
    on_postgres: PostgresPlace,
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    on_postgres.run("DROP TABLE rows, spark_groups_fence; CREATE TABLE rows (partition int)")
    with pytest.raises(TableError, match="start the query again"):
        writer.write(reads(10, 20))
