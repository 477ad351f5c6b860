"""What else a PostgreSQL table by key may have: names, constraints, domains, computed columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_groups.errors import TableError
from tests.spark.tables.upsert_setup import SCHEMA, PostgresById, batch, row

OTHER = SCHEMA.set(4, pa.field("other", pa.string()))


def changes(first_offset: int, *given: tuple[Any, ...]) -> pa.RecordBatch:
    """Return rows of an id, another value, and whether they delete."""
    found = [
        {**row(first_offset + n, key, 0, deleted=[*deletes] == [True]), "other": other}
        for n, (key, other, *deletes) in enumerate(given)
    ]
    return batch(*found, schema=OTHER).drop_columns(["tags"])


def table(dsn: str, other: str) -> PostgresById:
    """Create a table of ids and another value."""
    by_id = PostgresById(dsn)
    by_id.place.run(f"CREATE TABLE rows (id text PRIMARY KEY, other {other})")
    return by_id


@pytest.mark.parametrize("is_key", [False, True])
@pytest.mark.parametrize(
    "name", ["record", "staged", "changes", "stored", "excluded", "row of the task", '{0} %s "x"']
)
def test_column_may_have_any_name_that_postgresql_takes(
    postgres: str, name: str, is_key: bool
) -> None:
    by_id = PostgresById(postgres)
    key, other = (name, "id") if is_key else ("id", name)
    schema = SCHEMA.set(4, pa.field(name, pa.int64()))
    for order_by in (None, other):
        given = [row(0, "a", 1), row(1, "b", 2), row(2, "b", 2, deleted=True)]
        found = [{**each, name: each["count"]} for each in given]
        driver = by_id.driver(merge_on=key, order_by=order_by)
        driver.write(batch(*found, schema=schema))
        assert by_id.rows("id") == [("a",)]
        by_id.place.run("DELETE FROM spark_groups_fence")


def test_column_with_a_length_may_have_any_name_that_postgresql_takes(postgres: str) -> None:
    by_id = table(postgres, 'text, "number of the row" varchar(3)')
    name = "number of the row"
    schema = SCHEMA.set(4, pa.field(name, pa.string())).remove(5)
    by_id.driver().write(batch({**row(0, "a", 1), name: "abc"}, schema=schema))
    assert by_id.rows("id", name) == [("a", "abc")]


def test_row_may_have_the_unique_value_of_one_that_the_same_batch_deletes(postgres: str) -> None:
    by_id = table(postgres, "text UNIQUE")
    by_id.driver().write(changes(0, ("1", "x")))
    by_id.driver().write(changes(1, ("1", None, True), ("2", "x")))
    assert by_id.rows("id", "other") == [("2", "x")]


def test_constraint_that_rows_violate_is_named_with_its_columns_and_without_values(
    postgres: str,
) -> None:
    by_id = table(postgres, "text UNIQUE")
    by_id.driver().write(changes(0, ("1", "secret"), ("2", "y")))
    with pytest.raises(TableError, match=r"rows_other_key\" of other.*DEFERRABLE") as refused:
        by_id.driver().write(changes(2, ("1", "y"), ("2", "secret")))
    assert "secret" not in str(refused.value)
    assert by_id.rows("id", "other") == [("1", "secret"), ("2", "y")]


@pytest.mark.parametrize("deferred", ["DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_rows_exchange_values_of_a_constraint_that_is_checked_after_all_of_them(
    postgres: str, deferred: str
) -> None:
    by_id = table(postgres, f"text UNIQUE {deferred}")
    by_id.driver().write(changes(0, ("1", "x"), ("2", "y")))
    by_id.driver().write(changes(2, ("1", "y"), ("2", "x")))
    assert by_id.rows("id", "other") == [("1", "y"), ("2", "x")]
    with pytest.raises(TableError, match="rows_other_key"):
        by_id.driver().write(changes(4, ("3", "y")))


@pytest.mark.parametrize("deferred", ["", "DEFERRABLE"])
def test_row_is_deleted_to_which_another_one_no_longer_refers(postgres: str, deferred: str) -> None:
    by_id = table(postgres, f"text REFERENCES rows {deferred}")
    by_id.driver().write(changes(0, ("1", None), ("2", "1")))
    by_id.driver().write(changes(2, ("3", None), ("2", "3"), ("1", None, True)))
    assert by_id.rows("id", "other") == [("2", "3"), ("3", None)]
    with pytest.raises(TableError, match="rows_other_fkey"):
        by_id.driver().write(changes(5, ("3", None, True)))


def test_row_that_deletes_may_lack_a_value_of_a_domain_without_nulls(postgres: str) -> None:
    by_id = PostgresById(postgres)
    by_id.place.run("CREATE DOMAIN filled AS text NOT NULL")
    by_id.place.run("CREATE TABLE rows (id text PRIMARY KEY, other filled)")
    by_id.driver().write(changes(0, ("1", "x"), ("2", "y")))
    by_id.driver().write(changes(2, ("1", None, True), ("2", "z")))
    assert by_id.rows("id", "other") == [("2", "z")]


def test_columns_that_the_table_computes_follow_and_are_no_keys(postgres: str) -> None:
    number = "number bigint GENERATED ALWAYS AS IDENTITY UNIQUE"
    longer = "longer text GENERATED ALWAYS AS (other || '!') STORED"
    by_id = table(postgres, f"text, {number}, {longer}")
    by_id.driver().write(changes(0, ("1", "x"), ("2", "y")))
    by_id.driver().write(changes(2, ("1", "z"), ("2", None, True)))
    assert by_id.rows("id", "number", "longer") == [("1", 1, "z!")]
    with pytest.raises(TableError, match=r"has no number.*; number is computed by the table"):
        by_id.driver(merge_on="number").table.check()


def test_partitions_of_the_table_take_the_rows_of_their_keys(postgres: str) -> None:
    by_id = PostgresById(postgres)
    columns = "id text, other text, PRIMARY KEY (id, other)"
    by_id.place.run(f"CREATE TABLE rows ({columns}) PARTITION BY LIST (other)")
    for name in ("x", "y"):
        by_id.place.run(f"CREATE TABLE rows_{name} PARTITION OF rows FOR VALUES IN ('{name}')")
    driver = by_id.driver(merge_on=("id", "other"))
    driver.table.check()
    driver.write(changes(0, ("1", "x"), ("1", "y")))
    driver.write(changes(2, ("1", "x", True), ("1", "y"), ("2", "x")))
    assert by_id.rows("id", "other") == [("1", "y"), ("2", "x")]
    with pytest.raises(TableError, match="no partition of relation"):
        driver.write(changes(5, ("1", "z")))


def test_trigger_may_leave_rows_out(postgres: str) -> None:
    by_id = table(postgres, "text")
    by_id.place.run(
        "CREATE FUNCTION left_out() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF NEW.other = '' THEN RETURN NULL; END IF; RETURN NEW; END$$"
    )
    by_id.place.run(
        "CREATE TRIGGER left_out BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION left_out()"
    )
    by_id.driver().write(changes(0, ("1", "x"), ("2", "")))
    by_id.driver().write(changes(2, ("1", ""), ("3", "y")))
    assert by_id.rows("id", "other") == [("1", "x"), ("3", "y")]


def test_last_of_rows_with_the_same_order_is_that_of_the_last_place(postgres: str) -> None:
    by_id = PostgresById(postgres)
    driver = by_id.driver(order_by="count")
    places = [(1, 0), (1, 1), (0, 0), (0, 1)]
    rows = [{**row(n, "a", 1, partition=at), "tags": [f"{at}-{n}"]} for at, n in places]
    driver.write(batch(*rows))
    assert by_id.rows("tags") == [(["1-1"],)]
    driver.write(batch({**row(2, "a", 1), "tags": ["0-2"]}))
    assert by_id.rows("tags") == [(["0-2"],)]
