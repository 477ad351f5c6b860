"""Batches that are written to Iceberg tables, with crashes, on a real Spark and a real Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame

import spark_groups
from spark_groups.spark.tables.fence import Entry
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.write_setup import (
    PARTITIONS,
    ROWS,
    WAYS,
    TableQuery,
    crash_after_the_tables_commit,
    expected,
    set_offsets,
)

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("spark", "kafka"),
]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


class LakeQuery(TableQuery):
    """A query on one group that writes to an Iceberg table."""

    @property
    def lake(self) -> Lake:
        return Lake.at(self.directory / "lake")

    def writer(self) -> Callable[[DataFrame, int], None]:
        return spark_groups.write_table(self.lake.fenced(), self.transform)

    def table(self) -> pa.Table:
        return self.lake.rows()


@pytest.fixture(params=WAYS)
def query(query_of: Callable[..., LakeQuery], request: pytest.FixtureRequest) -> LakeQuery:
    """A query on a topic with rows; `emit` is the parameter."""
    return query_of(LakeQuery, request.param)


def test_every_record_is_in_the_table_once(query: LakeQuery) -> None:
    assert query.run() == ""
    query.produce(ROWS, 30)
    assert query.run() == ""
    assert query.values() == expected(ROWS + 30)
    ends = dict.fromkeys(range(PARTITIONS), (ROWS + 30) // PARTITIONS)
    found = query.lake.entries(query.group_id)
    assert {key.partition: entry for key, entry in found.items()} == {
        index: Entry(0, end) for index, end in ends.items()
    }
    assert query.committed() == ends
    assert query.table().schema.names == COLUMNS
    # Spark reads the same rows as the library, which skips files by their statistics.
    files = [each.file.file_path for each in query.lake.table().scan().plan_files()]
    assert query.spark.read.parquet(*files).count() == ROWS + 30
    found = query.lake.table().scan("offset >= 40")
    assert len(list(found.plan_files())) < len(files)
    assert found.to_arrow().num_rows == 30


def test_crash_after_the_tables_commit_writes_no_record_twice(query: LakeQuery) -> None:
    crash_after_the_tables_commit(query)
    assert query.run() == ""
    assert query.values() == expected(ROWS)
    assert query.committed() == dict.fromkeys(range(PARTITIONS), ROWS // PARTITIONS)


def test_crash_before_the_tables_commit_loses_no_record(
    query: LakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("the driver dies here")

    with monkeypatch.context() as patch:
        patch.setattr("spark_groups.spark.tables.iceberg.IcebergTable.commit", die)
        assert "the driver dies here" in query.run()
    data = query.directory / "lake/warehouse/lake/rows/data"
    orphans = [*data.rglob("*.parquet")]
    assert orphans
    assert all(str(each.relative_to(data)).startswith("spark-groups-0-") for each in orphans)
    assert query.run() == ""
    assert query.values() == expected(ROWS)


def test_offsets_that_are_set_back_write_only_what_the_table_lacks(query: LakeQuery) -> None:
    assert query.run() == ""
    query.produce(ROWS, 60)
    # A batch has 20 offsets of each partition: the table has the first half of the second batch.
    set_offsets(query, 10)
    assert query.run(checkpoint="another") == ""
    assert query.values() == expected(ROWS + 60)


def test_rollback_stops_the_query(query: LakeQuery) -> None:
    assert query.run() == ""
    first, *_ = query.lake.table().snapshots()
    query.lake.set_back(first.snapshot_id)
    query.produce(ROWS, 30)
    assert f"spark-groups table repair TABLE --group {query.group_id} --execute" in query.run()
    assert query.values() == expected(60)


@pytest.mark.parametrize("query", ["ranges"], indirect=True)
def test_transform_of_record_batches_returns_other_columns(query: LakeQuery) -> None:
    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        number = pc.cast(pc.cast(batch["value"], pa.string()), pa.int32())
        columns = [batch["value"], number, batch["topic"].dictionary_encode()]
        found = pa.RecordBatch.from_arrays(columns, names=["value", "number", "topic"])
        return found.filter(pc.greater_equal(number, 10))

    query.transform = transform
    assert query.run() == ""
    table = query.table()
    assert sorted(table["number"].to_pylist()) == list(range(10, ROWS))
    assert set(table["topic"].to_pylist()) == {query.topic}
