r"""What it costs to write a topic into a table, each record once: compared with delta-spark.

    python -m benchmarks.tables [--rows 8000000] [--repeats 5] [--topics 100,100-lz4,1000]
    python -m benchmarks.tables --rows 400000 --batch-rows 100000 --small-rows 20000 --repeats 1 \
        --topics 100 --company-max 2 --page build/tables/tables.md

Each topic is generated once: 8 partitions of records with a key of 8 bytes. Every repeat writes it
into a new table in each way in turn, by one query, in batches. The first batch, in which processes
start, is not counted. A repeat before the first one warms up. After every query the rows of the
table are counted: each record has to be there once, or the benchmark fails.
CPU seconds are those of Spark's JVM, of the processes it started (Python workers), of the driver's
Python, of PostgreSQL, and of the broker, which is not counted. A reading is repeated if other
processes used more than --company-max processors meanwhile; the quietest of three is kept.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from benchmarks import tables_report
from benchmarks.connector import fetch_delta
from benchmarks.cpu import CpuAccount, MachineTime
from benchmarks.results import write_results
from benchmarks.session import new_session
from benchmarks.table_ways import (
    ARROW,
    COPY,
    ICEBERG,
    POSTGRES,
    ROWS,
    SPARK,
    SPARK_TUNED,
    WAYS,
    Way,
    problems_of,
)
from benchmarks.throughput import DONE_S, PARTITIONS, TASKS, TopicKind, generate, moved_on
from chaos.postgres import running_postgres
from spark_groups.lab.broker.embedded import EmbeddedKafka

DELTA_SPARK = "4.4.0"
ATTEMPTS = 3
SMALL_BATCHES = 11
LOOK_S = 0.02
"""How often the end of the first batch is looked for."""

console = Console(stderr=True)


@dataclass(frozen=True)
class Case:
    """A topic, and how it is written.

    Args:
        kind: What the topic holds.
        rows: How many records it has.
        batch_rows: How many of them a batch has.
        ways: Names of the ways that write it.
    """

    kind: TopicKind
    rows: int
    batch_rows: int
    ways: tuple[str, ...]


def cases(rows: int, batch_rows: int, small_rows: int, topics: str) -> Iterator[Case]:
    """Yield the cases that are measured.

    Args:
        rows: How many records of 100 bytes; of larger ones there are a quarter.
        batch_rows: The same, of a batch.
        small_rows: How many records a small batch has; 0: there are none.
        topics: Sizes, each with a codec behind it or without, separated by commas.
    """
    for each in topics.split(","):
        kind = TopicKind.of(each)
        is_first = each == topics.split(",", maxsplit=1)[0]
        part = 1 if kind.value_bytes <= 100 else 4
        others = (ICEBERG, POSTGRES, COPY) if is_first else ()
        ways = (SPARK, SPARK_TUNED, ROWS, ARROW, *others)
        yield Case(kind, rows // part, batch_rows // part, ways)
        if is_first and small_rows:
            ways = (SPARK, SPARK_TUNED, ROWS, ARROW, ICEBERG, POSTGRES)
            yield Case(kind, small_rows * SMALL_BATCHES, small_rows, ways)


@dataclass(frozen=True)
class Reading:
    """One query that wrote a topic into a table.

    Args:
        topic: What the topic holds.
        way: By which way.
        batch_rows: How many rows a batch had.
        repeat: Which repeat it was, from 1.
        counted_rows: How many rows came after the first batch.
        triggers: In how many batches.
        trigger_s: Seconds of the triggers of these, from plan to commit.
        jvm_cpu_s: CPU seconds of Spark's JVM after the first batch.
        children_cpu_s: The same, of the processes it started: Python workers, and chmod of Hadoop.
        driver_cpu_s: The same, of the driver's Python.
        server_cpu_s: The same, of PostgreSQL.
        broker_cpu_s: The same, of the broker.
        load_average: The machine's, of one minute, before the query.
        company_cores: How many processors others used on average while these rows were written.
    """

    topic: str
    way: str
    batch_rows: int
    repeat: int
    counted_rows: int
    triggers: int
    trigger_s: float
    jvm_cpu_s: float
    children_cpu_s: float
    driver_cpu_s: float
    server_cpu_s: float
    broker_cpu_s: float
    load_average: float
    company_cores: float


@dataclass(frozen=True)
class Used:
    """The CPU seconds used until a moment, by part, as `Reading` calls them; and by the machine."""

    machine: MachineTime
    parts: Mapping[str, float]

    def since(self, earlier: Used) -> tuple[dict[str, float], float]:
        """Return the seconds of each part, and how many processors others used on average."""
        spent = {name: each - earlier.parts[name] for name, each in self.parts.items()}
        return spent, self.machine.company_cores(earlier.machine, sum(spent.values()))


@dataclass(frozen=True)
class Bench:
    """Where it is measured.

    Args:
        spark: The session.
        kafka: The broker.
        dsn: How libpq reaches PostgreSQL.
        accounts: Count what Spark, the broker and PostgreSQL use.
        company_max: How many processors others may use.
    """

    spark: SparkSession
    kafka: EmbeddedKafka
    dsn: str
    accounts: tuple[CpuAccount, CpuAccount, CpuAccount]
    company_max: float

    def used(self) -> Used:
        """Return the CPU time used until now."""
        spark, broker, server = (each.used() for each in self.accounts)
        parts = {
            "jvm_cpu_s": spark.own,
            "children_cpu_s": spark.children,
            "driver_cpu_s": time.process_time(),
            "server_cpu_s": server.total,
            "broker_cpu_s": broker.total,
        }
        return Used(MachineTime.now(), parts)

    def started(self, topic: str, case: Case, way: Way, writes: Any) -> StreamingQuery:
        """Start a query that writes a topic by a way."""
        options = {
            **way.options,
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(case.batch_rows),
        }
        if way.source == "kafka-group":
            options["kafka.group.id"] = f"tables-{uuid.uuid4().hex}"
        stream = self.spark.readStream.format(way.source).options(**options).load()
        # A query keeps the settings that its session had at its start.
        for name, value in way.settings.items():
            self.spark.conf.set(name, value)
        try:
            query: StreamingQuery = writes(stream.writeStream).trigger(availableNow=True).start()
        finally:
            for name in way.settings:
                self.spark.conf.unset(name)
        return query

    def write(self, topic: str, case: Case, name: str, repeat: int) -> Reading:
        """Write a topic into a new table, look that every record is there once, and remove it."""
        way = WAYS[name]
        load_average = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="tables-") as directory:
            target = way.target(Path(directory, f"table-{uuid.uuid4().hex}"), self.dsn)
            checkpoint = str(Path(directory, "checkpoint"))
            query = self.started(
                topic,
                case,
                way,
                lambda writer: target.write(writer).option("checkpointLocation", checkpoint),
            )
            try:
                before = self._after_first_batch(query)
                if not query.awaitTermination(DONE_S):  # type: ignore[arg-type]
                    raise RuntimeError(f"{name} has not written {topic} within {DONE_S:g} s")
                spent, company_cores = self.used().since(before)
                batches = [each for each in query.recentProgress if moved_on(each)]
                if problems := problems_of(target.counts(), self._ends(topic)):
                    raise RuntimeError(f"{name} wrote {topic} wrongly: {'; '.join(problems)}")
            finally:
                query.stop()
                target.remove()
        counted = batches[1:]
        if len(batches) != -(-case.rows // case.batch_rows) or not counted:
            raise RuntimeError(f"{name} wrote {topic} in {len(batches)} batches")
        return Reading(
            topic=str(case.kind),
            way=name,
            batch_rows=case.batch_rows,
            repeat=repeat,
            counted_rows=case.rows - case.batch_rows,
            triggers=len(counted),
            trigger_s=sum(each["durationMs"]["triggerExecution"] for each in counted) / 1000,
            load_average=load_average,
            company_cores=company_cores,
            **spent,
        )

    def write_alone(self, topic: str, case: Case, name: str, repeat: int) -> Reading:
        """Write as `write` does, again if others have used the machine meanwhile."""
        found: list[Reading] = []
        for _ in range(ATTEMPTS):
            found.append(self.write(topic, case, name, repeat))
            if found[-1].company_cores <= self.company_max:
                break
            console.print(f"again: others used {found[-1].company_cores:.2f} processors")
        return min(found, key=lambda each: each.company_cores)

    def measure(self, topic: str, case: Case, repeats: int) -> Iterator[Reading]:
        """Write a topic in each way in turn, again and again; the first time is not counted."""
        for name in case.ways:
            warm = self.write(topic, case, name, 0)
            console.print(tables_report.line(asdict(warm)), "(not counted)")
        for repeat in range(1, repeats + 1):
            for name in case.ways:
                reading = self.write_alone(topic, case, name, repeat)
                console.print(tables_report.line(asdict(reading)))
                yield reading

    def _after_first_batch(self, query: StreamingQuery) -> Used:
        deadline = time.monotonic() + DONE_S
        while not any(map(moved_on, query.recentProgress)):
            if query.awaitTermination(LOOK_S):  # type: ignore[arg-type]
                raise RuntimeError("the query ended with its first batch")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no batch was written within {DONE_S:g} s")
        return self.used()

    def _ends(self, topic: str) -> dict[int, int]:
        """Return the end of each partition of a topic."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "ends"}
        consumer = Consumer(settings)
        try:
            return {
                each: consumer.get_watermark_offsets(TopicPartition(topic, each), 60)[1]
                for each in range(PARTITIONS)
            }
        finally:
            consumer.close()


def session() -> SparkSession:
    """Return a Spark with its own Kafka source and delta-spark."""
    return new_session(
        TASKS,
        {
            "spark.driver.memory": "2g",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            # Its default of 50 costs seconds a trigger with 2 processors, and nothing with many.
            "spark.databricks.delta.snapshotPartitions": str(TASKS),
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        fetch_delta(DELTA_SPARK),
    )


def server_of(dsn: str) -> tuple[int, str]:
    """Return the process id and the version of a PostgreSQL on this machine."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT pg_read_file('postmaster.pid'), current_setting('server_version')"
        ).fetchone()
    assert row is not None
    return int(row[0].split()[0]), row[1]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8_000_000, help="records of 100 bytes")
    parser.add_argument("--batch-rows", type=int, default=2_000_000)
    parser.add_argument("--small-rows", type=int, default=200_000, help="of a small batch; 0: none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--topics", default="100,100-lz4,1000", help="bytes, or bytes-codec")
    parser.add_argument("--ways", default=";".join(WAYS), help="separated by semicolons")
    parser.add_argument("--company-max", type=float, default=0.15, help="processors")
    parser.add_argument("--json", type=Path, default=Path("build/tables.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/tables.md"))
    given = parser.parse_args()
    if given.rows <= given.batch_rows:
        parser.error("there have to be two batches: --rows has to be above --batch-rows")
    return given


def main() -> None:
    """Measure, check, keep the readings as JSON, and write the page."""
    given = arguments()
    wanted = given.ways.split(";")
    readings: list[Reading] = []
    spark = session()
    with running_postgres() as dsn, EmbeddedKafka(heap_mb=512) as kafka:
        assert kafka.pid is not None
        server_pid, server = server_of(dsn)
        measured = {
            "partitions": PARTITIONS,
            "tasks": TASKS,
            "kafka": kafka.version,
            "delta_spark": DELTA_SPARK,
            "postgresql": server,
        }
        jvm_pid = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
        accounts = CpuAccount(jvm_pid), CpuAccount(kafka.pid), CpuAccount(server_pid)
        bench = Bench(spark, kafka, dsn, accounts, given.company_max)
        for case in cases(given.rows, given.batch_rows, given.small_rows, given.topics):
            ways = tuple(each for each in case.ways if each in wanted)
            topic = f"tables-{case.kind.value_bytes}-{case.kind.codec}-{case.batch_rows}"
            generate(spark, kafka, topic, case.kind, case.rows)
            for reading in bench.measure(topic, replace(case, ways=ways), given.repeats):
                readings.append(reading)
                write_results(given.json, measured, readings)
        for account in accounts:
            account.close()
        spark.stop()
    tables_report.write_page(given.json, given.page)


if __name__ == "__main__":
    main()
