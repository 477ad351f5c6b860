"""Batches that are written to Delta tables, with crashes and other writers, on Spark and Kafka."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, length

import spark_groups
from spark_groups.errors import TableChangedError, TableGapError
from spark_groups.fence.batch_write import COMMIT_WAIT_S
from spark_groups.fence.beginnings import UnsavedEntries
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import Entry, EntryChange, TableState
from spark_groups.group.member.backoff import MAX_BACKOFF_S
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.write import Notices
from spark_groups.types import TopicId
from tests.spark.tables.batches_setup import KEY, reads
from tests.spark.tables.delta_setup import DeltaWriter, entries, offsets
from tests.spark.tables.write_setup import (
    PARTITIONS,
    ROWS,
    CutLogs,
    Staging,
    TableQuery,
    batch_of,
    both_ways,
    expected,
    one_way,
    set_offsets,
    values_of,
)
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, delete_topic, produce
from workshop.parts.table_write import write_batch

on_spark = pytest.mark.usefixtures("spark", "kafka")


# Other writers, without Spark.


def pauses() -> tuple[list[float], Callable[[float], None]]:
    taken: list[float] = []
    return taken, taken.append


def test_batch_is_staged_once_if_another_member_commits(tmp_path: Path) -> None:
    writer, other = DeltaWriter(tmp_path), DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    stage = Staging(writer, lambda: other.write(reads(0, 5, partition=1)))
    taken, pause = pauses()
    write_batch(writer.table, batch_of(reads(10, 20)), stage, Notices(), pause=pause)
    assert stage.staged == [(reads(10, 20),)]
    assert len(taken) == 1
    assert offsets(tmp_path) == list(range(20))
    assert offsets(tmp_path, 1) == list(range(5))


def test_zombie_writes_only_the_part_of_its_batch_that_the_table_lacks(tmp_path: Path) -> None:
    writer, owner = DeltaWriter(tmp_path), DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    stage = Staging(writer, lambda: owner.write(reads(10, 15)))
    _, pause = pauses()
    write_batch(writer.table, batch_of(reads(10, 20)), stage, Notices(), pause=pause)
    assert stage.staged == [(reads(10, 20),), (reads(15, 20),)]
    assert offsets(tmp_path) == list(range(20))
    # The first staged file stays for `table vacuum`.
    assert len(list(tmp_path.glob("spark-groups-*.parquet"))) == 4
    assert len(deltalake.DeltaTable(tmp_path).file_uris()) == 3


def test_batch_that_the_table_has_is_not_staged_and_is_logged_once_for_each_next_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, notices = DeltaWriter(tmp_path), Notices()
    writer.write(reads(0, 30))
    DeltaWriter(tmp_path, "audit").write(reads(0, 5))
    stage = Staging(writer)
    with caplog.at_level(logging.WARNING):
        for start in (0, 10, 20):
            write_batch(writer.table, batch_of(reads(start, start + 10)), stage, notices)
        DeltaWriter(tmp_path).write(reads(30, 40))
        write_batch(writer.table, batch_of(reads(0, 10)), stage, notices)
    assert stage.staged == []
    logged = [record.getMessage() for record in caplog.records]
    assert [each for each in logged if "so 30 offsets from 0 on are skipped" in each] == logged[:1]
    assert "the group 'audit' has written the topic departures" in logged[1]
    # The table has more of the partition than it had.
    assert "so 40 offsets from 0 on are skipped" in logged[2]
    assert len(logged) == 3


def test_writer_that_is_always_refused_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, other = DeltaWriter(tmp_path), DeltaWriter(tmp_path)
    writer.write(reads(0, 10))
    real, turns = writer.table.read, iter(range(1000))

    def read(group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        state = real(group_id, topic_ids)
        turn = next(turns)
        other.write(reads(turn, turn + 1, partition=1))
        return state

    monkeypatch.setattr(writer.table, "read", read)
    taken, pause = pauses()
    batch, stage = batch_of(reads(10, 20)), Staging(writer)
    with pytest.raises(
        TableChangedError, match=r"could not be written for 300 s\. .*another writer"
    ):
        # Each attempt takes 20 s.
        write_batch(
            writer.table, batch, stage, Notices(), pause=pause, now=lambda: 20.0 * len(taken)
        )
    assert len(taken) == COMMIT_WAIT_S / 20
    assert offsets(tmp_path) == list(range(10))
    assert max(taken) <= MAX_BACKOFF_S


def test_truncated_offsets_are_fetched_only_if_offsets_are_skipped(tmp_path: Path) -> None:
    writer, logs, unsaved = DeltaWriter(tmp_path), CutLogs({KEY: 5}), UnsavedEntries()
    writer.write(reads(0, 10))
    write_batch(writer.table, batch_of(reads(10, 20)), Staging(writer), Notices(), logs, unsaved)
    assert logs.asked == 1, "the first comparison looks where the group stands"
    write_batch(writer.table, batch_of(reads(20, 30)), Staging(writer), Notices(), logs, unsaved)
    assert logs.asked == 1
    write_batch(writer.table, batch_of(reads(10, 30)), Staging(writer), Notices(), logs, unsaved)
    assert logs.asked == 2
    with pytest.raises(TableGapError, match="departures-0 ended at offset 5"):
        write_batch(writer.table, batch_of(reads(5, 40)), Staging(writer), Notices(), logs, unsaved)
    assert offsets(tmp_path) == list(range(30))


def test_records_that_are_deleted_before_a_task_reads_them_are_a_gap(tmp_path: Path) -> None:
    writer, logs = DeltaWriter(tmp_path), CutLogs()
    write_batch(writer.table, batch_of(reads(0, 10)), Staging(writer), Notices(), logs)
    cutting = Staging(writer, meanwhile=lambda: setattr(logs, "start", 15))
    with pytest.raises(TableGapError, match="5 offsets would be missing"):
        write_batch(writer.table, batch_of(reads(10, 20)), cutting, Notices(), logs)
    assert offsets(tmp_path) == list(range(10))
    # Deleted records that the table has are no gap.
    logs.start = 5
    write_batch(writer.table, batch_of(reads(0, 20)), Staging(writer), Notices(), logs)
    assert offsets(tmp_path) == list(range(20))


# On Spark.


@pytest.fixture
def query(query_of: Callable[..., TableQuery], request: pytest.FixtureRequest) -> TableQuery:
    """A query on a topic with rows; `emit` is the parameter."""
    return query_of(TableQuery, request.param)


def accept_gap(query: TableQuery, next_offset: int) -> None:
    """Set the table's entries, as `table set-offsets` does."""
    table = spark_groups.delta_table(query.path)
    state = table.read(query.group_id)
    entry = Entry(next_offset, next_offset)
    changes = tuple(EntryChange(key, held, entry) for key, held in state.entries.items())
    table.commit(Attempt(query.group_id, 0, "accepted"), [], Decision(changes=changes), state)


@one_way("ranges")
def test_offsets_that_are_set_forward_are_refused(query: TableQuery) -> None:
    assert query.run() == ""
    query.produce(ROWS, 60)
    set_offsets(query, 50)
    failure = query.run(checkpoint="another")
    assert "10 offsets would be missing" in failure
    assert f"spark-groups table set-offsets {query.group_id} --table TABLE" in failure
    assert query.values() == expected(ROWS)
    accept_gap(query, 50)
    assert query.run(checkpoint="another") == ""
    assert query.values() == expected(ROWS + 60) - values_of(range(ROWS, ROWS + 30))


@both_ways
def test_records_that_were_deleted_before_they_were_read_are_a_gap(query: TableQuery) -> None:
    query.options["failOnDataLoss"] = "false"
    assert query.run() == ""
    query.produce(ROWS, 60)
    cut = [TopicPartition(query.topic, index, 50) for index in range(PARTITIONS)]
    client = admin(query.kafka.bootstrap_servers)
    for each in client.delete_records(cut).values():
        each.result(ANSWER_S)
    for _ in range(2):
        failure = query.run()
        assert f"{query.topic}-0: the table has it up to offset 40 (exclusive)" in failure
        assert "the batch begins at 50: 10 offsets would be missing" in failure
        assert query.values() == expected(ROWS)
    accept_gap(query, 50)
    assert query.run() == ""
    assert query.values() == expected(ROWS + 60) - values_of(range(ROWS, ROWS + 30))


@one_way("ranges")
def test_two_groups_that_read_a_topic_into_one_table_are_warned(
    query: TableQuery, caplog: pytest.LogCaptureFixture
) -> None:
    assert query.run() == ""
    first = query.group_id
    query.group_id = f"{first}-again"
    with caplog.at_level(logging.WARNING):
        assert query.run(checkpoint="another") == ""
    (warning,) = [each for each in caplog.messages if "twice" in each]
    assert f"the group {first!r} has written the topic {query.topic} to this table" in warning
    assert query.values() == expected(ROWS) + expected(ROWS)


@both_ways
def test_stream_whose_rows_were_changed_is_refused(query: TableQuery) -> None:
    changed = query.source().where("partition = 0")
    assert "write_table takes a stream of kafka-group as load()" in query.run(stream=changed)
    assert not query.path.exists()


@one_way("records")
def test_transform_returns_other_columns_and_partition_columns(query: TableQuery) -> None:
    def transform(rows: DataFrame) -> DataFrame:
        text = col("value").cast("string")
        # The values have null, and characters that Spark escapes in directory names.
        kind = text.substr(1, 1)
        return rows.select(
            "value",
            (kind + 0).cast("int").alias("first"),
            length(text).alias("length"),
        ).withColumn("kind", _kind(text))

    query.transform, query.partition_by = transform, ("kind",)
    assert query.run() == ""
    assert query.values() == expected(ROWS)
    kinds = Counter(query.table()["kind"].to_pylist())
    assert kinds == Counter(KINDS[i % 3] for i in range(ROWS))
    # The library skips files by their partition values.
    dataset = deltalake.DeltaTable(query.path).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("kind") == KINDS[1]).num_rows == ROWS // 3


@one_way("ranges")
def test_tasks_write_a_table_with_partition_columns(query: TableQuery) -> None:
    query.partition_by = ("topic", "partition")
    assert query.run() == ""
    assert query.values() == expected(ROWS)
    dataset = deltalake.DeltaTable(query.path).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("partition") == 1).num_rows == ROWS // PARTITIONS


KINDS = ("a b/c=%d:é", "x+y", None)


def _kind(text: Any) -> Any:
    from pyspark.sql.functions import lit, when

    index = text.cast("int") % 3
    return when(index == 0, lit(KINDS[0])).when(index == 1, lit(KINDS[1]))


@one_way("ranges")
def test_transform_that_returns_no_record_batch_is_refused(query: TableQuery) -> None:
    query.transform = lambda batch: batch.to_pylist()
    assert "takes a pyarrow.RecordBatch and returns one, not list" in query.run()


@one_way("ranges")
def test_value_that_does_not_fit_is_refused_with_the_records_that_it_was_made_of(
    query: TableQuery,
) -> None:
    bad = Row(b"\xff", key=b"k", partition=1)
    produce(query.kafka.bootstrap_servers, query.topic, [bad])
    query.transform = lambda batch: pa.RecordBatch.from_arrays(
        [batch["value"].view(pa.string())], names=["text"]
    )
    failure = query.run()
    assert "text is text with bytes that are not UTF-8" in failure
    assert f"the record {query.topic}-1 offset {ROWS // PARTITIONS} does not fit" in failure
    # Of the error of the task, only the last line tells something.
    assert "PythonException" not in failure
    assert set(query.table()["text"].to_pylist()) <= {f"{i}" for i in range(ROWS)}


@one_way("ranges")
def test_topic_that_is_created_again_is_written_from_its_beginning(
    query: TableQuery,
) -> None:
    assert query.run() == ""
    delete_topic(query.kafka.bootstrap_servers, query.topic)
    create_topic(query.kafka.bootstrap_servers, query.topic, PARTITIONS)
    query.produce(0, 30)
    assert query.run(checkpoint="another") == ""
    assert query.values() == expected(ROWS) + expected(30)
    found = entries(query.path, query.group_id)
    assert sorted(Counter(key.topic_id for key in found).values()) == [PARTITIONS, PARTITIONS]
