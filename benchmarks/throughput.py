"""How fast Spark reads a topic: by its own Kafka source, and by this one's two readers.

    python -m benchmarks.throughput [--rows 5000000] [--repeats 5] [--topics 100,1000,100-lz4]

Each topic is generated once: 8 partitions of records with a key of 8 bytes. Every repeat reads it
to its end with each reader in turn, in four batches, into the `noop` sink. The first batch of each
reading, in which processes start, is not counted, nor is the first repeat. A last reading by each
compares counts and a hash of all rows.
The broker has the same processors; CPU seconds are those of Spark's JVM and its Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.connector import fetch_connector
from spark_groups.kafka.embedded import EmbeddedKafka

PARTITIONS = 8
TASKS = 2
BATCHES = 4
DONE_S = 600.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

TUNED = {
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": "4194304",
}
READERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "JVM source, default": ("kafka", {}),
    "JVM source, tuned": ("kafka", TUNED),
    "librdkafka reader": ("kafka-group", {"reader": "librdkafka"}),
    "fast reader": ("kafka-group", {"reader": "fast"}),
}
PEER = "JVM source, tuned"
HASHED = ("count(*) AS rows", "bit_xor(xxhash64(key, value, topic, partition, offset)) AS hash")

console = Console(stderr=True)


@dataclass(frozen=True)
class TopicKind:
    """What a topic holds.

    Args:
        value_bytes: Size of each value.
        codec: What its batches are compressed with.
    """

    value_bytes: int
    codec: str

    @classmethod
    def of(cls, text: str) -> TopicKind:
        """Read a size, or a size and a codec."""
        size, _, codec = text.partition("-")
        return cls(int(size), codec or "none")

    def __str__(self) -> str:
        return f"{self.value_bytes} B, {self.codec}"


@dataclass(frozen=True)
class Reading:
    """One reading of a topic to its end.

    Args:
        topic: What was read.
        reader: By whom.
        repeat: Which repeat it was; 0 warms up.
        rows: How many rows came in all.
        counted_rows: How many of them came behind the first batch.
        add_batch_s: Seconds in which Spark processed these.
        trigger_s: Seconds of their whole triggers.
        cpu_s: CPU seconds of Spark's JVM and all its children behind the first batch.
    """

    topic: str
    reader: str
    repeat: int
    rows: int
    counted_rows: int
    add_batch_s: float
    trigger_s: float
    cpu_s: float


def generate(servers: str, kind: TopicKind, rows: int) -> str:
    """Write a topic, and return its name."""
    name = f"throughput-{kind.value_bytes}-{kind.codec}"
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": kind.codec,
            "linger.ms": 50,
            "batch.size": 131_072,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    # Half of a value is of its own, half repeats itself, as records do.
    tail = b"spark-groups " * (kind.value_bytes // 13 + 1)
    for number in range(rows):
        value = (b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64)) * (kind.value_bytes // 32)
        while True:
            try:
                producer.produce(
                    name,
                    (value + tail)[: kind.value_bytes],
                    b"%08d" % (number % 10**8),
                    partition=number % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError(f"{name} could not be written")
    return name


def cpu_seconds(root_pid: int) -> float:
    """Return the CPU seconds of a process, its living descendants, and those that ended."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [root_pid]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += parents.get(pid, [])
    return total / CLOCK_TICKS


def stream(
    spark: SparkSession, servers: str, topic: str, reader: str, batch_rows: int
) -> DataFrame:
    """Return a stream of a topic from its beginning, by a reader."""
    source, options = READERS[reader]
    group = {"kafka.group.id": f"throughput-{uuid.uuid4().hex}"} if source == "kafka-group" else {}
    return (
        spark.readStream.format(source)
        .options(**options, **group)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )


def read(stream_of_rows: DataFrame, jvm_pid: int) -> dict[str, float]:
    """Read a stream to its end into nothing, and return what it took."""
    deadline = time.monotonic() + DONE_S
    cpu_before: float | None = None
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            stream_of_rows.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        while not query.awaitTermination(0.05):  # type: ignore[arg-type]
            if time.monotonic() > deadline:
                query.stop()
                raise RuntimeError(f"not read within {DONE_S:g} s")
            if cpu_before is None and query.lastProgress and query.lastProgress["numInputRows"]:
                cpu_before = cpu_seconds(jvm_pid)
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        counted = batches[1:]
        return {
            "rows": sum(each["numInputRows"] for each in batches),
            "counted_rows": sum(each["numInputRows"] for each in counted),
            "add_batch_s": sum(each["durationMs"]["addBatch"] for each in counted) / 1000,
            "trigger_s": sum(each["durationMs"]["triggerExecution"] for each in counted) / 1000,
            "cpu_s": cpu_seconds(jvm_pid) - (cpu_before or 0.0),
        }


def hash_of(stream_of_rows: DataFrame) -> tuple[int, int]:
    """Read a stream to its end, and return how many rows it had and a hash of them all."""
    found: list[tuple[int, int]] = []

    def take(batch: DataFrame, _: int) -> None:
        row = batch.selectExpr(*HASHED).first()
        found.append((row["rows"], row["hash"] or 0))

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            stream_of_rows.writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(int(DONE_S))
    rows, hashed = 0, 0
    for count, each in found:
        rows, hashed = rows + count, hashed ^ each
    return rows, hashed


def measure(
    spark: SparkSession, servers: str, kind: TopicKind, rows: int, repeats: int
) -> Iterator[Reading]:
    """Read a topic with every reader in turn, again and again; compare what they read."""
    topic = generate(servers, kind, rows)
    jvm_pid = spark.sparkContext._jvm.ProcessHandle.current().pid()
    for repeat in range(repeats + 1):
        for reader in READERS:
            rows_of = stream(spark, servers, topic, reader, rows // BATCHES)
            reading = Reading(str(kind), reader, repeat, **read(rows_of, jvm_pid))
            if reading.rows != rows:
                raise RuntimeError(f"{reader} read {reading.rows} of {rows} rows")
            console.print(f"{reading}")
            yield reading
    hashes = {
        each: hash_of(stream(spark, servers, topic, each, rows // BATCHES)) for each in READERS
    }
    if set(hashes.values()) != {(rows, next(iter(hashes.values()))[1])}:
        raise RuntimeError(f"the readers do not agree: {hashes}")


def table(readings: list[Reading]) -> Table:
    """Return the medians of each topic and reader, and how they compare to the tuned source."""
    shown = Table("topic", "reader", "M rows/s", "lowest", "highest", "x tuned", "CPU s/M rows")
    for topic in dict.fromkeys(each.topic for each in readings):
        rates: dict[str, list[float]] = {}
        cpu: dict[str, list[float]] = {}
        for each in readings:
            if each.topic == topic and each.repeat:
                rates.setdefault(each.reader, []).append(each.counted_rows / each.add_batch_s / 1e6)
                cpu.setdefault(each.reader, []).append(each.cpu_s / each.counted_rows * 1e6)
        for reader, found in rates.items():
            median = statistics.median(found)
            shown.add_row(
                topic,
                reader,
                *(f"{each:.2f}" for each in (median, min(found), max(found))),
                f"{median / statistics.median(rates[PEER]):.2f}",
                f"{statistics.median(cpu[reader]):.2f}",
            )
    return shown


def machine() -> dict[str, Any]:
    """Return where and with what it was measured."""
    return {
        "measured_at": time.strftime("%Y-%m-%d", time.gmtime()),
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "partitions": PARTITIONS,
        "tasks": TASKS,
        "readers": {name: {"format": each[0], **each[1]} for name, each in READERS.items()},
    }


def main() -> None:
    """Measure, check, write the readings as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--topics", default="100,1000,100-lz4")
    parser.add_argument("--json", type=Path, default=Path("build/throughput.json"))
    given = parser.parse_args()
    jars = ",".join(map(str, fetch_connector(pyspark.__version__)))
    readings: list[Reading] = []
    with EmbeddedKafka(heap_mb=512) as kafka:
        spark = (
            SparkSession.builder.master(f"local[{TASKS}]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.driver.memory", "2g")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        for each in given.topics.split(","):
            kind = TopicKind.of(each)
            # A topic of larger records has fewer of them.
            rows = given.rows * 100 // max(100, kind.value_bytes)
            readings += measure(spark, kafka.bootstrap_servers, kind, rows, given.repeats)
        spark.stop()
    given.json.parent.mkdir(parents=True, exist_ok=True)
    result = {**machine(), "readings": [asdict(each) for each in readings]}
    given.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    Console().print(table(readings))


if __name__ == "__main__":
    main()
