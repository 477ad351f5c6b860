r"""The cost of writing a topic to a table, each record once, compared with delta-spark.

    python -m workshop.benchmarks.tables [--rows 8000000] [--repeats 5] [--topics 100,100-lz4,1000]
    python -m workshop.benchmarks.tables --rows 400000 --batch-rows 100000 --small-rows 20000 \
        --repeats 1 \
        --topics 100 --company-max 2 --page build/tables/tables.md

Each topic is generated once: 8 partitions of records with a key of 8 bytes. In each repeat, one
query for each way writes the topic to a new table, in batches. The first batch, in which processes
start, is not counted. A repeat before the first one warms up. After each query the benchmark counts
the rows of the table, and fails unless it has each record once.
CPU seconds are those of Spark's JVM, of the processes it started (Python workers), of the driver's
Python and of PostgreSQL; those of the broker are kept apart. A reading is repeated if other
processes used more than --company-max processors meanwhile; the quietest of three is kept.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from spark_groups.broker.embedded import EmbeddedKafka
from workshop.benchmarks import tables_report
from workshop.benchmarks.cpu import CpuAccount, MachineTime
from workshop.benchmarks.results import write_results
from workshop.benchmarks.session import new_session
from workshop.benchmarks.table_ways import (
    ARROW,
    COPY,
    DELTA_BY,
    ICEBERG,
    ICEBERG_BY,
    POSTGRES,
    ROWS,
    SPARK,
    SPARK_TUNED,
    WAYS,
    Way,
)
from workshop.benchmarks.throughput import DONE_S, PARTITIONS, TASKS, TopicKind, generate, moved_on
from workshop.parts.connector import DELTA_SPARK, fetch_delta
from workshop.parts.postgres import running_postgres

ATTEMPTS = 3
SMALL_BATCHES = 11
LOOK_S = 0.02
"""The interval of checks for the end of the first batch, in seconds."""

console = Console(stderr=True)


@dataclass(frozen=True)
class Case:
    """A topic, and the ways to write it.

    Args:
        kind: The kind of its records, as reports show it.
        rows: The number of its records.
        batch_rows: The number of records of a batch.
        ways: Names of the ways that write it.
    """

    kind: TopicKind | str
    rows: int
    batch_rows: int
    ways: tuple[str, ...]


def cases(rows: int, batch_rows: int, small_rows: int, topics: str) -> Iterator[Case]:
    """Yield the cases to measure.

    Args:
        rows: The number of records of 100 bytes; a topic of larger ones has a quarter of it.
        batch_rows: The number of records of a batch; larger ones as for `rows`.
        small_rows: The number of records of a small batch; 0: there are no small batches.
        topics: Sizes in bytes, separated by commas, each optionally followed by `-codec`.
    """
    for each in topics.split(","):
        kind = TopicKind.of(each)
        is_first = each == topics.split(",", maxsplit=1)[0]
        part = 1 if kind.value_bytes <= 100 else 4
        others = (ICEBERG, DELTA_BY, ICEBERG_BY, POSTGRES, COPY) if is_first else ()
        ways = (SPARK, SPARK_TUNED, ROWS, ARROW, *others)
        yield Case(kind, rows // part, batch_rows // part, ways)
        if is_first and small_rows:
            ways = (SPARK, SPARK_TUNED, ROWS, ARROW, ICEBERG, POSTGRES)
            yield Case(kind, small_rows * SMALL_BATCHES, small_rows, ways)


@dataclass(frozen=True)
class Reading:
    """One query that wrote a topic to a table.

    Args:
        topic: The kind of its records.
        way: The name of the way.
        batch_rows: The number of rows of a batch.
        repeat: The number of the repeat, from 1.
        counted_rows: The number of rows after the first batch.
        triggers: The number of batches with these rows.
        trigger_s: Seconds of their triggers, from plan to commit.
        jvm_cpu_s: CPU seconds of Spark's JVM after the first batch.
        children_cpu_s: CPU seconds of its child processes: Python workers, and Hadoop's processes.
        driver_cpu_s: CPU seconds of the driver's Python.
        server_cpu_s: CPU seconds of PostgreSQL.
        broker_cpu_s: CPU seconds of the broker.
        load_average: The load average of the machine, of one minute, before the query.
        company_cores: The processors that other processes used meanwhile, on average.
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
    """The CPU seconds used until now by each part, with the names of `Reading`, and by others."""

    machine: MachineTime
    parts: Mapping[str, float]

    def since(self, earlier: Used) -> tuple[dict[str, float], float]:
        """Return the seconds of each part, and the processors that others used on average."""
        spent = {name: part - earlier.parts[name] for name, part in self.parts.items()}
        return spent, self.machine.company_cores(earlier.machine, sum(spent.values()))


@dataclass(frozen=True)
class Bench:
    """The processes of the benchmark.

    Args:
        spark: The session.
        kafka: The broker.
        dsn: The connection string of PostgreSQL.
        accounts: The CPU accounts of Spark, the broker and PostgreSQL.
        company_max: The processors that other processes may use on average.
        ways: The ways to write, by name.
    """

    spark: SparkSession
    kafka: EmbeddedKafka
    dsn: str
    accounts: tuple[CpuAccount, CpuAccount, CpuAccount]
    company_max: float
    ways: Mapping[str, Way] = field(default_factory=lambda: WAYS)

    def used(self) -> Used:
        """Return the CPU time used until now."""
        spark, broker, server = (account.used() for account in self.accounts)
        parts = {
            "jvm_cpu_s": spark.own,
            "children_cpu_s": spark.children,
            "driver_cpu_s": time.process_time(),
            "server_cpu_s": server.total,
            "broker_cpu_s": broker.total,
        }
        return Used(MachineTime.now(), parts)

    def started(self, topic: str, case: Case, way: Way, writes: Any) -> StreamingQuery:
        """Start a query that writes a topic in one way."""
        options = {
            **way.options,
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(case.batch_rows),
        }
        if way.source == "kafka-group":
            options["kafka.group.id"] = f"tables-{uuid.uuid4().hex}"
        stream = way.decoded(self.spark.readStream.format(way.source).options(**options).load())
        # A query keeps the settings of its session from the start of the query.
        for name, value in way.settings.items():
            self.spark.conf.set(name, value)
        try:
            query: StreamingQuery = writes(stream.writeStream).trigger(availableNow=True).start()
        finally:
            for name in way.settings:
                self.spark.conf.unset(name)
        return query

    def write(self, topic: str, case: Case, name: str, repeat: int) -> Reading:
        """Write a topic to a new table, check that it has each record once, and remove it."""
        way = self.ways[name]
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
                await_first_batch(query)
                before = self.used()
                if not query.awaitTermination(DONE_S):  # type: ignore[arg-type]
                    raise RuntimeError(f"{name} has not written {topic} within {DONE_S:g} s")
                spent, company_cores = self.used().since(before)
                batches = [each for each in query.recentProgress if moved_on(each)]
                if problems := target.problems(self._ends(topic), query):
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
        """Call `write`, and again if other processes have used the machine meanwhile."""
        found: list[Reading] = []
        for _ in range(ATTEMPTS):
            found.append(self.write(topic, case, name, repeat))
            if found[-1].company_cores <= self.company_max:
                break
            console.print(f"again: others used {found[-1].company_cores:.2f} processors")
        return min(found, key=lambda each: each.company_cores)

    def measure(self, topic: str, case: Case, repeats: int) -> Iterator[Reading]:
        """Write a topic in each way, in each repeat; the repeat for warm-up is not counted."""
        for name in case.ways:
            warm = self.write(topic, case, name, 0)
            console.print(tables_report.line(asdict(warm)), "(not counted)")
        for repeat in range(1, repeats + 1):
            for name in case.ways:
                reading = self.write_alone(topic, case, name, repeat)
                console.print(tables_report.line(asdict(reading)))
                yield reading

    def _ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition of a topic."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "ends"}
        consumer = Consumer(settings)
        try:
            return {
                each: consumer.get_watermark_offsets(TopicPartition(topic, each), 60)[1]
                for each in range(PARTITIONS)
            }
        finally:
            consumer.close()


def await_first_batch(query: StreamingQuery) -> None:
    """Wait until a query has written its first batch, and not its last one."""
    deadline = time.monotonic() + DONE_S
    while not any(map(moved_on, query.recentProgress)):
        if query.awaitTermination(LOOK_S):  # type: ignore[arg-type]
            raise RuntimeError("the query ended with its first batch")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no batch was written within {DONE_S:g} s")


def session(jars: Iterable[Path] = ()) -> SparkSession:
    """Return a Spark session with Spark's own Kafka source, delta-spark, and further jars."""
    return new_session(
        TASKS,
        {
            "spark.driver.memory": "2g",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            # Its default of 50 costs seconds a trigger with 2 processors, and nothing with many.
            "spark.databricks.delta.snapshotPartitions": str(TASKS),
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        [*fetch_delta(DELTA_SPARK), *jars],
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
    """Measure, check, write the readings as JSON, and write the page."""
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
            assert isinstance(case.kind, TopicKind)
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
