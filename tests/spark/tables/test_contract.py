"""Each kind of fault of rows, on each kind of table: refused before a commit, or read back."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_groups.errors import TableError
from spark_groups.fence.compare import Decision
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from tests.spark.tables.places import PostgresPlace
from workshop.parts.stores import DeltaStore, IcebergStore, PostgresStore, Store

Stage = Callable[[FencedTable, Attempt], list[Piece]]
UTC = datetime.timezone.utc
AT = datetime.datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
"""The first of the two instants of Berlin's repeated hour in autumn: the other is an hour later."""
NAIVE = AT.replace(tzinfo=None)
BAD_TEXT = pa.array([b"\xff"], pa.binary()).view(pa.string())
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array([5, None, 7]))
OF_UUID = pa.MapArray.from_arrays(
    pa.array([0, 1], pa.int32()), pa.array(["k"]), pa.array([uuid.UUID(int=5).bytes], pa.uuid())
)
NESTED = frozenset({"Delta", "Iceberg"})
ALL = NESTED | {"PostgreSQL"}


@dataclass(frozen=True)
class Fault:
    """Rows for the column `a` of a table.

    Args:
        given: The column of each record batch of a task.
        table: The type of the column, if the table exists; None: it is new.
        refused: What the error says; empty: the rows are read back.
        read: The values that are read back.
        systems: The kinds of table that it is about.
        nullable: Whether the existing column may be null.
        partition_by: Whether the table is partitioned by the column.
    """

    given: tuple[pa.Array, ...]
    table: pa.DataType | None = None
    refused: str = ""
    read: tuple[Any, ...] = ()
    systems: frozenset[str] = ALL
    nullable: bool = True
    partition_by: bool = False


def strict(column: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("x", column, nullable=False)])


FAULTS: dict[str, Fault] = {
    "null into NOT NULL": Fault(
        (pa.array([1, None]),), pa.int64(), "a is null, which.*row 1", nullable=False
    ),
    "null into NOT NULL of a struct": Fault(
        (pa.array([{"x": 1}, {"x": None}]),),
        strict(pa.int64()),
        r"a\.x is null.*row 1",
        systems=NESTED,
    ),
    "null struct with a field that is NOT NULL": Fault(
        (pa.array([{"x": 1}, None]),), strict(pa.int64()), read=({"x": 1}, None), systems=NESTED
    ),
    "null struct with decimal digits that are NOT NULL": Fault(
        (pa.array([{"x": Decimal("0.5")}, None], pa.struct([("x", pa.decimal128(38, 37))])),),
        strict(pa.decimal128(38, 37)),
        read=({"x": Decimal("0.5")}, None),
        systems=NESTED,
    ),
    "null into a list of NOT NULL": Fault(
        (pa.array([[1], [2, None]]),),
        pa.list_(pa.field("element", pa.int64(), nullable=False)),
        r"a\.element is null.*row 1",
        systems=NESTED,
    ),
    "null into a map of NOT NULL": Fault(
        (pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),),
        pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        r"a\.value is null",
        systems=NESTED,
    ),
    "null among runs, beside a null struct": Fault(
        (pa.StructArray.from_arrays([RUNS], ["x"], mask=pa.array([True, False, False])),),
        strict(pa.int64()),
        r"a\.x is null.*row 1",
        systems=NESTED,
    ),
    "runs below a null map": Fault(
        (
            pa.MapArray.from_arrays(
                pa.array([0, 1, 3], pa.int32()),
                pa.array(["k", "l", "m"]),
                RUNS,
                mask=pa.array([False, True]),
            ),
        ),
        read=([("k", 5)], None),
        systems=NESTED,
    ),
    "empty views of lists of maps of UUIDs": Fault(
        (
            pa.ListViewArray.from_arrays(
                pa.array([0, 0], pa.int32()), pa.array([0, 0], pa.int32()), OF_UUID
            ),
        ),
        read=([], []),
        systems=frozenset({"Iceberg"}),
    ),
    "unsigned numbers": Fault((pa.array([2**32 - 1], pa.uint32()),), read=(2**32 - 1,)),
    "the largest unsigned numbers": Fault(
        (pa.array([2**64 - 1], pa.uint64()),), read=(Decimal(2**64 - 1),)
    ),
    "unsigned numbers in a list": Fault((pa.array([[255]], pa.list_(pa.uint8())),), read=([255],)),
    "unsigned numbers in a struct": Fault(
        (pa.array([{"x": 2**16 - 1}], pa.struct([("x", pa.uint16())])),),
        read=({"x": 2**16 - 1},),
        systems=NESTED,
    ),
    "unsigned numbers for a signed int": Fault(
        (pa.array([{"x": 1}], pa.struct([("x", pa.uint32())])),),
        pa.struct([("x", pa.int32())]),
        r"a\.x is uint32, not int32",
        systems=NESTED,
    ),
    "uuid": Fault(
        (pa.array([uuid.UUID(int=5).bytes], pa.uuid()),),
        refused="a is .*uuid.*does not have",
        systems=frozenset({"Delta"}),
    ),
    "only nulls for a new table": Fault((pa.nulls(2),), refused="a has only nulls.*cast it"),
    "only nulls for a column": Fault((pa.nulls(2),), pa.string(), read=(None, None)),
    "only nulls for NOT NULL": Fault((pa.nulls(2),), pa.string(), "a is null", nullable=False),
    "another type within a task, exact": Fault(
        (pa.array([2**40]), pa.array([7], pa.int8())), read=(7, 2**40)
    ),
    "another type within a task": Fault(
        (pa.array([7]), pa.array(["x"])), refused="a is string, not (int64|bigint)"
    ),
    "nanoseconds that divide": Fault(
        (pa.array([1_000], pa.timestamp("ns", "UTC")),),
        read=(datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),),
    ),
    "nanoseconds that do not divide": Fault(
        (pa.array([1_000, 1_001], pa.timestamp("ns", "UTC")),), refused="exactly.*row 1"
    ),
    "a zone for a column without": Fault(
        (pa.array([AT], pa.timestamp("us", "UTC")),), pa.timestamp("us"), "a time zone"
    ),
    "no zone for a column with one": Fault(
        (pa.array([NAIVE]),), pa.timestamp("us", "UTC"), "a time zone"
    ),
    "the repeated hour of a zone": Fault(
        (pa.array([AT, AT + datetime.timedelta(hours=1)], pa.timestamp("us", "Europe/Berlin")),),
        read=(AT, AT + datetime.timedelta(hours=1)),
    ),
    "digits that are lost": Fault(
        (pa.array([Decimal("1.25"), Decimal("1.255")]),),
        pa.decimal128(10, 2),
        "exactly.*row 1",
    ),
    "digits that fit": Fault(
        (pa.array([Decimal("1.250")]),), pa.decimal128(10, 2), read=(Decimal("1.25"),)
    ),
    "a wider integer": Fault((pa.array([1]),), pa.int32(), "a is int64, not"),
    "wider floating point": Fault((pa.array([0.5]),), pa.float32(), "a is double, not"),
    "text that is not UTF-8": Fault((BAD_TEXT,), refused="a is text with bytes that are not UTF-8"),
    "nested text that is not UTF-8": Fault(
        (pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), BAD_TEXT),),
        refused=r"a\.element is text with bytes that are not UTF-8",
    ),
    "a type that no table has": Fault(
        (pa.array([1], pa.duration("s")),), refused="a is duration.*does not have"
    ),
    "views and dictionaries": Fault(
        (pa.array(["x"], pa.string_view()), pa.array(["y"]).dictionary_encode()), read=("x", "y")
    ),
    "no rows": Fault((pa.array([], pa.int64()),), read=()),
    "a partition of a type that readers do not read": Fault(
        (pa.array([Decimal("-0.5")]),),
        refused="a has a type by which no table is partitioned",
        systems=frozenset({"Delta"}),
        partition_by=True,
    ),
    "a map of times without a zone": Fault(
        (pa.array([[("k", NAIVE)]], pa.map_(pa.string(), pa.timestamp("us"))),),
        refused="a has timestamp.*in a map",
        systems=frozenset({"Delta"}),
    ),
    "empty text for a NOT NULL partition": Fault(
        (pa.array(["x", ""]),),
        pa.string(),
        "a is an empty text.*row 1",
        systems=frozenset({"Delta"}),
        nullable=False,
        partition_by=True,
    ),
    "null for a NOT NULL partition": Fault(
        (pa.array(["x", None]),),
        pa.string(),
        "a is null.*row 1",
        systems=frozenset({"Delta"}),
        nullable=False,
        partition_by=True,
    ),
    "empty text for a partition": Fault(
        (pa.array(["x", ""]),),
        read=(None, "x"),
        systems=frozenset({"Delta"}),
        partition_by=True,
    ),
    "empty text and null for partitions of Iceberg": Fault(
        (pa.array(["x", "", None, "a/b=%c é"]),),
        read=("", None, "a/b=%c é", "x"),
        systems=frozenset({"Iceberg"}),
        partition_by=True,
    ),
    "digits of a partition": Fault(
        (pa.array([Decimal("-0.5"), Decimal(7)]),),
        read=(Decimal("-0.5"), Decimal(7)),
        systems=frozenset({"Iceberg"}),
        partition_by=True,
    ),
    "null for a NOT NULL partition of Iceberg": Fault(
        (pa.array(["x", None]),),
        pa.string(),
        "a is null.*row 1",
        systems=frozenset({"Iceberg"}),
        nullable=False,
        partition_by=True,
    ),
    "a struct for a partition of Iceberg": Fault(
        (pa.array([{"x": 1}]),),
        refused="a is struct.*, which identity of partition_by refuses",
        systems=frozenset({"Iceberg"}),
        partition_by=True,
    ),
}
NOT_IN_SPARK = (
    *("null among runs, beside a null struct", "runs below a null map", "uuid"),
    "empty views of lists of maps of UUIDs",
    *("unsigned numbers", "the largest unsigned numbers", "unsigned numbers in a list"),
    *("unsigned numbers in a struct", "unsigned numbers for a signed int"),
    *("another type within a task, exact", "another type within a task"),
    *("nanoseconds that do not divide", "views and dictionaries"),
)
"""Rows that no DataFrame has."""
CELLS = [(name, system) for name, fault in FAULTS.items() for system in sorted(fault.systems)]


@pytest.fixture
def store_of(tmp_path: Path, postgres: str) -> Iterator[Callable[[str], Store]]:
    """Return an empty place for a table."""
    place = PostgresPlace(postgres)

    def made(system: str) -> Store:
        if system == "PostgreSQL":
            return PostgresStore(postgres, place.schema, is_varied=False)
        return DeltaStore(tmp_path / "t") if system == "Delta" else IcebergStore(tmp_path / "t")

    yield made
    place.run(f"DROP SCHEMA {place.schema} CASCADE")


def play(fault: Fault, store: Store, stage: Stage) -> None:
    """Write rows to a table, and compare the error, or what each reader finds, with the fault."""
    partition_by = ("a",) if fault.partition_by else ()
    if fault.table is not None:
        fields = [pa.field("a", fault.table, fault.nullable), pa.field("b", pa.int64())]
        assert store.create(pa.schema(fields), partition_by)
    table = store.table(partition_by)
    state, attempt = table.read("g"), Attempt("g", 0, "a")
    if fault.refused:
        with pytest.raises(TableError, match=f"the batch does not fit .*{fault.refused}"):
            stage(table, attempt)
        return
    table.commit(attempt, stage(table, attempt), Decision(), state)
    for reader, found in store.rows():
        values = found["a"].to_pylist()
        assert sorted(values, key=repr) == sorted(fault.read, key=repr), reader


def batches_of(fault: Fault) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_arrays([each, pa.array(range(len(each)), pa.int64())], names=["a", "b"])
        for each in fault.given
    ]


def with_arrow(fault: Fault) -> Stage:
    """Return how one task stages the rows without Spark."""
    return lambda table, attempt: [*table.task_writer(attempt).write(batches_of(fault), "0")]


@pytest.mark.parametrize(("name", "system"), CELLS)
def test_rows_are_refused_or_read_back(
    store_of: Callable[[str], Store], name: str, system: str
) -> None:
    fault = FAULTS[name]
    play(fault, store_of(system), with_arrow(fault))


def cells_of_spark() -> Iterator[Any]:
    """The rows that a DataFrame has, each with one kind of table; those with others are long."""
    for number, (name, fault) in enumerate(FAULTS.items()):
        systems = sorted(fault.systems)
        for index, system in enumerate(systems):
            marks = () if index == number % len(systems) else pytest.mark.long
            if name not in NOT_IN_SPARK:
                yield pytest.param(name, system, marks=marks)


@pytest.mark.spark
@pytest.mark.parametrize(("name", "system"), cells_of_spark())
def test_rows_of_a_dataframe_are_refused_or_read_back(
    spark: SparkSession, store_of: Callable[[str], Store], name: str, system: str
) -> None:
    fault = FAULTS[name]
    rows = pa.Table.from_batches(batches_of(fault))
    columns = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    play(fault, store_of(system), lambda table, attempt: [*table.write_rows(frame, attempt)])


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [name for name, fault in FAULTS.items() if "Delta" in fault.systems and not fault.refused],
)
def test_delta_spark_reads_the_rows(delta_spark: SparkSession, tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    play(fault, DeltaStore(tmp_path), with_arrow(fault))
    rows = delta_spark.read.format("delta").load(str(tmp_path))
    # PySpark 4.2 cannot turn a null struct into Arrow if a field of it is NOT NULL.
    without_not_null = rows["a"].cast(rows.schema["a"].dataType.simpleString())
    found = rows.select(without_not_null.alias("a")).toArrow()
    assert sorted(found["a"].to_pylist(), key=repr) == sorted(fault.read, key=repr)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("parse_json('1')", "a is VARIANT, .*to_json"),
        ("map('k', array(parse_json('1')))", r"a\.value\.element is VARIANT"),
        ("interval '1' month", "a is INTERVAL MONTH"),
        ("named_struct('x', make_interval(1))", r"a\.x is INTERVAL"),
        ("interval '1' day", "a is duration.*does not have"),
        ("array()", r"a\.element has no type: cast it"),
        ("map()", r"a\.key has no type: cast it; a\.value has"),
        ("null", "a has only nulls and no type: cast it"),
        ("time'10:00:00'", ""),
        ("array(null)", r"a\.element has only nulls and no type: cast it"),
        ("cast(X'ff' AS string)", "a is text with bytes that are not UTF-8"),
        ("named_struct('variant', 1)", ""),
    ],
)
def test_types_of_spark_are_written_or_refused_by_name(
    spark: SparkSession, tmp_path: Path, column: str, problem: str
) -> None:
    rows = spark.sql(f"SELECT {column} AS a, 1 AS b")
    table, attempt = IcebergStore(tmp_path).table(()), Attempt("g", 0, "a")
    state = table.read("g")
    if problem:
        with pytest.raises(TableError, match=f"the batch does not fit .*{problem}"):
            table.write_rows(rows, attempt)
    else:
        table.commit(attempt, table.write_rows(rows, attempt), Decision(), state)
        ((_, found), *_) = IcebergStore(tmp_path).rows()
        assert found.num_rows == 1


def test_empty_text_of_a_partition_becomes_null_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = DeltaStore(tmp_path).table(["a"])
    state, attempt = table.read("g"), Attempt("g", 0, "a")
    batch = pa.RecordBatch.from_pydict({"a": ["", "x"], "b": [1, 2]})
    table.commit(attempt, [*table.task_writer(attempt).write([batch], "0")], Decision(), state)
    (warning,) = [each for each in caplog.messages if "empty text" in each]
    assert "partition column a have null" in warning
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table()["a"].to_pylist().count(None) == 1


def test_refused_text_has_the_place_of_its_record(tmp_path: Path) -> None:
    table = DeltaStore(tmp_path).table(())
    table.read("g")
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["t"], "partition": [3], "offset": [7], "headers": BAD_TEXT}
    )
    with pytest.raises(
        TableError, match=r"headers is text with bytes that are not UTF-8 .the record t-3 off"
    ):
        [*table.task_writer(Attempt("g", 0, "a")).write([batch], "0")]


def test_topic_that_is_not_utf_8_has_a_place_too(tmp_path: Path) -> None:
    table = DeltaStore(tmp_path).table(())
    table.read("g")
    batch = pa.RecordBatch.from_pydict({"topic": BAD_TEXT, "partition": [3], "offset": [7]})
    with pytest.raises(
        TableError, match=r"topic is text with bytes that are not UTF-8 .row 0 of a record"
    ):
        [*table.task_writer(Attempt("g", 0, "a")).write([batch], "0")]


@pytest.mark.parametrize("system", ["Delta", "Iceberg"])
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a", "A"), "A and a have one name"),
        (("a", "a"), "a and a have one name"),
        (("", "b"), "a column without a name"),
    ],
)
def test_names_that_no_table_tells_apart_are_refused(
    store_of: Callable[[str], Store], system: str, names: tuple[str, str], problem: str
) -> None:
    table = store_of(system).table(())
    table.read("g")
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=list(names))
    with pytest.raises(TableError, match=problem):
        [*table.task_writer(Attempt("g", 0, "a")).write([batch], "0")]
