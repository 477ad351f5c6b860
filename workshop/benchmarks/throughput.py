"""How fast Spark reads a topic: by its own Kafka source, and by this one's two readers.

    python -m workshop.benchmarks.throughput [--batch-rows 2500000] [--repeats 5] \
        [--tasks 4] [--topics 100,1000,100-lz4] [--columnar]

Each topic is generated once: 8 partitions of records with a key of 8 bytes. Every repeat reads it
to its end with each reader in turn, in two batches, into the `noop` sink. The first of them, in
which processes start, is not counted. A repeat before the first one warms up, and
compares counts and a hash of all rows.
The broker has the same processors; its CPU seconds are counted apart from those of Spark's JVM
and its Python workers. A reading is repeated if other processes used more than
0.15 processors meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import plan_text
from workshop.benchmarks.columnar import classes
from workshop.benchmarks.cpu import CpuAccount, CpuSeconds, MachineTime
from workshop.benchmarks.nowhere import NowhereSource
from workshop.benchmarks.readers import COLUMNAR_READERS, FAST, JVM_BEST, NOWHERE, READERS, Reader
from workshop.benchmarks.results import write_results
from workshop.benchmarks.session import new_session

PARTITIONS = 8
TASKS = 2
"""As many as the processors of the machine that the pages are from."""
BATCHES = 2
DONE_S = 600.0
ATTEMPTS = 5
ALL_READERS = {**READERS, **COLUMNAR_READERS}
COMPANY_MAX = 0.15
"""How many processors others may use on average while somebody reads."""
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

    def batch_rows(self, small_rows: int) -> int:
        """Return how many rows a batch has: fewer of large ones, though not as few as bytes say."""
        return small_rows if self.value_bytes <= 100 else small_rows // 5

    def __str__(self) -> str:
        return f"{self.value_bytes} B, {self.codec}"


@dataclass(frozen=True)
class Topic:
    """A topic that was generated.

    Args:
        name: Its name.
        kind: What it holds.
        batch_rows: How many rows each batch of a reading has; there are `BATCHES`.
    """

    name: str
    kind: TopicKind
    batch_rows: int

    @property
    def rows(self) -> int:
        return self.batch_rows * BATCHES


@dataclass(frozen=True)
class Reading:
    """One reading of a topic to its end.

    Args:
        topic: The topic read.
        reader: By whom.
        repeat: Which repeat it was, from 1.
        counted_rows: How many rows came behind the first batch.
        add_batch_s: Seconds in which Spark processed these.
        trigger_s: Seconds of their whole triggers.
        jvm_cpu_s: CPU seconds of Spark's JVM behind the first batch.
        python_cpu_s: The same, of its Python processes.
        broker_cpu_s: The same, of the broker.
        load_average: The machine's, of one minute, before the reading.
        company_cores: How many processors others used on average while these rows were read.
    """

    topic: str
    reader: str
    repeat: int
    counted_rows: int
    add_batch_s: float
    trigger_s: float
    jvm_cpu_s: float
    python_cpu_s: float
    broker_cpu_s: float
    load_average: float
    company_cores: float


@dataclass(frozen=True)
class Used:
    """The CPU time used until a moment.

    Args:
        machine: By all processes.
        spark: By Spark.
        broker: By the broker.
        own_s: By this process.
    """

    machine: MachineTime
    spark: CpuSeconds
    broker: CpuSeconds
    own_s: float

    def company_cores(self, earlier: Used) -> float:
        """Return how many processors others have used since an earlier moment, on average."""
        spark, broker = self.spark - earlier.spark, self.broker - earlier.broker
        used_s = spark.total + broker.total + self.own_s - earlier.own_s
        return self.machine.company_cores(earlier.machine, used_s)


def generate(
    spark: SparkSession, kafka: EmbeddedKafka, name: str, kind: TopicKind, rows: int
) -> None:
    """Write a topic: half of a value is of its own, half repeats itself, as records do.

    Args:
        spark: Writes it.
        kafka: The broker.
        name: Its name.
        kind: What it holds.
        rows: How many records.
    """
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    own = f"repeat(lower(hex(xxhash64(id))), {kind.value_bytes // 32})"
    value = f"rpad({own}, {kind.value_bytes}, 'spark-groups ')"
    (
        spark.range(rows)
        .selectExpr(
            "lpad(CAST(id AS STRING), 8, '0') AS key",
            f"{value} AS value",
            f"CAST(id % {PARTITIONS} AS INT) AS partition",
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.compression.type", kind.codec)
        .option("kafka.linger.ms", "50")
        .option("kafka.batch.size", "131072")
        .option("topic", name)
        .save()
    )


@dataclass(frozen=True)
class Bench:
    """Where it is measured.

    Args:
        spark: The session.
        kafka: The broker.
        readers: Those who read, by their names.
        accounts: Count what Spark and the broker use.
        tasks: How many tasks run at a time.
    """

    spark: SparkSession
    kafka: EmbeddedKafka
    readers: Mapping[str, Reader]
    accounts: tuple[CpuAccount, CpuAccount]
    tasks: int

    def stream(self, topic: Topic, reader: Reader) -> DataFrame:
        """Return a stream of a topic from its beginning, by a reader."""
        self.spark.conf.set(classes.SETTING, str(reader.is_columnar).lower())
        if reader.reads_a_topic:
            options = {
                "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
                "subscribe": topic.name,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(topic.batch_rows),
            }
        else:
            options = {
                "rows": str(topic.rows),
                "batch_rows": str(topic.batch_rows),
                "value_bytes": str(topic.kind.value_bytes),
                "tasks": str(self.tasks),
            }
        if reader.source == "kafka-group":
            options["kafka.group.id"] = f"throughput-{uuid.uuid4().hex}"
        stream = self.spark.readStream.format(reader.source)
        return stream.options(**reader.options_of(str(topic.kind)), **options).load()

    def used(self) -> Used:
        """Return the CPU time used until now."""
        spark, broker = (account.used() for account in self.accounts)
        return Used(MachineTime.now(), spark, broker, time.process_time())

    def read(self, topic: Topic, name: str, repeat: int) -> Reading:
        """Read a topic to its end into nothing, and return what it took."""
        reader = self.readers[name]
        writer = self.stream(topic, reader).writeStream
        if reader.over_rows is None:
            writer = writer.format("noop")
        else:
            writer = writer.foreachBatch(reader.over_rows(_into_nothing))
        load_average = os.getloadavg()[0]
        before: Used | None = None
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            )
            for _ in while_it_runs(query):
                if before is None and query.lastProgress:
                    before = self.used()
            after = self.used()
            batches = [each for each in query.recentProgress if moved_on(each)]
        if len(batches) != BATCHES or before is None:
            raise RuntimeError(f"{name} read {topic.name} in {len(batches)} batches")
        spark, broker = after.spark - before.spark, after.broker - before.broker
        durations = [batch["durationMs"] for batch in batches[1:]]
        return Reading(
            str(topic.kind),
            name,
            repeat,
            topic.batch_rows * len(durations),
            sum(each["addBatch"] for each in durations) / 1000,
            sum(each["triggerExecution"] for each in durations) / 1000,
            spark.own,
            spark.children,
            broker.own,
            load_average,
            after.company_cores(before),
        )

    def read_alone(self, topic: Topic, name: str, repeat: int) -> Reading:
        """Read as `read` does, again if others have used the machine meanwhile."""
        for _ in range(ATTEMPTS):
            reading = self.read(topic, name, repeat)
            if reading.company_cores <= COMPANY_MAX:
                return reading
            console.print(f"discarded, others used {reading.company_cores:.2f} processors")
        raise RuntimeError(f"others use this machine: {ATTEMPTS} readings were discarded")

    def hash_of(self, topic: Topic, name: str) -> tuple[int, int]:
        """Read a topic to its end, and return how many rows it had and a hash of them all."""
        found: list[tuple[int, int]] = []

        def take(batch: DataFrame, _: int) -> None:
            row = batch.selectExpr(*HASHED).first()
            found.append((row["rows"], row["hash"] or 0))

        reader = self.readers[name]
        over_rows = reader.over_rows or (lambda function: function)
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                self.stream(topic, reader)
                .writeStream.foreachBatch(over_rows(take))
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            for _ in while_it_runs(query):
                pass
        rows, hashed = 0, 0
        for count, each in found:
            rows, hashed = rows + count, hashed ^ each
        return rows, hashed

    def measure(self, topic: Topic, repeats: int) -> Iterator[Reading]:
        """Compare what every reader reads, then read with each in turn, again and again."""
        topic_readers = [name for name, reader in self.readers.items() if reader.reads_a_topic]
        hashes = {name: self.hash_of(topic, name) for name in topic_readers}
        console.print(f"{topic}: {hashes}")
        if {rows for rows, _ in hashes.values()} != {topic.rows} or len(set(hashes.values())) > 1:
            raise RuntimeError(f"the readers do not agree on {topic.rows} rows: {hashes}")
        for repeat in range(1, repeats + 1):
            for name in self.readers:
                reading = self.read_alone(topic, name, repeat)
                console.print(f"{reading}")
                yield reading


def moved_on(progress: StreamingQueryProgress) -> bool:
    """Whether a batch read anything: where the rows are ranges, Spark counts none."""
    (source,) = progress["sources"]
    return source["endOffset"] not in (source["startOffset"], plan_text(None))


def _into_nothing(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def while_it_runs(query: StreamingQuery) -> Iterator[None]:
    """Come back every moment until a query has ended."""
    deadline = time.monotonic() + DONE_S
    while not query.awaitTermination(0.05):  # type: ignore[arg-type]
        if time.monotonic() > deadline:
            query.stop()
            raise RuntimeError(f"not read within {DONE_S:g} s")
        yield


def table(readings: Iterable[Reading]) -> Table:
    """Return the medians of each topic and reader, and how they compare to the best peer."""
    shown = Table("topic", "reader", "M rows/s", "lowest", "highest", "x best", "CPU s/M rows")
    found: dict[tuple[str, str], list[Reading]] = {}
    for reading in readings:
        found.setdefault((reading.topic, reading.reader), []).append(reading)
    rates = {
        key: [each.counted_rows / each.add_batch_s / 1e6 for each in mine]
        for key, mine in found.items()
    }
    for (topic, reader), mine in rates.items():
        median, peers = statistics.median(mine), rates.get((topic, JVM_BEST))
        cpu = statistics.median(
            (each.jvm_cpu_s + each.python_cpu_s) / each.counted_rows * 1e6
            for each in found[topic, reader]
        )
        shown.add_row(
            topic,
            reader,
            *(f"{each:.2f}" for each in (median, min(mine), max(mine))),
            f"{median / statistics.median(peers):.2f}" if peers else "",
            f"{cpu:.2f}",
        )
    return shown


def settings(tasks: int, jvm_options: str) -> Mapping[str, Any]:
    """Return what the readings were taken with."""
    return {
        "partitions": PARTITIONS,
        "tasks": tasks,
        "jvm_options": jvm_options,
        "readers": {
            name: [reader.source, dict(reader.options)]
            for name, reader in READERS.items()
            if not reader.by_topic
        }
        | {
            f"{name}: {topic}": [reader.source, dict(options)]
            for name, reader in READERS.items()
            for topic, options in reader.by_topic.items()
        },
    }


def session(tasks: int, jvm_options: str, *, columnar: bool) -> SparkSession:
    """Return a Spark with its own Kafka source and the rows from nowhere."""
    configuration = {"spark.driver.memory": "6g", "spark.driver.extraJavaOptions": jvm_options}
    if columnar:
        configuration["spark.driver.extraClassPath"] = str(classes.compiled())
    spark = new_session(tasks, configuration)
    spark.dataSource.register(NowhereSource)
    return spark


def main() -> None:
    """Measure, check, write the readings as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batch-rows", type=int, default=2_500_000)
    parser.add_argument("--repeats", type=int, default=5, help="none compares rows only")
    parser.add_argument("--tasks", type=int, default=TASKS, help="how many run at a time")
    parser.add_argument("--topics", default="100,1000,100-lz4")
    parser.add_argument("--readers", help="separated by semicolons; all of them by default")
    parser.add_argument(
        "--columnar", action="store_true", help="with columns from Python, by a changed Spark"
    )
    parser.add_argument("--jvm-options", default="", help="for everyone who is measured")
    parser.add_argument("--json", type=Path, default=Path("build/throughput.json"))
    given = parser.parse_args()
    compared = (JVM_BEST, FAST, NOWHERE, *COLUMNAR_READERS) if given.columnar else tuple(READERS)
    names = tuple(given.readers.split(";")) if given.readers else compared
    readers = {name: ALL_READERS[name] for name in names}
    readings: list[Reading] = []
    spark = session(given.tasks, given.jvm_options, columnar=given.columnar)
    with EmbeddedKafka(heap_mb=512) as kafka:
        assert kafka.pid is not None
        jvm_pid = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
        accounts = CpuAccount(jvm_pid), CpuAccount(kafka.pid)
        bench = Bench(spark, kafka, readers, accounts, given.tasks)
        for each in given.topics.split(","):
            kind = TopicKind.of(each)
            batch_rows = kind.batch_rows(given.batch_rows)
            topic = Topic(f"throughput-{kind.value_bytes}-{kind.codec}", kind, batch_rows)
            generate(spark, kafka, topic.name, kind, topic.rows)
            readings += bench.measure(topic, given.repeats)
        for account in accounts:
            account.close()
        spark.stop()
        measured = {**settings(given.tasks, given.jvm_options), "kafka": kafka.version}
    write_results(given.json, measured, readings)
    Console().print(table(readings))


if __name__ == "__main__":
    main()
