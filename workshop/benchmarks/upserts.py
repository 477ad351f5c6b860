"""The cost of changes to a Delta table by key, beside MERGE of delta-spark on the same changes.

    python -m workshop.benchmarks.upserts [--rows 1000000] [--changes 20000] [--batches 6]

A topic has changes as JSON, of keys that are drawn at random; one of twenty deletes. In each
repeat, one query for each way merges all of them, in batches, into a copy of one table. The first
batch, in which processes start, is not counted, and a repeat before the first one warms up. After
each query the benchmark compares the table with a replay of the changes, and fails if they differ.
The work of `write_table` is also measured in this process, without Spark and Kafka.
CPU seconds are those of Spark's JVM, of the processes it started and of the driver's Python. A
reading is repeated if others used more than --company-max processors; the quietest of three stays.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from spark_groups import delta_table, write_table
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.fence.compare import compare
from spark_groups.spark.source.foreach_batch_rows import TUNING
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.upserts import PLACE
from spark_groups.types import OffsetRange
from workshop.benchmarks.cpu import CpuAccount, MachineTime
from workshop.benchmarks.figures import Goal, Readings, Spread
from workshop.benchmarks.noted import markdown_table
from workshop.benchmarks.report import facts_of, goal_table, joined, spread_text
from workshop.benchmarks.results import write_results
from workshop.benchmarks.tables import await_first_batch, session
from workshop.benchmarks.throughput import DONE_S, PARTITIONS, TASKS, Used, moved_on
from workshop.parts.brokers import create_topic
from workshop.parts.connector import DELTA_SPARK

ATTEMPTS = 3
TOPIC = "changes"
COLUMNS = "id BIGINT, name STRING, city STRING, deleted BOOLEAN"
MERGE = """
MERGE INTO delta.`{}` AS stored USING changes ON stored.id = changes.id
WHEN MATCHED AND changes.deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET name = changes.name, city = changes.city
WHEN NOT MATCHED AND NOT changes.deleted
  THEN INSERT (id, name, city) VALUES (changes.id, changes.name, changes.city)"""
ROWS = ("count(*) AS rows", "bit_xor(xxhash64(id, name, city)) AS hash")
PARTS = {"jvm_cpu_s": "JVM", "children_cpu_s": "its children", "driver_cpu_s": "driver's Python"}
OURS = "write_table"
SPARK = "MERGE"
VECTORS = "MERGE, deletion vectors"
LESS_CPU = 2.0
"""How many times the CPU of this package MERGE is wanted to take."""

console = Console(stderr=True)
Change = Mapping[str, Any]


def merges(path: Path) -> Callable[[DataFrame, int], None]:
    """Return what merges a batch with delta-spark: the last change of each key."""

    def merge(batch: DataFrame, _: int) -> None:
        row = f.from_json(f.col("value").cast("string"), COLUMNS)
        rows = batch.select(row.alias("row"), "offset")
        last = rows.groupBy("row.id").agg(f.max_by("row", "offset").alias("row"))
        last.select("row.*").createOrReplaceTempView("changes")
        batch.sparkSession.sql(MERGE.format(path))

    return merge


def fenced(path: Path) -> Callable[[DataFrame, int], None]:
    """Return what merges a batch with this package."""
    return write_table(delta_table(path, merge_on="id", delete_when="deleted"), expand="value")


@dataclass(frozen=True)
class Way:
    """A way to merge changes.

    Args:
        what: What it is, for readers of the page.
        writes: Returns the function for `foreachBatch` that changes a table.
        source: Spark's format of the stream.
        options: Its options, except those that select the topic and offsets.
        properties: Properties that the table gets first.
    """

    what: str
    writes: Callable[[Path], Callable[[DataFrame, int], None]]
    source: str = "kafka"
    options: Mapping[str, str] = field(default_factory=lambda: TUNING)
    properties: str = ""


WAYS: Mapping[str, Way] = {
    OURS: Way(
        "`write_table` with `merge_on` and `emit=ranges`: tasks read, decode, reduce and stage",
        fenced,
        "kafka-group",
        {"emit": "ranges", "valueFormat": "json", "valueSchema": COLUMNS},
    ),
    SPARK: Way(
        "Spark's own Kafka source with larger fetches, `from_json`, `max_by` for each key, and"
        " `MERGE INTO` of delta-spark in `foreachBatch`",
        merges,
    ),
    VECTORS: Way(
        "the same, into a table with deletion vectors: unchanged rows are not written again, and"
        " every reader has to apply the vectors, until `OPTIMIZE`",
        merges,
        properties="'delta.enableDeletionVectors' = 'true'",
    ),
}


@dataclass(frozen=True)
class Reading:
    """One query that merged the topic.

    Args:
        way: The name of the way.
        repeat: The number of the repeat, from 1.
        triggers: The number of batches after the first one.
        trigger_s: Seconds of their triggers, from plan to commit.
        jvm_cpu_s: CPU seconds of Spark's JVM after the first batch.
        children_cpu_s: CPU seconds of its child processes.
        driver_cpu_s: CPU seconds of the driver's Python.
        broker_cpu_s: CPU seconds of the broker, which do not count.
        load_average: The load average of the machine, of one minute, before the query.
        company_cores: The processors that other processes used meanwhile, on average.
    """

    way: str
    repeat: int
    triggers: int
    trigger_s: float
    jvm_cpu_s: float
    children_cpu_s: float
    driver_cpu_s: float
    broker_cpu_s: float
    load_average: float
    company_cores: float


@dataclass(frozen=True)
class Data:
    """The table before all changes, and the changes.

    Args:
        rows: The number of rows of the table.
        batches: The changes of each batch, of each partition, in order.
    """

    rows: int
    batches: Sequence[Sequence[Sequence[Change]]]

    @classmethod
    def drawn(cls, rows: int, changes: int, batches: int) -> Data:
        """Draw changes; each partition has as many of a batch, and always the same keys."""
        chance = random.Random(1)

        def change(partition: int) -> Change:
            of, deleted = chance.randrange(rows // PARTITIONS), chance.random() < 0.05
            name, city = f"name {chance.randrange(rows)}", f"city {chance.randrange(50)}"
            key = of * PARTITIONS + partition
            return {"id": key, "name": name, "city": city, "deleted": deleted}

        each = range(changes // PARTITIONS)
        return cls(
            rows,
            [[[change(p) for _ in each] for p in range(PARTITIONS)] for _ in range(batches)],
        )

    def first(self, number: int) -> dict[str, Any]:
        """Return a row of the table before all changes."""
        return {"id": number, "name": f"name of {number}", "city": f"city {number % 50}"}

    def expected(self) -> pa.Table:
        """Return the rows of the table after all changes."""
        found = {number: self.first(number) for number in range(self.rows)}
        for partitions in self.batches:
            for each in (change for changes in partitions for change in changes):
                found[each["id"]] = each
        kept = [each for each in found.values() if not each.get("deleted")]
        return pa.Table.from_pylist(
            kept, pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string())])
        )

    def produce(self, servers: str) -> None:
        """Write the topic."""
        create_topic(servers, TOPIC, PARTITIONS)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
        for partitions in self.batches:
            for partition, changes in enumerate(partitions):
                for each in changes:
                    key, value = str(each["id"]), json.dumps(each)
                    producer.produce(TOPIC, key=key, value=value, partition=partition)
            producer.flush()

    def arrow(self, number: int) -> pa.RecordBatch:
        """Return the changes of a batch, with the places of their records."""
        found: list[dict[str, Any]] = []
        for partition, changes in enumerate(self.batches[number]):
            first = number * len(changes)
            found += (
                {**each, "topic": TOPIC, "partition": partition, "offset": first + index}
                for index, each in enumerate(changes)
            )
        columns = {
            "id": pa.int64(),
            "name": pa.string(),
            "city": pa.string(),
            "deleted": pa.bool_(),
            **PLACE,
        }
        return pa.RecordBatch.from_pylist(found, pa.schema([*columns.items()]))


@dataclass(frozen=True)
class Bench:
    """Where it is measured.

    Args:
        spark: The session.
        kafka: The broker, which has the topic.
        first: The table before all changes, which each query gets a copy of.
        wanted: The number of its rows after all changes, and their hash.
        changes: The number of changes of a batch.
        batches: The number of batches.
        accounts: The CPU accounts of Spark and of the broker.
        company_max: The processors that other processes may use on average.
    """

    spark: SparkSession
    kafka: EmbeddedKafka
    first: Path
    wanted: Any
    changes: int
    batches: int
    accounts: tuple[CpuAccount, CpuAccount]
    company_max: float

    def used(self) -> Used:
        """Return the CPU time used until now."""
        spark, broker = (each.used() for each in self.accounts)
        return Used(MachineTime.now(), spark, broker, time.process_time())

    def merge(self, name: str, repeat: int) -> Reading:
        """Merge the topic into a copy of the table, and compare its rows."""
        way, load_average = WAYS[name], os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="upserts-") as directory:
            table = Path(directory, "table")
            shutil.copytree(self.first, table)
            if way.properties:
                self.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({way.properties})")
            query = self._started(way, table, str(Path(directory, "checkpoint")))
            try:
                await_first_batch(query)
                before = self.used()
                if not query.awaitTermination(DONE_S):  # type: ignore[arg-type]
                    raise RuntimeError(f"{name} has not merged all changes within {DONE_S:g} s")
                after = self.used()
                counted = [each for each in query.recentProgress if moved_on(each)][1:]
            finally:
                query.stop()
            found = self.spark.read.format("delta").load(str(table)).selectExpr(*ROWS).first()
        if found != self.wanted or len(counted) != self.batches - 1:
            raise RuntimeError(
                f"{name} merged {len(counted)} batches to {found}, not {self.wanted}"
            )
        spark = after.spark - before.spark
        return Reading(
            way=name,
            repeat=repeat,
            triggers=len(counted),
            trigger_s=sum(each["durationMs"]["triggerExecution"] for each in counted) / 1000,
            jvm_cpu_s=spark.own,
            children_cpu_s=spark.children,
            driver_cpu_s=after.own_s - before.own_s,
            broker_cpu_s=(after.broker - before.broker).total,
            load_average=load_average,
            company_cores=after.company_cores(before),
        )

    def measure(self, ways: Sequence[str], repeats: int) -> Iterator[Reading]:
        """Merge in each way, in each repeat; the repeat for warm-up is not counted."""
        for repeat in range(repeats + 1):
            for name in ways:
                found: list[Reading] = []
                while not found or (
                    repeat and len(found) < ATTEMPTS and found[-1].company_cores > self.company_max
                ):
                    found.append(self.merge(name, repeat))
                    console.print(line(asdict(found[-1])), "" if repeat else "(not counted)")
                if repeat:
                    yield min(found, key=lambda each: each.company_cores)

    def _started(self, way: Way, table: Path, checkpoint: str) -> StreamingQuery:
        options = {
            **way.options,
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.changes),
        }
        if way.source == "kafka-group":
            options["kafka.group.id"] = f"upserts-{uuid.uuid4().hex}"
        stream = self.spark.readStream.format(way.source).options(**options).load()
        writer = stream.writeStream.foreachBatch(way.writes(table))
        writer = writer.option("checkpointLocation", checkpoint)
        query: StreamingQuery = writer.trigger(availableNow=True).start()
        return query


def alone(data: Data, first: Path) -> dict[str, float]:
    """Merge the batches in this process, without Spark and Kafka; return medians of a batch."""
    cpu_s, wall_s = [], []
    with tempfile.TemporaryDirectory(prefix="upserts-") as directory:
        path = Path(directory, "table")
        shutil.copytree(first, path)
        table = delta_table(path, merge_on="id", delete_when="deleted")
        for number, partitions in enumerate(data.batches):
            rows, size = data.arrow(number), len(partitions[0])
            used_s, at_s = time.process_time(), time.monotonic()
            state = table.read(TOPIC)
            planned = [
                OffsetRange(uuid.UUID(int=1), TOPIC, each, number * size, (number + 1) * size)
                for each in range(PARTITIONS)
            ]
            decision = compare(TOPIC, planned, state, table=str(table))
            attempt = Attempt(TOPIC, number, uuid.uuid4().hex[:12])
            pieces = [*table.task_writer(attempt).write([rows], "0")]
            table.commit(attempt, pieces, decision, state)
            cpu_s.append(time.process_time() - used_s)
            wall_s.append(time.monotonic() - at_s)
    return {"cpu_s": statistics.median(cpu_s[1:]), "wall_s": statistics.median(wall_s[1:])}


def cpu_s(reading: Mapping[str, Any], *parts: str) -> float:
    """Return CPU seconds of a batch, of all parts but the broker or of some."""
    return float(sum(reading[each] for each in parts or PARTS) / reading["triggers"])


def batch_s(reading: Mapping[str, Any]) -> float:
    """Return the seconds of a batch."""
    return float(reading["trigger_s"] / reading["triggers"])


def ratio(readings: Readings, way: str, figure: Callable[..., float]) -> Spread | None:
    """Return a way's figure to that of this package, both from the same repeat."""
    ours = {each["repeat"]: figure(each) for each in readings if each["way"] == OURS}
    return Spread.of(
        figure(each) / ours[each["repeat"]]
        for each in readings
        if each["way"] == way and each["repeat"] in ours
    )


def line(reading: Mapping[str, Any]) -> str:
    """Return a reading in one line."""
    parts = ", ".join(f"{shown} {cpu_s(reading, name):.2f}" for name, shown in PARTS.items())
    return (
        f"repeat {reading['repeat']}, {reading['way']}: {cpu_s(reading):.2f} CPU s a batch"
        f" ({parts}), {batch_s(reading):.2f} s, others {reading['company_cores']:.2f}"
    )


def _batches(readings: Readings) -> list[str]:
    rows = []
    for name in dict.fromkeys(each["way"] for each in readings):
        mine = [each for each in readings if each["way"] == name]
        parts = {
            shown: statistics.median(cpu_s(each, part) for each in mine)
            for part, shown in PARTS.items()
        }
        rows.append(
            (
                name,
                spread_text(Spread.of(map(batch_s, mine)), 2),
                spread_text(Spread.of(map(cpu_s, mine)), 2),
                spread_text(ratio(readings, name, cpu_s), 2),
                ", ".join(f"{shown} {part:.2f}" for shown, part in parts.items()),
                " ".join(f"{cpu_s(each):.2f}" for each in mine),
            )
        )
    of_ours = f"CPU to that of {OURS}"
    every = "CPU s, every repeat"
    heads = ("way", "s of a batch", "CPU s of a batch", of_ours, "CPU s by process", every)
    return markdown_table(heads, rows)


def markdown(result: Mapping[str, Any], raw: str) -> str:
    """Return the page.

    Args:
        result: The result of this benchmark.
        raw: The name of the file with all readings beside the page.
    """
    readings: Readings = result["readings"]
    goals = [
        Goal(f"CPU of {name} to that of {OURS}", LESS_CPU, True, "x", ratio(readings, name, cpu_s))
        for name in (SPARK, VECTORS)
    ]
    load = max((each["load_average"] for each in readings), default=0.0)
    company = max((each["company_cores"] for each in readings), default=0.0)
    merged = result["without_spark"]
    lines = [
        "# Changes by key",
        "",
        "Written by `python -m workshop.benchmarks.upserts`: queries merge a topic of changes, as"
        " JSON, into copies of one Delta table, in each way in turn, and again. Keys are drawn at"
        " random, so each batch changes rows of every file. After each query the table equals a"
        f" replay of the changes, or the benchmark fails. [{raw}]({raw}) has all readings.",
        "",
        f"- {joined(facts_of(result))}",
        f"- load average before a query {load:.1f} at most; processors that others used meanwhile"
        f" {company:.2f} at most",
        "",
        *markdown_table(("way", "meaning"), ((name, each.what) for name, each in WAYS.items())),
        f"For MERGE, Spark shuffles into {TASKS} partitions and Delta's snapshots have {TASKS}, one"
        " for each task, in the place of 200 and 50. MERGE has no fence: a batch that runs again"
        " changes nothing, because its last rows are there, but an application that the group has"
        " excluded may still bring older rows back.",
        "",
        "## Goals",
        "",
        "Ratios compare readings of the same repeat; the median over all repeats counts.",
        "",
        *goal_table(goals),
        "## A batch",
        "",
        *_batches(readings),
        f"Without Spark and Kafka, the work of `write_table` takes {merged['cpu_s']:.2f} s of CPU"
        f" and {merged['wall_s']:.2f} s: rows of a batch from the task to the end of the commit. A"
        " trigger of Spark, the Python workers and the records take the rest.",
    ]
    return "\n".join(lines).rstrip() + "\n"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=20_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=6, help="after the first one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", default=";".join(WAYS), help="separated by semicolons")
    parser.add_argument("--company-max", type=float, default=0.15, help="processors")
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/upserts.md"))
    return parser.parse_args()


def main() -> None:
    """Measure, compare, and write the readings as JSON and the page."""
    given = arguments()
    data = Data.drawn(given.rows, given.changes, given.batches + 1)
    spark, readings = session(), []
    spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))
    with tempfile.TemporaryDirectory() as directory, EmbeddedKafka(heap_mb=512) as kafka:
        assert kafka.pid is not None
        data.produce(kafka.bootstrap_servers)
        first, expected = Path(directory, "first"), Path(directory, "expected.parquet")
        rows = spark.range(given.rows).repartition(TASKS)
        columns = "id", "concat('name of ', id) AS name", "concat('city ', id % 50) AS city"
        rows.selectExpr(*columns).write.format("delta").save(str(first))
        parquet.write_table(data.expected(), expected)
        wanted = spark.read.parquet(str(expected)).selectExpr(*ROWS).first()
        settings = {
            "rows": given.rows,
            "changes_of_a_batch": given.changes,
            "batches": given.batches,
            "partitions": PARTITIONS,
            "tasks": TASKS,
            "kafka": kafka.version,
            "delta_spark": DELTA_SPARK,
            "without_spark": alone(data, first),
        }
        console.print(f"without Spark and Kafka: {settings['without_spark']}")
        jvm_pid = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
        accounts = CpuAccount(jvm_pid), CpuAccount(kafka.pid)
        sizes = given.changes, given.batches + 1
        bench = Bench(spark, kafka, first, wanted, *sizes, accounts, given.company_max)
        raw = given.page.with_suffix(".json")
        for reading in bench.measure(given.ways.split(";"), given.repeats):
            readings.append(reading)
            write_results(raw, settings, readings)
        for account in accounts:
            account.close()
        spark.stop()
    result = json.loads(raw.read_text(encoding="utf-8"))
    given.page.write_text(markdown(result, raw.name), encoding="utf-8")


if __name__ == "__main__":
    main()
