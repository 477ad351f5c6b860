"""Shared by test_write.py and other tests."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spark_groups
from spark_groups.fence.beginnings import Batch
from spark_groups.fence.entries import FenceKey
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.spark.tables.table import Attempt, Piece
from spark_groups.types import OffsetRange
from tests.spark.queries import READ_S, GroupQuery
from tests.spark.tables.batches_setup import GROUP, reads, rows
from tests.spark.tables.places import Place, Writer
from workshop.parts.brokers import ANSWER_S, Row, admin, produce
from workshop.parts.waiting import wait_until

PARTITIONS = 3


ROWS = 120


WAYS = ("records", "ranges")


def batch_of(*ranges: OffsetRange, batch_id: int = 0) -> Batch:
    return Batch(GROUP, batch_id, ranges)


@dataclass
class Staging:
    """Stages rows as tasks do.

    Args:
        writer: The writer of the table.
        meanwhile: Called before rows are staged.
    """

    writer: Writer
    meanwhile: Callable[[], object] = lambda: None
    staged: list[tuple[OffsetRange, ...]] = field(default_factory=list)

    def __call__(self, ranges: tuple[OffsetRange, ...], attempt: Attempt) -> Sequence[Piece]:
        self.staged.append(ranges)
        self.meanwhile()
        batches = [rows(each) for each in ranges]
        return [*self.writer.table.task_writer(attempt).write(batches, "0")]


@dataclass
class CutLogs:
    """Logs with deleted and truncated records: they begin at `start`, and ended at `ends`.

    The other committed offsets are in `begun`.
    """

    ends: dict[FenceKey, int] = field(default_factory=dict)
    begun: dict[FenceKey, OffsetAndMetadata] = field(default_factory=dict)
    start: int = 0
    asked: int = 0

    def kept(self, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
        return tuple(
            replace(each, from_offset=max(each.from_offset, self.start)) for each in ranges
        )

    def committed(self, needed: Collection[FenceKey] = ()) -> dict[FenceKey, OffsetAndMetadata]:
        self.asked += 1
        marked = commit_metadata(3, is_truncated=True)
        ends = {key: OffsetAndMetadata(end, marked) for key, end in self.ends.items()}
        return self.begun | ends


def race(
    seed: int,
    count: int,
    crews: Sequence[Sequence[int]],
    writer_of: Callable[[], Callable[[Batch], object]],
    sizes: tuple[int, int],
) -> None:
    """Have members and zombies write the same partitions at once, each in a thread of its own.

    Each writes its partitions in order, in batches of random sizes, and some batches twice.

    Args:
        seed: Decides the batches.
        count: Records of each partition.
        crews: The partitions of each writer.
        writer_of: Returns a function that writes a batch; called once for each writer.
        sizes: The fewest and the most records of a partition in a batch.
    """
    failures: list[Exception] = []

    def write_all(chance: random.Random, partitions: Sequence[int]) -> None:
        try:
            write, position = writer_of(), 0
            while position < count:
                end = min(count, position + chance.randint(*sizes))
                batch = batch_of(*(reads(position, end, each) for each in partitions))
                for _ in range(chance.choice([1, 1, 2])):
                    write(batch)
                position = end
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=write_all, args=(random.Random(f"{seed}-{index}"), partitions))
        for index, partitions in enumerate(crews)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@dataclass
class TableQuery(GroupQuery):
    """A query on one group that writes to a Delta table."""

    transform: Any = None
    partition_by: tuple[str, ...] = ()
    on_error: Any = None

    @property
    def path(self) -> Path:
        return self.directory / "table"

    def writer(self) -> Callable[[DataFrame, int], None]:
        table = spark_groups.delta_table(self.path, partition_by=self.partition_by)
        return spark_groups.write_table(table, self.transform, on_error=self.on_error)

    def run(
        self,
        take: Callable[[DataFrame, int], None] | None = None,
        checkpoint: str = "checkpoint",
        stream: DataFrame | None = None,
    ) -> str:
        """Run the query until it has read all records; return its error, or an empty text."""
        query = spark_groups.start(
            (self.source() if stream is None else stream)
            .writeStream.foreachBatch(take or self.writer())
            .option("checkpointLocation", str(self.directory / checkpoint))
            .trigger(availableNow=True)
        )
        try:
            assert query.awaitTermination(READ_S), "AvailableNow did not end"
        except StreamingQueryException as error:
            return str(error)
        finally:
            query.stop()
        return ""

    def await_left(self) -> None:
        """Wait until no query is in the group: a query that failed leaves it a moment later."""
        wait_until(lambda: not self.members(), what="an empty group")

    def table(self) -> pa.Table:
        return deltalake.DeltaTable(self.path).to_pyarrow_table()

    def values(self) -> Counter[bytes]:
        return Counter(map(bytes, self.table()["value"].to_pylist()))

    def produce(self, first: int, count: int) -> None:
        rows = [
            Row(b"%d" % i, key=b"k", partition=i % PARTITIONS) for i in range(first, first + count)
        ]
        produce(self.kafka.bootstrap_servers, self.topic, rows)


@dataclass
class PlaceQuery(TableQuery):
    """A query on one group that writes to a table of any kind."""

    place: Place = field(default_factory=Place)

    def writer(self) -> Callable[[DataFrame, int], None]:
        table = self.place.fenced()
        return spark_groups.write_table(table, self.transform, on_error=self.on_error)

    def values(self) -> Counter[bytes]:
        return Counter(bytes(value) for (value,) in self.place.values("value"))


def values_of(rows: range) -> Counter[bytes]:
    return Counter(b"%d" % i for i in rows)


def expected(count: int) -> Counter[bytes]:
    return values_of(range(count))


def both_ways(test: Callable[..., None]) -> Callable[..., None]:
    marks = (
        pytest.mark.broker,
        pytest.mark.spark,
        pytest.mark.parametrize("query", WAYS, indirect=True),
    )
    for mark in marks:
        test = mark(test)
    return test


def one_way(way: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def marked(test: Callable[..., None]) -> Callable[..., None]:
        return pytest.mark.broker(
            pytest.mark.spark(pytest.mark.parametrize("query", [way], indirect=True)(test))
        )

    return marked


def crash_after_the_tables_commit(query: TableQuery) -> None:
    """Run a query whose driver dies after the table's second commit."""
    writer = query.writer()

    def die_after(batch: DataFrame, batch_id: int) -> None:
        writer(batch, batch_id)
        if batch_id:
            raise RuntimeError("the driver dies here")

    assert "the driver dies here" in query.run(die_after)
    assert query.values() == expected(ROWS)


def set_offsets(query: TableQuery, committed: int) -> None:
    """Set the group's committed offsets, as `reset-offsets` does."""
    partitions = [TopicPartition(query.topic, index, committed) for index in range(PARTITIONS)]
    asked = [ConsumerGroupTopicPartitions(query.group_id, partitions)]
    client = admin(query.kafka.bootstrap_servers)
    (answer,) = client.alter_consumer_group_offsets(asked).values()
    assert all(each.error is None for each in answer.result(ANSWER_S).topic_partitions)
