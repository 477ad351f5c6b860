"""Columns of a PostgreSQL table: values are written exactly, or refused."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.errors import TableError
from spark_groups.fence.compare import Decision
from spark_groups.spark.tables.table import Attempt
from tests.spark.tables.places import PostgresPlace

AT = datetime.datetime(2024, 10, 27, 1, 30, 0, 123456)  # noqa: DTZ001
INSTANT = AT.replace(tzinfo=datetime.timezone.utc)
ID = uuid.UUID(int=2**127 + 5)


@pytest.fixture
def place(postgres: str) -> Iterator[PostgresPlace]:
    made = PostgresPlace(postgres)
    made.run("CREATE TYPE colour AS ENUM ('red', 'dark blue')")
    made.run("CREATE DOMAIN short AS varchar(3)")
    made.run("CREATE DOMAIN code AS short CHECK (value <> 'bad') NOT NULL")
    yield made
    made.run(f"DROP SCHEMA {made.schema} CASCADE")


def write(place: PostgresPlace, *batches: pa.RecordBatch) -> None:
    table = place.fenced()
    state = table.read("g")
    attempt = Attempt("g", 0, uuid.uuid4().hex[:8])
    pieces = [*table.task_writer(attempt).write(batches, "0")]
    table.commit(attempt, pieces, Decision(), state)


def batch(column: pa.Array, **others: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": column, **others})


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("smallint", pa.array([255], pa.uint8()), 255),
        ("bigint", pa.array([2**32 - 1], pa.uint32()), 2**32 - 1),
        ("numeric", pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
        ("numeric", pa.array([Decimal("1.25")]), Decimal("1.25")),
        ("numeric", pa.array([Decimal("1E-37")], pa.decimal128(38, 37)), Decimal("1E-37")),
        ("numeric(10,2)", pa.array([Decimal("1.2500")], pa.decimal128(20, 4)), Decimal("1.25")),
        ("numeric(50,2)", pa.array([7], pa.int64()), Decimal("7.00")),
        ("double precision", pa.array([0.1], pa.float32()), pytest.approx(0.1)),
        ("double precision", pa.array([7], pa.int32()), 7.0),
        ("varchar(3)", pa.array(["süß"]), "süß"),
        ("char(3)", pa.array(["ab"]), "ab "),
        ("code", pa.array(["abc"]), "abc"),
        ("colour", pa.array(["dark blue"]), "dark blue"),
        ("jsonb", pa.array(['{"a": [1, null]}']), {"a": [1, None]}),
        ("json", pa.array(["[]"]), []),
        ("uuid", pa.array([str(ID)]), ID),
        ("uuid", pa.array([ID.bytes], pa.uuid()), ID),
        ("inet", pa.array(["10.0.0.1/8"]), None),
        ("integer[]", pa.array([[1, None, 2]], pa.list_(pa.int16())), [1, None, 2]),
        ("text[]", pa.array([['a"b', "NULL", None, ""]]), ['a"b', "NULL", None, ""]),
        ("bigint[]", pa.array([None], pa.null()), None),
        ("timestamptz", pa.array([INSTANT], pa.timestamp("ns", "Asia/Tokyo")), INSTANT),
        ("timestamp", pa.array([AT], pa.timestamp("us")), AT),
        (
            "timestamp(3)",
            pa.array([AT.replace(microsecond=123000)]),
            AT.replace(microsecond=123000),
        ),
    ],
)
def test_value_is_written_exactly(
    place: PostgresPlace, kind: str, given: pa.Array, wanted: Any
) -> None:
    place.run(f"CREATE TABLE rows (a {kind})")
    write(place, batch(given))
    ((found,),) = place.run("SELECT a FROM rows")
    assert wanted is None or found == wanted


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        ("smallint", pa.array([1], pa.int32()), "a is int32, not smallint"),
        ("real", pa.array([0.1]), "a is double, not real"),
        ("numeric(3,1)", pa.array([Decimal("1.25")]), "does not fit decimal128.3, 1. exactly"),
        ("varchar(3)", pa.array(["1234"]), "has more than 3 characters"),
        ("char(3)", pa.array(["ab", "a  "]), "does not fit the column exactly .row 1 of a task"),
        ("code", pa.array(["bad"]), 'violates check constraint "code_check"'),
        ("code", pa.array(["abc", None]), "a is null"),
        ("code", pa.array(["abcd"]), "has more than 3 characters"),
        ("colour", pa.array(["red", "dark blue", "pink"]), "pink.*.row 2 of a task"),
        ("jsonb", pa.array(["{}", "{", "[]"]), "invalid input syntax.*.row 1 of a task"),
        ("uuid", pa.array(["x"]), "invalid input syntax for type uuid"),
        ("integer[]", pa.array([["a"]]), "a.element is string, not int32"),
        ("integer[]", pa.array([[[1]]]), "to_json|element"),
        ("timestamptz", pa.array([AT]), "one has a time zone, and the other has none"),
        ("timestamp", pa.array([INSTANT], pa.timestamp("us", "UTC")), "one has a time zone"),
        ("timestamp(3)", pa.array([AT]), "does not fit the column exactly"),
        ("timestamp", pa.array([2**63 - 1], pa.timestamp("us")), "outside the timestamp"),
        ("text", pa.array(["a\0"]), "is text with the character 0"),
        ("text[]", pa.array([["a", "\0"]]), "a.element is text with the character 0"),
        ("text", pa.array([{"x": 1}]), "to_json"),
        ("integer NOT NULL", pa.array([1, None], pa.int32()), "a is null.*row 1"),
        ("point", pa.array(["1,2"]), "a is point, which this writer does not fill"),
        ("integer GENERATED ALWAYS AS (1) STORED", pa.array([1]), "computed by the table"),
    ],
)
def test_value_that_does_not_fit_is_refused(
    place: PostgresPlace, kind: str, given: pa.Array, problem: str
) -> None:
    place.run(f"CREATE TABLE rows (a {kind})")
    with pytest.raises(TableError, match=problem) as refused:
        write(place, batch(given))
    assert "the batch does not fit" in str(refused.value)
    assert place.run("SELECT * FROM rows") == []


def test_refused_value_has_the_place_of_its_record(place: PostgresPlace) -> None:
    place.run('CREATE TABLE rows (a jsonb, topic text, partition int, "offset" bigint)')
    given = batch(
        pa.array(["{}", "nothing"]),
        topic=pa.array(["t", "t"]),
        partition=pa.array([3, 3], pa.int32()),
        offset=pa.array([8, 9]),
    )
    with pytest.raises(TableError, match="the record t-3 offset 9"):
        write(place, given)


def test_tasks_may_lack_columns_that_have_a_default_or_may_be_null(place: PostgresPlace) -> None:
    place.run("CREATE TABLE rows (a int, b int NOT NULL DEFAULT 7, c text)")
    write(place, batch(pa.array([1], pa.int32())))
    write(
        place,
        pa.RecordBatch.from_pydict({"b": [2], "c": ["x"]}).cast(
            pa.schema([("b", pa.int32()), ("c", pa.string())])
        ),
    )
    assert place.run("SELECT * FROM rows ORDER BY b") == [(None, 2, "x"), (1, 7, None)]


def test_rows_of_a_task_whose_column_takes_another_type_are_refused(place: PostgresPlace) -> None:
    place.run("CREATE TABLE rows (a uuid)")
    of_one_type, of_another = batch(pa.array([ID.bytes], pa.uuid())), batch(pa.array([str(ID)]))
    with pytest.raises(TableError, match=r"within a task, where a is string, not .*uuid"):
        write(place, of_one_type, of_another)
    write(place, batch(pa.nulls(1)), of_another)
    assert place.run("SELECT * FROM rows ORDER BY a") == [(ID,), (None,)]


def test_new_table_has_arrays_and_odd_names(place: PostgresPlace) -> None:
    names = ['per%cent "quoted"', "select", "söm", "n" * 63, "A", "a"]
    given = pa.RecordBatch.from_arrays([pa.array([["x"]])] * len(names), names=names)
    write(place, given)
    assert place.run("SELECT * FROM rows") == [(["x"],) * len(names)]
    with pytest.raises(TableError, match="too long for PostgreSQL"):
        write(place, pa.RecordBatch.from_arrays([pa.array([1])], names=["n" * 64]))
