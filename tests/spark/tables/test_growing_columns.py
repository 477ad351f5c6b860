"""Batches bring new columns, of several applications at once, on each kind of table."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

import spark_groups
from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.fence.beginnings import Batch
from spark_groups.runtime.snapshot_sockets import read_snapshots
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import AFTER_PYTHON, GROUP, SCHEMA, reads, rows
from tests.spark.tables.delta_setup import DeltaPlace
from tests.spark.tables.every_table_setup import BY_KEY, KINDS, LAKES, place_of
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import Place, PostgresPlace
from tests.spark.tables.write_setup import (
    PARTITIONS,
    ROWS,
    PlaceQuery,
    batch_of,
    expected,
    race,
)
from workshop.parts.table_write import write_batch
from workshop.parts.waiting import wait_until

CARRIER = {"carrier": pa.scalar("AA")}


@pytest.fixture(params=[*KINDS, *BY_KEY])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, request, tmp_path)


lakes = pytest.mark.parametrize("place", LAKES, indirect=True)


class Version:
    """One version of an application's transform, which adds columns of one value each.

    Args:
        place: The place of the table.
        added: The columns; a sequence has those of each task.
        evolve: As for the table.
        meanwhile: Called before each batch is committed.
    """

    def __init__(
        self,
        place: Place,
        added: dict[str, pa.Scalar] | Sequence[dict[str, pa.Scalar]] = CARRIER,
        evolve: str | None = "add",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.table = place.fenced(evolve=evolve)
        self.added = [added] if isinstance(added, dict) else added
        self.meanwhile = meanwhile
        self.staged = 0

    def __call__(self, batch: Batch | OffsetRange) -> None:
        """Write a batch."""
        given = batch if isinstance(batch, Batch) else batch_of(batch)
        write_batch(self.table, given, self._stage, Notices(), pause=lambda _: None)

    def _stage(self, ranges: tuple[OffsetRange, ...], attempt: Attempt) -> list[Piece]:
        self.staged += 1
        tasks = self.table.task_writer(attempt)
        pieces = [
            piece
            for number, (each, added) in enumerate(zip(ranges, itertools.cycle(self.added)))
            for piece in tasks.write([with_columns(rows(each), added)], f"{number}-0")
        ]
        self.meanwhile()
        self.meanwhile = lambda: None
        return pieces


def with_columns(batch: pa.RecordBatch, added: dict[str, pa.Scalar]) -> pa.RecordBatch:
    for name, value in added.items():
        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch


def test_new_column_is_added_with_the_first_rows_that_have_it(place: Place) -> None:
    old, new = Version(place, {}, evolve=None), Version(place)
    old(reads(0, 2))
    new(reads(2, 4))
    old(reads(4, 5))
    new(reads(5, 6))
    found = sorted(place.values("offset", "carrier"))
    assert found == [(0, None), (1, None), (2, "AA"), (3, "AA"), (4, None), (5, "AA")]
    assert place.columns() == [*SCHEMA.names, "carrier"]
    assert place.staged() == []
    (entry,) = place.entries().values()
    assert (entry.start_offset, entry.next_offset) == (0, 6)


def test_application_without_evolve_is_refused_with_the_cure(place: Place) -> None:
    Version(place, {})(reads(0, 2))
    with pytest.raises(TableError, match=r'carrier is not a column.*give the table evolve="add"'):
        Version(place, evolve=None)(reads(2, 4))
    assert place.columns() == SCHEMA.names
    with pytest.raises(OptionsError, match="evolve is 'merge': write 'add'"):
        place.fenced(evolve="merge")


def test_rows_that_were_staged_before_another_writer_added_a_column_are_committed(
    place: Place,
) -> None:
    Version(place, {})(reads(0, 1))
    for evolve in (None, "add"):
        new = Version(place, {f"of {evolve}".replace(" ", "_"): pa.scalar(1)})
        start = 1 if evolve is None else 2
        of_new = reads(start - 1, start, partition=1)
        old = Version(place, {}, evolve, meanwhile=lambda new=new, of_new=of_new: new(of_new))
        old(reads(start, start + 1))
        assert old.staged == 1
    assert place.offsets() == [0, 1, 2]
    assert place.offsets(1) == [0, 1]
    assert place.columns() == [*SCHEMA.names, "of_None", "of_add"]


def test_column_that_another_writer_adds_meanwhile_is_added_once(place: Place) -> None:
    Version(place, {})(reads(0, 1))
    other = Version(place)
    one = Version(place, meanwhile=lambda: other(reads(0, 1, partition=1)))
    one(reads(1, 2))
    assert one.staged == 1
    found = sorted(place.values("partition", "offset", "carrier"))
    assert found == [(0, 0, None), (0, 1, "AA"), (1, 0, "AA")]
    assert place.columns() == [*SCHEMA.names, "carrier"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_column_that_another_writer_adds_in_another_type_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    place = place_of(kind, request, tmp_path)
    Version(place, {})(reads(0, 1))
    other = Version(place, {"carrier": pa.scalar(1, pa.int32())})
    one = Version(place, meanwhile=lambda: other(reads(0, 1, partition=1)))
    with pytest.raises(TableError, match=r"carrier is string, not (int32|integer).*Change the"):
        one(reads(1, 2))
    assert place.offsets() == [0]
    assert next(iter(place.entries().values())).next_offset == 1


@lakes
def test_rows_are_staged_again_if_another_writer_added_the_column_wider(place: Place) -> None:
    Version(place, {})(reads(0, 1))
    other = Version(place, {"delay": pa.scalar(2**40)})
    one = Version(
        place,
        {"delay": pa.scalar(7, pa.int32())},
        meanwhile=lambda: other(reads(0, 1, partition=1)),
    )
    one(reads(1, 2))
    assert one.staged == 2
    assert sorted(place.values("offset", "delay"), key=str) == [(0, 2**40), (0, None), (1, 7)]


@pytest.mark.parametrize("place", KINDS, indirect=True)
@pytest.mark.parametrize("is_there", [False, True], ids=["new table", "table"])
def test_tasks_of_one_batch_may_have_different_columns(place: Place, is_there: bool) -> None:
    if is_there:
        Version(place, {})(reads(0, 1))
    gate = {"gate": pa.scalar(3, pa.int32())}
    Version(place, ({}, CARRIER, gate))(
        batch_of(*(reads(int(each == 0 and is_there), 2, each) for each in range(3)))
    )
    found = {row[:2]: row[2:] for row in place.values("partition", "offset", "carrier", "gate")}
    assert [found[each, 1] for each in range(3)] == [(None, None), ("AA", None), (None, 3)]
    assert set(place.columns()) == {*SCHEMA.names, "carrier", "gate"}


@lakes
def test_tasks_with_different_types_of_a_new_column_are_refused(place: Place) -> None:
    Version(place, {})(reads(0, 1))
    write = Version(place, (CARRIER, {"carrier": pa.scalar(1, pa.int32())}))
    with pytest.raises(TableError, match=r"carrier is \w+, not (int32|string)"):
        write(batch_of(reads(1, 2), reads(0, 1, partition=1)))
    inner = pa.struct([("x", pa.int32())]), pa.struct([("y", pa.int32())])
    write = Version(place, [{"s": pa.scalar({"x": 1, "y": 1}, each)} for each in inner])
    with pytest.raises(TableError, match=r"tasks staged different columns.*Change the"):
        write(batch_of(reads(1, 2), reads(0, 1, partition=1)))


def test_new_columns_that_no_table_can_have_are_refused(place: Place) -> None:
    Version(place, {})(reads(0, 1))
    for added, problem in (
        (pa.scalar(1, pa.duration("s")), "new is duration.*does not have"),
        (pa.scalar(None), "new has only nulls and no type: cast it"),
    ):
        with pytest.raises(TableError, match=problem):
            Version(place, {"new": added})(reads(1, 2))
    if not isinstance(place, PostgresPlace):
        with pytest.raises(TableError, match="VALUE and value have one name"):
            Version(place, {"VALUE": pa.scalar(b"")})(reads(1, 2))
    assert place.columns() == SCHEMA.names


WIDER = {
    "int": (pa.scalar(1, pa.int32()), pa.scalar(2**40)),
    "float": (pa.scalar(0.5, pa.float32()), pa.scalar(0.1)),
    "decimal": (
        pa.scalar(Decimal("0.50"), pa.decimal128(5, 2)),
        pa.scalar(Decimal("123456.50"), pa.decimal128(12, 2)),
    ),
}


@pytest.mark.parametrize("name", WIDER)
def test_column_of_iceberg_becomes_wider_while_old_rows_are_staged(
    tmp_path: Path, name: str
) -> None:
    place = Lake.at(tmp_path)
    narrow, wide = WIDER[name]
    Version(place, {"n": narrow})(reads(0, 1))
    new = Version(place, {"n": wide})
    old = Version(place, {"n": narrow}, meanwhile=lambda: new(reads(0, 1, partition=1)))
    old(reads(1, 2))
    new(reads(2, 3))
    found = sorted(place.values("partition", "offset", "n"))
    plain, more = narrow.as_py(), wide.as_py()
    assert found == [(0, 0, plain), (0, 1, plain), (0, 2, more), (1, 0, more)]
    assert place.table().schema().as_arrow().field("n").type == wide.type


@pytest.mark.parametrize("kind", ["delta", "postgres"])
@pytest.mark.parametrize("name", ["int", "float"])
def test_wider_values_are_refused_where_the_table_does_not_widen(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, name: str
) -> None:
    place = place_of(kind, request, tmp_path)
    narrow, wide = WIDER[name]
    Version(place, {"n": narrow})(reads(0, 1))
    with pytest.raises(TableError, match=f"n is {wide.type}, not .*Change the transform, or the"):
        Version(place, {"n": wide})(reads(1, 2))


@lakes
def test_fields_are_added_to_structs_also_inside_lists_and_maps(place: Place) -> None:
    old, new = pa.struct([("x", pa.int32())]), pa.struct([("y", pa.string()), ("x", pa.int32())])

    def added(of: pa.DataType, value: dict[str, Any]) -> dict[str, pa.Scalar]:
        return {
            "s": pa.scalar(value, of),
            "l": pa.scalar([value], pa.list_(of)),
            "m": pa.scalar([("k", value)], pa.map_(pa.string(), of)),
        }

    first = Version(place, added(old, {"x": 1}))
    first(reads(0, 1))
    Version(place, added(new, {"x": 2, "y": "b"}))(reads(1, 2))
    first(reads(2, 3))
    of = [{"x": 1, "y": None}, {"x": 2, "y": "b"}, {"x": 1, "y": None}]
    found = sorted(place.values("offset", "s", "l", "m"), key=lambda row: int(row[0]))
    assert found == [(i, each, [each], [("k", each)]) for i, each in enumerate(of)]
    if isinstance(place, DeltaPlace):
        # Of four commits, one adds the fields.
        assert deltalake.DeltaTable(place.path).version() == 3
    with pytest.raises(TableError, match=r"s\.X and s\.x have one name"):
        Version(place, {"s": pa.scalar({"X": 1}, pa.struct([("X", pa.int32())]))})(reads(3, 4))


@pytest.mark.parametrize("is_renamed", [True, False], ids=["renamed", "dropped"])
def test_column_of_iceberg_does_not_come_back_by_its_old_name(
    tmp_path: Path, is_renamed: bool
) -> None:
    place = Lake.at(tmp_path)
    inner = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    value = {"x": 1, "y": 2}
    nested = {
        "s": pa.scalar(value, inner),
        "l": pa.scalar([value], pa.list_(inner)),
        "m": pa.scalar([("k", value)], pa.map_(pa.string(), inner)),
    }
    added = CARRIER | nested
    paths = {
        "carrier": ("carrier",),
        "s": ("s", "x"),
        "l": ("l", "element", "x"),
        "m": ("m", "value", "x"),
    }
    Version(place, added)(reads(0, 1))
    with place.table().update_schema() as schema:
        for path in paths.values():
            if is_renamed:
                schema.rename_column(path, "now")
            else:
                schema.delete_column(path)
    columns = place.columns()
    for name, path in paths.items():
        write = Version(place, {name: added[name]})
        with pytest.raises(
            TableError, match=rf"would add {'.'.join(path)}, which .*Change the transform"
        ):
            write(reads(1, 2))
    Version(place, {"carrier2": pa.scalar("BB")})(reads(1, 2))
    assert place.columns() == [*columns, "carrier2"]
    if is_renamed:
        assert sorted(place.values("offset", "now"), key=str) == [(0, "AA"), (1, None)]


def test_rows_that_were_staged_before_their_column_was_renamed_are_refused(
    tmp_path: Path,
) -> None:
    place = Lake.at(tmp_path)
    Version(place)(reads(0, 1))

    def rename() -> None:
        with place.table().update_schema() as schema:
            schema.rename_column("carrier", "airline")
        Version(place, {})(reads(0, 1, partition=1))

    with pytest.raises(TableError, match="would add carrier, which the table had before"):
        Version(place, meanwhile=rename)(reads(1, 2))
    assert sorted(place.values("partition", "offset", "airline"), key=str) == [
        *((0, 0, "AA"), (1, 0, None)),
    ]


def test_new_column_of_iceberg_may_have_times_that_python_does_not_have(tmp_path: Path) -> None:
    place = Lake.at(tmp_path)
    Version(place, {})(reads(0, 1))
    Version(place, {"at": pa.scalar(AFTER_PYTHON, pa.timestamp("us", "UTC"))})(reads(1, 2))
    found = (
        place.table().scan(selected_fields=("at",)).to_arrow()["at"].cast(pa.int64()).to_pylist()
    )
    assert sorted(found, key=str) == [AFTER_PYTHON, None]


@pytest.mark.parametrize("seed", range(2))
def test_applications_with_two_versions_of_the_transform_write_at_once(
    place: Place, seed: int
) -> None:
    """Those of the old version do not evolve; some of both versions write the same partitions."""
    versions = itertools.cycle(((CARRIER, "add"), ({}, None)))
    lock = threading.Lock()

    def writer() -> Callable[[Batch], object]:
        with lock:
            return Version(place, *next(versions))

    Version(place, {})(reads(0, 1, partition=5))
    count, sizes = 24, (3, 9)
    race(seed, count, [(0, 1), (2, 1), (0,), (2,)], writer, sizes)
    for partition in range(3):
        assert place.offsets(partition) == list(range(count))
    found = {each for _, each in place.values("offset", "carrier")}
    assert found == {"AA", None}
    assert place.columns() == [*SCHEMA.names, "carrier"]


def test_refused_rows_leave_a_column_of_delta_and_a_fence_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DeltaPlace(tmp_path)
    Version(place, {})(reads(0, 1))
    one, other = Version(place), Version(place, {})
    real = one.table._add_columns

    def add(new: Sequence[pa.Field]) -> None:
        real(new)
        # The next commit of this writer comes second.
        other(reads(0, 1, partition=1))

    monkeypatch.setattr(one.table, "_add_columns", add)
    one(reads(1, 2))
    assert one.staged == 1
    assert sorted(place.values("partition", "offset", "carrier")) == [
        *((0, 0, None), (0, 1, "AA"), (1, 0, None)),
    ]
    state = place.fenced().read(GROUP)
    assert (state.version, state.recorded_version, state.restored_to) == (4, 4, None)
    deltalake.DeltaTable(tmp_path).restore(0)
    assert place.fenced().read(GROUP).restored_to == 0


def test_commits_of_columns_count_for_the_checkpoints_of_delta(tmp_path: Path) -> None:
    place = DeltaPlace(tmp_path)
    for each in range(12):
        Version(place, {f"c{each}": pa.scalar(each)})(reads(each, each + 1))
    assert place.offsets() == list(range(12))
    found = sorted(each.name for each in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(each.split(".")[0]) for each in found] == [9, 19]


def test_columns_of_times_without_a_zone_need_the_feature_of_the_delta_table(
    tmp_path: Path,
) -> None:
    place = DeltaPlace(tmp_path)
    Version(place, {})(reads(0, 1))
    write = Version(place, {"at": pa.scalar(0, pa.timestamp("us"))})
    with pytest.raises(TableError, match=r"at is timestamp\[us\], for which the table needs"):
        write(reads(1, 2))
    feature = deltalake.TableFeatures.TimestampWithoutTimezone
    deltalake.DeltaTable(tmp_path).alter.add_feature(feature, allow_protocol_versions_increase=True)
    write(reads(1, 2))
    assert place.offsets() == [0, 1]


def test_role_that_does_not_own_the_table_gets_the_statement_for_its_owner(
    on_postgres: PostgresPlace, postgres: str
) -> None:
    Version(on_postgres, {})(reads(0, 1))
    role = f"r{on_postgres.schema}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(f"GRANT CREATE, USAGE ON SCHEMA {on_postgres.schema} TO {role}")
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {on_postgres.schema} TO {role}")
        write = Version(on_postgres)
        options = f"-csearch_path={on_postgres.schema} -crole={role}".replace(" ", "\\ ")
        dsn = f"{postgres} options='{options}'"
        write.table = spark_groups.postgres_table(dsn, "rows", evolve="add")
        with pytest.raises(
            TableError, match=r"must be owner of table rows\. As its owner"
        ) as caught:
            write(reads(1, 2))
        on_postgres.run(str(caught.value).rpartition("As its owner: ")[2])
        write(reads(1, 2))
        connection.execute(f"DROP OWNED BY {role} CASCADE")
        connection.execute(f"DROP ROLE {role}")
    assert on_postgres.values("offset", "carrier") == [(0, None), (1, "AA")]


def test_reader_that_keeps_the_table_of_postgresql_has_the_batch_compared_again(
    on_postgres: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    Version(on_postgres, {})(reads(0, 1))
    monkeypatch.setattr("spark_groups.spark.tables.postgres.LOCK_WAIT_MS", 300)
    write, refused = Version(on_postgres), []
    with psycopg.connect(on_postgres.dsn) as reader:
        reader.execute("SELECT * FROM rows")
        real = write.table.commit

        def commit(*given: Any) -> None:
            try:
                real(*given)
            except TableChangedError as error:
                refused.append(str(error))
                reader.rollback()
                raise

        monkeypatch.setattr(write.table, "commit", commit)
        write(reads(1, 2))
    assert ["canceling statement due to lock timeout" in each for each in refused] == [True]
    assert sorted(on_postgres.values("offset", "carrier")) == [(0, None), (1, "AA")]


def of_ranges(batch: pa.RecordBatch) -> pa.RecordBatch:
    return with_columns(batch, CARRIER)


def of_records(rows: DataFrame) -> DataFrame:
    return rows.withColumn("carrier", lit("AA"))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("way", ["ranges", pytest.param("records", marks=pytest.mark.long)])
def test_queries_with_two_versions_of_the_transform_fill_one_table(
    query_of: Callable[..., PlaceQuery], tmp_path: Path, way: str
) -> None:
    place = DeltaPlace(tmp_path / "table")
    query = query_of(PlaceQuery, way, place)
    new = of_ranges if way == "ranges" else of_records
    assert query.run() == ""
    with ExitStack() as running:
        for name, writer in {
            "old": spark_groups.write_table(place.fenced()),
            "new": spark_groups.write_table(place.fenced(evolve="add"), new),
        }.items():
            stream = query.source()
            writer.check(stream)
            sink = stream.writeStream.foreachBatch(writer)
            started = spark_groups.start(sink.option("checkpointLocation", str(tmp_path / name)))
            running.callback(started.stop)
        wait_until(lambda: len(owning(query.group_id)) == 2, 400, "two members that own partitions")
        query.produce(ROWS, 60)
        wait_until(lambda: sum(query.values().values()) >= ROWS + 60, 400, "all rows")
    assert query.values() == expected(ROWS + 60)
    found = Counter(row for row in place.values("partition", "carrier") if row[1] is not None)
    of_new = {partition for partition, _ in found}
    assert 0 < len(of_new) < PARTITIONS
    assert set(found.values()) == {60 // PARTITIONS}


def owning(group_id: str) -> list[str]:
    """Return the members of a group that own partitions."""
    return [each["member_id"] for each in read_snapshots(group_id) if each.get("partitions")]
