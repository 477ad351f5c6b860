"""Queries of tests: rows into Parquet, and what a query did."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.runtime.snapshot_sockets import read_snapshots
from spark_groups.spark.control.application_query import start
from tests.runtime.members import committed
from workshop.parts.brokers import ANSWER_S, admin
from workshop.parts.waiting import wait_until

_NOT_READY = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

READ_S = 400.0


def _written_files(directory: Path) -> set[str]:
    log = directory / "rows" / "_spark_metadata"
    return {
        urllib.parse.unquote(urllib.parse.urlparse(json.loads(line)["path"]).path)
        for batch in log.glob("[0-9]*")
        for line in batch.read_text().splitlines()[1:]
    }


def written_rows(directory: Path) -> list[dict[str, Any]]:
    """Return what a query wrote into `directory/rows`, in the order of offsets.

    Args:
        directory: Where its rows lie.
    """
    paths = sorted(_written_files(directory))
    rows = [row for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@dataclass
class GroupQuery:
    """A query on one group that writes what it reads into a directory.

    Args:
        spark: The session.
        kafka: The broker.
        group_id: The group.
        topic: The subscribed topic.
        directory: Where rows and checkpoint lie.
        options: Further options of the source.
        name: Spark's name of the source in the checkpoint, from Spark 4.2 on.
        chosen: The options that choose topics, if it does not subscribe to the topic by name.
    """

    spark: SparkSession
    kafka: EmbeddedKafka
    group_id: str
    topic: str
    directory: Path
    options: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    chosen: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def source(self) -> DataFrame:
        """Return the streaming rows."""
        reader = self.spark.readStream.format("kafka-group")
        return (
            (reader.name(self.name) if self.name else reader)
            .option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)
            .option("kafka.group.id", self.group_id)
            .options(**(self.chosen or {"subscribe": self.topic}))
            .options(**{"startingOffsets": "earliest", **self.options})
            .load()
        )

    @contextlib.contextmanager
    def running(self, **trigger: Any) -> Iterator[StreamingQuery]:
        """Run the query, and stop it at the end.

        Args:
            trigger: Arguments of `DataStreamWriter.trigger`.
        """
        writer = (
            self.source()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .option("path", str(self.directory / "rows"))
        )
        query = start(writer.trigger(**trigger) if trigger else writer)
        try:
            yield query
        finally:
            query.stop()

    def run_available(self) -> StreamingQuery:
        """Read what there is, and end."""
        with self.running(availableNow=True) as query:
            assert query.awaitTermination(READ_S), "AvailableNow did not end"
            return query

    def rows(self) -> list[dict[str, Any]]:
        """Return the written rows in offset order, without Spark."""
        return written_rows(self.directory)

    def values(self) -> Counter[bytes]:
        """Return how often each value was written."""
        return Counter(bytes(row["value"]) for row in self.rows())

    def offsets_file(self, batch_id: int) -> Path:
        """Return the file of the checkpoint that says what a batch reads."""
        return self.checkpoint / "offsets" / str(batch_id)

    def commits_file(self, batch_id: int) -> Path:
        """Return the file of the checkpoint that says that a batch is finished."""
        return self.checkpoint / "commits" / str(batch_id)

    def member(self) -> dict[str, Any] | None:
        """Return what the only member of the group on this host says of itself."""
        return next(iter(read_snapshots(self.group_id)), None)

    def committed(self) -> dict[int, int]:
        """Return the group's committed offsets of the topic."""
        found = committed(self.kafka.bootstrap_servers, self.group_id)
        return {index: offset for (topic, index), offset in found.items() if topic == self.topic}

    def members(self) -> int:
        """Return how many members the coordinator counts; -1: it is not ready yet."""
        client = admin(self.kafka.bootstrap_servers)
        (answer,) = client.describe_consumer_groups([self.group_id]).values()
        try:
            return len(answer.result(ANSWER_S).members)
        except KafkaException as error:
            # The first group of a broker has no coordinator at first.
            if error.args[0].code() not in _NOT_READY:
                raise
            return -1

    def await_rows(self, count: int) -> None:
        """Wait until so many rows were written."""
        counts: dict[str, int] = {}

        def are_there() -> bool:
            for path in _written_files(self.directory) - counts.keys():
                counts[path] = parquet.read_metadata(path).num_rows
            return sum(counts.values()) >= count

        wait_until(are_there, READ_S, f"{count} rows")
