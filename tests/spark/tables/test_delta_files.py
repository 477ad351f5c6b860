"""Files of a Delta table: how tasks write them, and which of them a commit takes."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from spark_groups.errors import TableChangedError, TableError
from spark_groups.fence.compare import compare
from spark_groups.fence.entries import Entry
from spark_groups.spark.tables.delta import CHECKPOINT_INTERVAL, DeltaTable, delta_table
from spark_groups.spark.tables.delta_log import DeltaLog
from spark_groups.spark.tables.parquet_files import FileDetails
from spark_groups.spark.tables.table import Attempt, Piece
from tests.spark.tables.batches_setup import GROUP, KEY, reads, rows
from tests.spark.tables.delta_setup import DeltaWriter, offsets


def test_table_on_another_store_than_a_local_disk(tmp_path: Path) -> None:
    """The library's own store is used there; here it shows a directory."""
    writer = DeltaWriter(tmp_path)
    store = fs.PyFileSystem(DeltaStorageHandler(tmp_path.as_uri()))

    def on_the_store() -> DeltaWriter:
        made = DeltaWriter(tmp_path)
        made.table._files = store
        made.table._log = DeltaLog(store)
        return made

    remote = on_the_store()
    remote.look(reads(0, 10))
    assert remote.state.version is None
    (tmp_path / "_delta_log").mkdir(parents=True)
    tasks = pickle.loads(pickle.dumps(remote.table.task_writer(Attempt(GROUP, 0, "a"))))
    pieces = [*tasks.write([rows(reads(0, 6)), rows(reads(6, 10))], "0")]
    name = "spark-groups-0-a-0-0.parquet"
    assert [(each.name, each.rows) for each in pieces] == [(name, 10)]
    assert pieces[0].size_bytes == (tmp_path / name).stat().st_size
    remote.table.commit(Attempt(GROUP, 0, "a"), pieces, remote.decision, remote.state)
    for index in range(10, 10 + CHECKPOINT_INTERVAL):
        writer.write(reads(index, index + 1))
    assert remote.table.read(GROUP).entries == on_the_store().table.read(GROUP).entries
    assert remote.table.read(GROUP).entries == {KEY: Entry(0, 10 + CHECKPOINT_INTERVAL)}
    with pytest.raises(TableChangedError, match="Delta's log has no"):
        DeltaLog(store).advance(CHECKPOINT_INTERVAL + 1)
    assert offsets(tmp_path) == list(range(10 + CHECKPOINT_INTERVAL))


@pytest.mark.parametrize("is_local", [True, False])
def test_file_that_the_driver_does_not_see_is_not_committed(tmp_path: Path, is_local: bool) -> None:
    writer = DeltaWriter(tmp_path)
    if not is_local:
        writer.table._files = fs.PyFileSystem(DeltaStorageHandler(tmp_path.as_uri()))
    writer.look(reads(0, 10))
    (piece,) = writer.stage()
    (tmp_path / piece.name).unlink()
    with pytest.raises(TableError, match="share"):
        writer.table.commit(writer.attempt, [piece], writer.decision, writer.state)


@pytest.mark.parametrize("is_ours", [True, False])
def test_file_of_another_partitioning_is_refused(tmp_path: Path, is_ours: bool) -> None:
    """Two first writers, of which one is configured to partition the table.

    Args:
        is_ours: Whether that is the one whose files are refused.
    """
    late, owner = DeltaWriter(tmp_path), DeltaWriter(tmp_path)
    (late if is_ours else owner).table = delta_table(tmp_path, partition_by="topic")
    for each in (owner, late):
        each.look(reads(0, 10, partition=1 if each is owner else 0))
    pieces, of_owner = late.stage(), owner.stage()
    owner.table.commit(owner.attempt, of_owner, owner.decision, owner.state)
    late.look(reads(0, 10))
    with pytest.raises(TableError, match=r"was created by another writer with partition_by="):
        late.table.commit(late.attempt, pieces, late.decision, late.state)
    assert deltalake.DeltaTable(tmp_path).version() == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_rows_of_tasks_are_split_by_partition(tmp_path: Path, is_there: bool) -> None:
    """Each file has the rows of one value of each partition column, of any type.

    Args:
        is_there: Whether the table exists before the batch.
    """
    by = ("city", "at", "local", "day", "price", "count", "is_late")
    instant = datetime.datetime(2024, 10, 27, 1, 30, 0, 250, tzinfo=datetime.timezone.utc)
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([0, 1, 2, 3, 4]),
            "partition": pa.array([0] * 5, pa.int32()),
            "city": ["A/b=%c\u00e9", None, "A/b=%c\u00e9", "", "x"],
            # The repeated hour in the autumn of Berlin.
            "at": pa.array(
                [instant, instant - datetime.timedelta(hours=1), instant, None, None],
                pa.timestamp("ns", "Europe/Berlin"),
            ),
            "local": pa.array([instant.replace(tzinfo=None)] * 5, pa.timestamp("us")),
            "day": [instant.date()] * 5,
            "price": pa.array([Decimal(-7)] * 5, pa.decimal128(38, 0)),
            "count": pa.array([1, 2, 1, 3, 4], pa.uint8()),
            "is_late": [True, False, True, None, None],
        }
    )
    if is_there:
        (piece,) = delta_table(tmp_path).task_writer(Attempt(GROUP, 0, "a")).write([batch[:0]], "0")
        deltalake.DeltaTable.create(
            tmp_path, deltalake.Schema.from_arrow(FileDetails.of(piece).schema), partition_by=[*by]
        )
    table = delta_table(tmp_path, partition_by=by)
    state = table.read(GROUP)
    decision = compare(GROUP, [reads(0, 5)], state, table=str(table))
    pieces = staged(table, [batch])
    assert sorted(each.rows for each in pieces) == [1, 1, 1, 2]
    table.commit(Attempt(GROUP, 0, "a"), pieces, decision, state)
    read = deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset")
    wanted = batch.set_column(
        2, "city", pa.array([each or None for each in batch["city"].to_pylist()])
    )
    for name in batch.schema.names:
        assert read[name].to_pylist() == wanted[name].to_pylist(), name


def staged(table: DeltaTable, batches: Iterable[pa.RecordBatch]) -> list[Piece]:
    return [*table.task_writer(Attempt(GROUP, 3, "try")).write(batches, "7")]


def test_task_begins_another_file_where_one_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_groups.spark.tables.parquet_files.ROW_GROUP_BYTES", 1)
    table = delta_table(tmp_path, target_file_bytes=1)
    pieces = staged(table, [rows(reads(0, 5)), rows(reads(5, 5)), rows(reads(5, 9))])
    assert [(each.name, each.rows) for each in pieces] == [
        ("spark-groups-3-try-7-0.parquet", 5),
        ("spark-groups-3-try-7-1.parquet", 4),
    ]
    assert [each.size_bytes for each in pieces] == [
        (tmp_path / each.name).stat().st_size for each in pieces
    ]
    (empty,) = staged(table, [rows(reads(5, 5))])
    assert (empty.name, empty.rows) == ("", 0)


def test_rows_of_a_partition_share_a_file_and_too_many_partitions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_groups.spark.tables.parquet_files.ROW_GROUP_BYTES", 1)
    monkeypatch.setattr("spark_groups.spark.tables.partition_values.PARTITIONS_MAX", 2)
    table = delta_table(tmp_path, partition_by=("topic", "partition"))
    batches = [rows(reads(0, 5, each)) for each in (0, 1, 2, 1)]
    assert [each.rows for each in staged(table, batches)] == [5, 5, 10]
    together = pa.Table.from_batches(batches).combine_chunks().to_batches()
    with pytest.raises(TableError, match=r"20 rows .* in 3 partitions of .* by topic, partition"):
        staged(table, together)


def test_types_that_only_arrow_tells_apart_become_deltas(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("partition", pa.int32()),
            ("carrier", pa.dictionary(pa.int8(), pa.string())),
            ("tail", pa.large_string()),
            ("at", pa.timestamp("ms", tz="Europe/Berlin")),
            ("local", pa.timestamp("ns")),
        ]
    )
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": [0],
            "partition": [0],
            "carrier": ["AA"],
            "tail": ["N1"],
            "at": [1000],
            "local": [None],
        },
        schema=schema,
    )
    table = delta_table(tmp_path)
    state = table.read(GROUP)
    decision = compare(GROUP, [reads(0, 1)], state, table=str(table))
    table.commit(Attempt(GROUP, 0, "a"), staged(table, [batch]), decision, state)
    (row,) = deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert (row["carrier"], row["tail"], row["at"].timestamp()) == ("AA", "N1", 1.0)


@pytest.mark.parametrize(
    ("column", "problem"),
    [(pa.duration("s"), "length is duration.*which Delta does not have"), (pa.null(), "cast it")],
)
def test_type_that_delta_does_not_have_is_named(
    tmp_path: Path, column: pa.DataType, problem: str
) -> None:
    batch = pa.RecordBatch.from_pydict({"length": pa.array([None], column)})
    table = delta_table(tmp_path)
    decision = compare(GROUP, [reads(0, 1)], table.read(GROUP), table=str(table))
    with pytest.raises(TableError, match=problem):
        table.commit(Attempt(GROUP, 0, "a"), staged(table, [batch]), decision, table.read(GROUP))
