"""The connection to the JVM: which one it is, and how quick it is, in real runners and workers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.source.source import (
    HAS_ADMISSION_CONTROL,
    KafkaGroupDataSource,
    KafkaGroupStreamReader,
)
from tests.spark.queries import READ_S
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

BATCHES = 3
LINUX = sys.platform == "linux"

FOUND = """
import os, socket, sys
from spark_groups.spark.control.jvm_connection import jvm_connection

port, descriptors, others = map(int, sys.argv[1:])
sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(1 + others)]
copies = [os.dup(sockets[0].fileno()) for _ in range(descriptors - 1)]
found = jvm_connection()
print(found is not None and found.getsockname() == sockets[0].getsockname())
"""


@pytest.mark.parametrize(
    ("descriptors", "others", "is_found"), [(1, 0, True), (3, 0, True), (3, 2, True), (1, 1, False)]
)
def test_the_connection_is_the_only_one_or_the_only_copied_one(
    descriptors: int, others: int, is_found: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as jvm:
        port = jvm.getsockname()[1]
        command = [sys.executable, "-c", FOUND, *map(str, (port, descriptors, others))]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=800, text=True)
    assert found.stdout.strip() == str(is_found)


def observed_source(directory: Path) -> type[KafkaGroupDataSource]:
    """Return the source, whose processes write down the options of their connection to the JVM.

    Spark copies classes that a function makes to its processes.
    """
    log = str(directory / "connections")

    def note(process: str, timeout_s: float) -> None:
        import json
        import socket
        import time

        from spark_groups.spark.control.jvm_connection import jvm_connection

        names = ("TCP_NODELAY", "TCP_QUICKACK")
        options: list[int] | None = None
        deadline = time.monotonic() + timeout_s
        with jvm_connection() or socket.socket() as found:
            while options is None or (0 in options and time.monotonic() < deadline):
                options = [found.getsockopt(socket.IPPROTO_TCP, getattr(socket, n)) for n in names]
        with open(log, "a") as file:
            file.write(json.dumps([process, options]) + "\n")

    class NotingReader(KafkaGroupStreamReader):
        def latestOffset(self, *given: Any) -> dict[str, Any]:
            if self._run is not None:
                # A thread sets the options while this one runs.
                note("runner", 30.0)
            return super().latestOffset(*given)

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            note("worker", 0.0)
            yield from super().read(partition)

    class ObservedSource(KafkaGroupDataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-group-observed"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return NotingReader(self._load)

    return ObservedSource


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.skipif(not LINUX or not HAS_ADMISSION_CONTROL, reason="what Linux has; one signature")
def test_runner_and_workers_neither_send_nor_acknowledge_late(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    spark.dataSource.register(observed_source(tmp_path))
    rows = (
        spark.readStream.format("kafka-group-observed")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", topic_name)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    )
    try:
        for number in range(1, BATCHES + 1):
            produce(kafka.bootstrap_servers, topic_name, [Row(b"x")])
            wait_until(
                lambda count=number: sum(e["numInputRows"] for e in query.recentProgress) >= count,
                READ_S,
                "a batch",
            )
    finally:
        query.stop()
    noted = [json.loads(each) for each in (tmp_path / "connections").read_text().splitlines()]
    of_runner = [options for process, options in noted if process == "runner"]
    of_worker = [options for process, options in noted if process == "worker"]
    assert of_runner
    assert set(map(tuple, of_runner)) == {(1, 1)}
    # A worker takes its first task before it has run any code of the source.
    assert len(of_worker) == BATCHES
    assert [1, 1] in of_worker[1:]
