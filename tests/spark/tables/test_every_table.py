"""What tables of all kinds do: step by step, then in queries on a real Spark and a real Kafka."""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_groups.errors import TableChangedError, TableError, TableGapError
from spark_groups.fence.beginnings import Batch
from spark_groups.fence.compare import other_groups
from spark_groups.fence.entries import Entry, FenceKey
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.write import Notices
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import GROUP, KEY, SCHEMA, TOPIC, reads, rows
from tests.spark.tables.every_table_setup import (
    BY_KEY,
    CATALOGS,
    KINDS,
    LAKES,
    PARTITIONED,
    place_of,
)
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import Database, Place, Writer
from tests.spark.tables.write_setup import (
    PARTITIONS,
    ROWS,
    WAYS,
    PlaceQuery,
    Staging,
    batch_of,
    crash_after_the_tables_commit,
    expected,
    race,
    set_offsets,
)
from workshop.parts.table_write import write_batch

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
MISFITS = (
    (KINDS, pa.field("carrier", pa.string()), "carrier is not a column of the table.*evolve=.add"),
    (KINDS, pa.field("value", pa.string()), "value is string, not (bytea|BLOB|binary)"),
    (KINDS, pa.field("partition", pa.string()), "partition is string, not (int32|integer|INTEGER)"),
    # The integers of SQLite have one size.
    (KINDS[1:], pa.field("partition", pa.int64()), "partition is int64, not (int32|integer)"),
)
"""Columns that do not fit tables of some kinds, and how errors name them."""


@pytest.fixture(params=[*KINDS, *PARTITIONED, *BY_KEY])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, request, tmp_path)


every_catalog = pytest.mark.parametrize(
    "place", [*KINDS[:-1], *BY_KEY, *CATALOGS, *PARTITIONED], indirect=True
)
lakes = pytest.mark.parametrize("place", [*LAKES, BY_KEY[1], *PARTITIONED], indirect=True)


def refuse(writer: Writer, problem: str | None = None) -> None:
    """Have the table refuse a commit because of another writer."""
    with pytest.raises(TableChangedError, match=problem):
        writer.commit()


@every_catalog
def test_copy_in_another_process_reads_the_same_fence(place: Place) -> None:
    Writer(place).write(reads(5, 10))
    table = place.fenced()
    copied = pickle.loads(pickle.dumps(table))
    assert str(copied) == str(table)
    assert copied.read(GROUP).entries == table.read(GROUP).entries == {KEY: Entry(5, 10)}


@every_catalog
def test_batches_add_rows_and_change_entries(place: Place) -> None:
    writer = Writer(place)
    writer.look(reads(5, 10), reads(0, 3, partition=1))
    assert writer.state.version is None
    writer.commit()
    writer.write(reads(10, 30), reads(5, 7, partition=2))
    assert place.offsets() == list(range(5, 30))
    assert place.offsets(1) == [0, 1, 2]
    assert place.offsets(2) == [5, 6]
    ends = {KEY: Entry(5, 30), FenceKey(GROUP, TOPIC, 1): Entry(0, 3)}
    assert place.entries() == {**ends, FenceKey(GROUP, TOPIC, 2): Entry(5, 7)}
    found = sorted(place.values("partition", "topic", "value"))
    assert [each for each in found if each[0] == 1] == [
        (1, "departures", f"1-{offset}".encode()) for offset in range(3)
    ]
    assert place.staged() == []


def test_batch_that_is_written_again_is_skipped_or_cut(place: Place) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    assert writer.write(reads(0, 10)).write == ()
    assert writer.write(reads(5, 15)).write == (reads(10, 15),)
    assert place.offsets() == list(range(15))


@every_catalog
@pytest.mark.parametrize("end", [20, 25])
def test_zombie_is_refused_and_finds_its_batch_in_the_table(place: Place, end: int) -> None:
    """One zombie has staged its rows before the owner's commit, another one stages them after it.

    Args:
        end: Where the owner's batch ends: with those of the zombies, or behind them.
    """
    early, late, owner = Writer(place), Writer(place), Writer(place)
    early.write(reads(0, 10))
    for zombie in (early, late):
        zombie.look(reads(10, 20))
    early.stage()
    # The zombies are stopped here, and another member owns their partition.
    owner.write(reads(10, end))
    for zombie in (early, late):
        refuse(zombie, "another writer has committed")
        # Compared again, its batch is in the table.
        assert zombie.write(reads(10, 20)).write == ()
    assert place.offsets() == list(range(end))
    # Their staged rows stay for `table vacuum`, which finds them by their names.
    names = sorted(each.attempt.name for each in (early, late))
    for name, staged in zip(names, place.staged(), strict=True):
        assert staged.startswith(f"{name}-")


def test_batch_is_refused_as_a_whole_for_one_of_its_partitions(place: Place) -> None:
    one, other = Writer(place), Writer(place)
    one.look(reads(0, 10), reads(0, 10, partition=1))
    one.stage()
    other.write(reads(0, 4, partition=1))
    refuse(one)
    assert place.offsets() == []
    assert place.entries() == {FenceKey(GROUP, TOPIC, 1): Entry(0, 4)}


@every_catalog
def test_one_of_two_writers_that_create_the_table_is_refused(place: Place) -> None:
    """The one that is refused has staged its rows before the other's commit, or not."""
    one, early, late = Writer(place), Writer(place), Writer(place)
    for each in (one, early, late):
        each.look(reads(0, 10))
    early.stage()
    one.commit()
    for other in (early, late):
        refuse(other, place.created_by_another)
        assert other.write(reads(0, 10)).write == ()
    assert place.offsets() == list(range(10))


@every_catalog
def test_one_of_two_first_writers_of_a_partition_is_refused(place: Place) -> None:
    """The one that is refused has staged its rows before the other's commit, or not."""
    one, early, late = Writer(place), Writer(place), Writer(place)
    one.write(reads(0, 10))
    for each in (one, early, late):
        each.look(reads(4, 8, partition=1))
    early.stage()
    one.commit()
    refuse(early)
    refuse(late)
    assert place.offsets(1) == [4, 5, 6, 7]


@lakes
def test_refused_member_of_a_group_commits_its_files_after_another_comparison(place: Place) -> None:
    """It has staged them before the other member's commit, or after it."""
    one, early, late = Writer(place), Writer(place), Writer(place)
    one.write(reads(0, 10))
    early.look(reads(0, 7, partition=1))
    late.look(reads(0, 7, partition=2))
    early.stage()
    one.write(reads(10, 20))
    late.stage()
    for other, partition in ((early, 1), (late, 2)):
        pieces, decision = other.pieces, other.decision
        refuse(other)
        other.look(reads(0, 7, partition))
        assert other.decision == decision
        other.commit(pieces)
        assert place.offsets(partition) == list(range(7))
        state = place.fenced().read(GROUP)
        assert state.recorded_version == state.version


@lakes
def test_queries_that_share_the_table_object_refuse_each_others_comparison(place: Place) -> None:
    one, other = Writer(place), Writer(place)
    other.table = one.table
    for partition in (0, 1):
        one.look(reads(0, 10, partition))
        other.look(reads(0, 10, partition))
        one.commit()
        for _ in range(2):
            refuse(other, "another query of this application")
            # Another read by one query does not renew the comparison of the other.
            one.look(reads(0, 10, partition))
        assert place.offsets(partition) == list(range(10))


def test_gap_another_group_and_a_topic_that_is_created_again(place: Place) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    with pytest.raises(TableGapError, match=place.shown):
        writer.write(reads(15, 20))
    other = Writer(place, "audit")
    other.look(reads(0, 10))
    (warning,) = other_groups("audit", {TOPIC: "departures"}, other.state)
    assert "the group 'flights' has written the topic departures" in warning
    other.commit()
    assert set(place.entries()) == {KEY, FenceKey("audit", TOPIC, 0)}
    assert place.offsets() == sorted([*range(10)] * (1 if place.merge_on else 2))
    again = OffsetRange(uuid.UUID(int=9), "departures", 0, 0, 4)
    assert writer.table.read(GROUP, frozenset({again.topic_id})).entries == {}
    assert writer.write(again).write == (again,)
    assert place.entries()[FenceKey(GROUP, again.topic_id, 0)] == Entry(0, 4)


@pytest.mark.parametrize(
    "group_id",
    [
        *("a'b", 'ü "1"', "ü 1/\"'", "$$; DROP TABLE rows", "%s {}"),
        *("a/b", "flights/AAAAAAAAAAAAAAAAAAAABw/0", "a.b", "fence.flights"),
    ],
)
def test_group_may_have_any_name(place: Place, group_id: str) -> None:
    writer = Writer(place, group_id)
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    its_own = {FenceKey(group_id, TOPIC, 0): Entry(0, 20)}
    assert place.entries() == its_own
    assert place.offsets() == list(range(20))
    Writer(place).write(reads(0, 5))
    assert place.entries() == {**its_own, KEY: Entry(0, 5)}
    assert place.fenced().read(group_id).recorded_version == place.second_version


def test_entries_change_without_rows(place: Place) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    writer.table.commit(Attempt(GROUP, 1, "a"), [], writer.decision, writer.state)
    assert place.entries() == {KEY: Entry(0, 20)}
    assert place.offsets() == list(range(10))
    writer.write(reads(20, 30))
    assert place.offsets() == [*range(10), *range(20, 30)]


def test_batch_without_columns_does_not_create_the_table(place: Place) -> None:
    writer = Writer(place)
    writer.look(reads(0, 10))
    writer.table.commit(Attempt(GROUP, 0, "a"), [], writer.decision, writer.state)
    assert writer.write(reads(10, 20)).write == (reads(10, 20),)
    assert place.entries() == {KEY: Entry(10, 20)}


def test_batch_without_rows_creates_the_table_that_remembers_it(place: Place) -> None:
    writer = Writer(place)
    writer.look(reads(0, 10))
    attempt = Attempt(GROUP, 0, "a")
    (piece,) = writer.table.task_writer(attempt).write([rows(reads(5, 5))], "0")
    writer.table.commit(attempt, [piece], writer.decision, writer.state)
    assert (piece.rows, place.offsets(), place.staged()) == (0, [], [])
    assert place.entries() == {KEY: Entry(0, 10)}
    writer.write(reads(10, 20))
    assert place.offsets() == list(range(10, 20))


@pytest.mark.parametrize(
    ("place", "column", "problem"),
    [(kind, *misfit) for kinds, *misfit in MISFITS for kind in kinds],
    indirect=["place"],
)
def test_columns_that_do_not_fit_are_refused(place: Place, column: pa.Field, problem: str) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    given = rows(reads(10, 20), SCHEMA.append(pa.field("carrier", pa.string())))
    names = list(dict.fromkeys([*SCHEMA.names, column.name]))
    columns = {each: given[each] for each in names}
    columns[column.name] = columns[column.name].cast(column.type)
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(TableError, match=problem) as refused:
        [*writer.table.task_writer(Attempt(GROUP, 1, "a")).write([batch], "0")]
    assert f"does not fit {place.shown}" in str(refused.value)
    writer.write(reads(10, 20))
    assert place.offsets() == list(range(20))


def test_missing_column_that_must_not_be_null_is_refused(place: Place) -> None:
    schema = SCHEMA.remove(4)
    place.create(schema.set(2, pa.field("offset", pa.int64(), nullable=False)))
    writer = Writer(place)
    writer.look(reads(0, 10))
    with pytest.raises(
        TableError, match=r"offset is missing, and must not be null|it lacks offset"
    ):
        writer.stage(schema.remove(2))


def test_commit_whose_response_was_lost_is_not_repeated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(place)
    writer.write(reads(0, 10))
    real = writer.table.commit

    def commit(*given: Any) -> None:
        real(*given)
        raise TableChangedError("the store reports that the file exists")

    monkeypatch.setattr(writer.table, "commit", commit)
    batch = batch_of(reads(10, 20))
    write_batch(writer.table, batch, Staging(writer), Notices(), pause=lambda _: None)
    assert place.offsets() == list(range(20))


@every_catalog
@pytest.mark.parametrize("seed", range(3))
def test_writers_that_race_leave_each_record_once(place: Place, seed: int) -> None:
    def writer() -> Callable[[Batch], object]:
        made = Writer(place)
        return lambda batch: write_batch(made.table, batch, Staging(made), Notices())

    crews, count, sizes = [(0, 1), (1, 0), (0,), (1, 2), (2,)], 60, (1, 9)
    if isinstance(place, Lake):
        # Its commits take long.
        crews, count, sizes = [(0, 1), (0,), (1,)], 30, (3, 15)
        # The first one that is opened creates the tables of a catalog.
        place.catalog()
    race(seed, count, crews, writer, sizes)
    for partition in {each for crew in crews for each in crew}:
        assert place.offsets(partition) == list(range(count))


# On Spark.


# Each kind of table and each way of writing is in one of these; tests of other pairs are long.
PAIRS = (
    *("delta-ranges", "delta-records", "iceberg-ranges", "postgres-records", "sqlite-ranges"),
    "partitioned iceberg-ranges",
    *("delta by key-ranges", "postgres by key-records"),
)


def pairs(kinds: Sequence[str]) -> list[Any]:
    every = [f"{kind}-{way}" for kind in kinds for way in WAYS]
    return [pair if pair in PAIRS else pytest.param(pair, marks=pytest.mark.long) for pair in every]


@pytest.fixture(params=pairs([*KINDS, *BY_KEY]))
def query(
    query_of: Callable[..., PlaceQuery], tmp_path: Path, request: pytest.FixtureRequest
) -> PlaceQuery:
    """A query on a topic with rows; the parameter is the kind of table and `emit`.

    Several tasks read each partition for a database, with at most seven records each.
    """
    kind, way = request.param.split("-")
    place = place_of(kind, request, tmp_path)
    more = {"maxRecordsPerPartition": "7"} if isinstance(place, Database) else {}
    return query_of(PlaceQuery, way, place, **more)


def on_spark(*parameters: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test of a query; parameters are those of the only queries that it is about."""

    def marked(test: Callable[..., None]) -> Callable[..., None]:
        if parameters:
            test = pytest.mark.parametrize("query", parameters, indirect=True)(test)
        return pytest.mark.broker(pytest.mark.spark(test))

    return marked


@on_spark(*pairs([*KINDS, *PARTITIONED]))
def test_every_record_is_in_the_table_once(query: PlaceQuery) -> None:
    assert query.run() == ""
    query.produce(ROWS, 30)
    assert query.run() == ""
    assert query.values() == expected(ROWS + 30)
    ends = dict.fromkeys(range(PARTITIONS), (ROWS + 30) // PARTITIONS)
    found = query.place.entries(query.group_id)
    assert {key.partition: entry for key, entry in found.items()} == {
        index: Entry(0, end) for index, end in ends.items()
    }
    assert query.committed() == ends
    assert query.place.staged() == []
    assert query.place.columns() == COLUMNS
    names = ("value", "topic", "partition", "offset", "key", "timestampType")
    row = (b"10", query.topic, 1, 3, b"k", 0)
    assert [each for each in query.place.values(*names) if each[0] == b"10"] == [row]
    assert len(query.place.values("offset", from_offset=40)) == 30
    if files := query.place.files():
        # Spark reads the same rows as the library, which skips files by their statistics.
        assert query.spark.read.parquet(*files).count() == ROWS + 30
        assert len(query.place.files(from_offset=40)) < len(files)


@on_spark()
def test_crash_after_the_tables_commit_writes_no_record_twice(
    query: PlaceQuery, caplog: pytest.LogCaptureFixture
) -> None:
    crash_after_the_tables_commit(query)
    with caplog.at_level(logging.WARNING):
        assert query.run() == ""
    assert query.values() == expected(ROWS)
    assert query.committed() == dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS)
    skipped = [each for each in caplog.messages if "are skipped" in each]
    assert len(skipped) == PARTITIONS


@on_spark()
def test_crash_before_the_tables_commit_loses_no_record(
    query: PlaceQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("the driver dies here")

    with monkeypatch.context() as patch:
        patch.setattr(type(query.place.fenced()), "commit", die)
        assert "the driver dies here" in query.run()
    orphans = query.place.staged()
    assert orphans
    assert all(each.startswith("spark-groups-0-") for each in orphans)
    assert query.run() == ""
    assert query.values() == expected(ROWS)


@on_spark(*pairs(LAKES))
def test_offsets_that_are_set_back_write_only_what_the_table_lacks(
    query: PlaceQuery, caplog: pytest.LogCaptureFixture
) -> None:
    assert query.run() == ""
    query.produce(ROWS, 60)
    # A batch has 20 offsets of each partition: the table has the first half of the second batch.
    set_offsets(query, 10)
    with caplog.at_level(logging.WARNING):
        assert query.run(checkpoint="another") == ""
    assert query.values() == expected(ROWS + 60)
    skipped = sorted(each for each in caplog.messages if "are skipped" in each)
    assert len(skipped) == PARTITIONS
    for index, each in enumerate(skipped):
        assert f"{query.topic}-{index}: the table has it up to offset 40 (exclusive)" in each
        assert "30 offsets from 10 on are skipped" in each


@on_spark("delta-ranges", *pairs(["iceberg"]))
def test_restored_table_stops_the_query_and_names_the_repair(query: PlaceQuery) -> None:
    assert query.run() == ""
    query.place.restore_first()
    query.produce(ROWS, 60)
    for _ in range(2):
        failure = query.run()
        assert "was restored to its version" in failure
        assert f"spark-groups table repair TABLE --group {query.group_id} --execute" in failure
    assert query.values() == expected(60)


@on_spark(*(f"{kind}-ranges" for kind in KINDS))
def test_transform_of_record_batches_runs_on_executors(query: PlaceQuery) -> None:
    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        number = pc.cast(pc.cast(batch["value"], pa.string()), pa.int32())
        found = pa.RecordBatch.from_arrays(
            [batch["value"], number, batch["topic"].dictionary_encode()],
            names=["value", "number", "topic"],
        )
        return found.filter(pc.greater_equal(number, 10))

    query.transform = transform
    assert query.run() == ""
    found = sorted(query.place.values("number", "topic"))
    assert found == [(number, query.topic) for number in range(10, ROWS)]
