"""What a trigger costs that reads few records, by how many partitions they lie in.

    python -m workshop.benchmarks.triggers [--partitions 1,100,1000,10000] [--repeats 3] \
        [--triggers 8] [--conf NAME=VALUE]

Every trigger reads one record of each partition into the `noop` sink, in two tasks where that is
up to the source. `rate-micro-batch` makes as many rows of nothing: that is what Spark itself takes.
Spark uses unix sockets, as with the jobs; CPU time is that of the JVM and of its Python processes.
A query of the rate source warms the JVM up. Then each repeat starts a query of each source in
turn; its first triggers, in which processes start and plans are compiled, are not counted. A source
that has not made its triggers within a deadline is left out from then on.

The JVM source is tuned, and may keep a thousand consumers. The next source begins once they are
closed: as long as they are open, each process that the JVM starts costs more, and Spark's two logs
start several in a trigger on a local file system. While triggers are counted, the benchmark asks
only for the number of the last batch: PySpark calls the JVM dozens of times for each progress.

The broker's folder is in memory where there is a place for that: each partition syncs files of its
own. A topic of 10,000 partitions took 6.5 minutes on two cores that twenty processes shared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.source.foreach_batch_rows import TUNING
from workshop.benchmarks.cpu import CpuAccount, CpuSeconds
from workshop.benchmarks.results import write_results
from workshop.benchmarks.session import new_session
from workshop.parts.waiting import wait_until

TASKS: Final = 2
WARM_TRIGGERS: Final = 3
WARM_UP_TRIGGERS: Final = 50
CREATED_AT_ONCE: Final = 5_000
"""A controller refuses requests that make more than 10,000 records of its log."""
CREATED_S: Final = 900.0
PATIENT: Final = {"broker.session.timeout.ms": "60000"}
"""A broker that makes thousands of partitions is late with its own heartbeats."""
RATE: Final = "rate-micro-batch"
JVM_SOURCE: Final = "JVM source, tuned"
THIS_SOURCE: Final = "kafka-group"
FORMATS: Final[Mapping[str, str]] = {
    RATE: RATE,
    JVM_SOURCE: "kafka",
    THIS_SOURCE: "kafka-group",
}
IN_MEMORY: Final = Path("/dev/shm")
CLOSED: Final[Mapping[str, str]] = {
    "spark.kafka.consumer.cache.capacity": "1024",
    "spark.kafka.consumer.cache.timeout": "10s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "100ms",
}
"""Consumers of the JVM source are closed that soon after their last use, a few in each interval."""
CLOSED_S: Final = 300.0
ESTABLISHED: Final = "01"

console = Console(stderr=True)


@dataclass(frozen=True)
class Reading:
    """One trigger.

    Args:
        source: Whose it was.
        partitions: How many partitions it read a record of.
        repeat: Which query of this source it was.
        trigger_ms: The whole trigger.
        phases: Milliseconds by Spark's names of its phases.
        jvm_cpu_ms: CPU time of the JVM for each trigger of this query.
        python_cpu_ms: The same, of its Python processes.
    """

    source: str
    partitions: int
    repeat: int
    trigger_ms: int
    phases: Mapping[str, int]
    jvm_cpu_ms: float
    python_cpu_ms: float


def generate(servers: str, partitions: int, records: int) -> str:
    """Write so many records to each partition of a new topic, and return its name."""
    name = f"triggers-{partitions}"
    client = AdminClient({"bootstrap.servers": servers})
    first = min(partitions, CREATED_AT_ONCE)
    small = {"segment.index.bytes": "4096", "segment.bytes": "1048576"}
    client.create_topics([NewTopic(name, first, 1, config=small)])[name].result(CREATED_S)
    if partitions > first:
        client.create_partitions([NewPartitions(name, partitions)])[name].result(CREATED_S)
    # Otherwise partitions that appear late in metadata are found only after five minutes.
    looks = {"topic.metadata.refresh.interval.ms": 1000}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 100, **looks})
    deadline = time.monotonic() + CREATED_S
    for partition in range(partitions):
        for number in range(records):
            while not _is_taken(producer, name, b"%08d" % number, partition):
                producer.poll(0.1)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{name}-{partition} takes no records")
    if producer.flush(CREATED_S):
        raise RuntimeError(f"{name} could not be written")
    return name


def _is_taken(producer: Producer, topic: str, value: bytes, partition: int) -> bool:
    """Produce a record, if there is room for it and the partition is known."""
    try:
        producer.produce(topic, value, partition=partition)
    except (BufferError, KafkaException):
        return False
    return True


def stream(
    spark: SparkSession, servers: str, topic: str, source: str, partitions: int
) -> DataFrame:
    """Return a stream of one row for each partition and trigger."""
    if source == RATE:
        options = {"rowsPerBatch": str(partitions), "numPartitions": str(TASKS)}
    else:
        own = (
            {"kafka.group.id": f"triggers-{uuid.uuid4().hex}"} if source == THIS_SOURCE else TUNING
        )
        options = {
            **own,
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(partitions),
        }
    return spark.readStream.format(FORMATS[source]).options(**options).load()


@dataclass(frozen=True)
class Triggers:
    """The counted triggers of a query.

    Args:
        phases: Milliseconds of each trigger, by Spark's names of its phases.
        cpu: CPU seconds for each trigger, of the JVM and of what it has started.
    """

    phases: list[Mapping[str, int]]
    cpu: CpuSeconds


def run(rows: DataFrame, triggers: int, deadline_s: float, account: CpuAccount) -> Triggers:
    """Return what so many triggers took, behind the first ones; fewer if the deadline came."""
    deadline = time.monotonic() + deadline_s
    began: tuple[int, CpuSeconds] | None = None
    due = WARM_TRIGGERS - 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            while True:
                if query.exception() is not None:
                    raise query.exception()  # type: ignore[misc]
                is_late = time.monotonic() > deadline
                if not is_late and _last_batch(query) < due:
                    time.sleep(0.02)
                    continue
                progress = [each for each in query.recentProgress if each["numInputRows"]]
                if began is None and len(progress) >= WARM_TRIGGERS:
                    began = len(progress), account.used()
                    due = progress[WARM_TRIGGERS - 1]["batchId"] + triggers
                counted = progress[WARM_TRIGGERS : WARM_TRIGGERS + triggers]
                if len(counted) == triggers or is_late:
                    number, cpu = began or (0, CpuSeconds(0.0, 0.0))
                    used, passed = account.used() - cpu, max(1, len(progress) - number)
                    each_cpu = CpuSeconds(used.own / passed, used.children / passed)
                    return Triggers([each["durationMs"] for each in counted], each_cpu)
        finally:
            query.stop()


def _last_batch(query: StreamingQuery) -> int:
    """Return the number of the last batch with a progress; -1: there is none."""
    last = query._jsq.lastProgress()
    return -1 if last is None else int(last.batchId())


def connections(servers: str) -> int:
    """Return how many TCP connections lead to a broker on this machine."""
    port = f":{int(servers.rpartition(':')[2]):04X}"
    tables = (Path("/proc/net", name).read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    rows = (line.split() for table in tables for line in table.splitlines()[1:])
    return sum(row[2].endswith(port) and row[3] == ESTABLISHED for row in rows)


def measure(
    spark: SparkSession,
    account: CpuAccount,
    servers: str,
    partitions: int,
    given: argparse.Namespace,
) -> Iterator[Reading]:
    """Run the triggers of every source in turn, again and again."""
    began_at = time.monotonic()
    topic = generate(servers, partitions, WARM_TRIGGERS + given.triggers)
    console.print(f"{partitions} partitions written in {time.monotonic() - began_at:.0f} s")
    for repeat in range(given.repeats):
        for source in list(given.sources):
            rows = stream(spark, servers, topic, source, partitions)
            before = connections(servers)
            found = run(rows, given.triggers, given.deadline_s, account)
            if source == JVM_SOURCE:
                _await_closed(servers, before)
            took = found.phases
            if len(took) < given.triggers:
                # More partitions would not be easier.
                given.sources.remove(source)
                console.print(f"{source}: {len(took)} triggers in {given.deadline_s:g} s, left out")
                continue
            console.print(partitions, source, [each["triggerExecution"] for each in took])
            for phases in took:
                yield Reading(
                    source,
                    partitions,
                    repeat,
                    phases["triggerExecution"],
                    dict(phases),
                    jvm_cpu_ms=found.cpu.own * 1000,
                    python_cpu_ms=found.cpu.children * 1000,
                )


def _await_closed(servers: str, before: int) -> None:
    wait_until(lambda: connections(servers) <= before, CLOSED_S, "consumers are closed")


def table(readings: list[Reading], partitions: list[int]) -> Table:
    """Return medians and spreads by source and partitions, and the part beyond Spark's own."""
    shown = Table(
        *("partitions", "source", "ms", "lowest", "highest", "above rate"),
        *("CPU ms, JVM + Python", "of which"),
    )
    for count in partitions:
        rate = _times(readings, RATE, count)
        for source in FORMATS:
            times = _times(readings, source, count)
            if not times:
                shown.add_row(str(count), source, "no result")
                continue
            median = statistics.median(times)
            above = f"{median - statistics.median(rate):+.0f}" if rate else ""
            shown.add_row(
                str(count),
                source,
                *(f"{each:.0f}" for each in (median, min(times), max(times))),
                above,
                _cpu(readings, source, count),
                _phases(readings, source, count),
            )
    return shown


def _times(readings: list[Reading], source: str, partitions: int) -> list[int]:
    return [
        reading.trigger_ms
        for reading in readings
        if reading.source == source and reading.partitions == partitions
    ]


def _cpu(readings: list[Reading], source: str, partitions: int) -> str:
    mine = [e for e in readings if e.source == source and e.partitions == partitions]
    jvm = statistics.median(each.jvm_cpu_ms for each in mine)
    return f"{jvm:.0f} + {statistics.median(each.python_cpu_ms for each in mine):.0f}"


def _phases(readings: list[Reading], source: str, partitions: int) -> str:
    """Return the medians of the largest phases."""
    found: dict[str, list[int]] = {}
    for reading in readings:
        if reading.source == source and reading.partitions == partitions:
            for name, took_ms in reading.phases.items():
                found.setdefault(name, []).append(took_ms)
    medians = {name: statistics.median(took) for name, took in found.items()}
    medians.pop("triggerExecution")
    largest = sorted(medians, key=lambda name: -medians[name])[:4]
    return ", ".join(f"{name} {medians[name]:.0f}" for name in largest)


def main() -> None:
    """Measure, write the readings as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--partitions", default="1,100,1000,10000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--triggers", type=int, default=8, help="counted triggers of each query")
    parser.add_argument("--sources", default=";".join(FORMATS), help="separated by semicolons")
    parser.add_argument("--deadline-s", type=float, default=60.0, help="for each query")
    parser.add_argument(
        "--conf",
        type=lambda text: text.partition("=")[::2],
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the Spark of all sources; may be repeated",
    )
    parser.add_argument("--json", type=Path, default=Path("build/triggers.json"))
    given = parser.parse_args()
    given.sources = given.sources.split(";")
    partitions = [int(each) for each in given.partitions.split(",")]
    readings: list[Reading] = []
    folder = tempfile.TemporaryDirectory(
        dir=IN_MEMORY if IN_MEMORY.is_dir() else None, ignore_cleanup_errors=True
    )
    with (
        folder as logs,
        EmbeddedKafka(
            heap_mb=1024, log_dir=Path(logs, "kafka"), server_properties=PATIENT
        ) as kafka,
    ):
        spark = new_session(
            TASKS,
            {
                "spark.driver.memory": "2g",
                **CLOSED,
                UNIX_SOCKETS: "true",
                **dict(given.conf),
            },
        )
        account = CpuAccount(int(spark.sparkContext._jvm.ProcessHandle.current().pid()))
        # The first query would also pay for the compilation of code that all queries share.
        run(stream(spark, "", "", RATE, 1), WARM_UP_TRIGGERS, given.deadline_s, account)
        for partition in partitions:
            readings += measure(spark, account, kafka.bootstrap_servers, partition, given)
        spark.stop()
    settings = {"tasks": TASKS, "tuned": dict(TUNING), "configuration": dict(given.conf)}
    write_results(given.json, settings, readings)
    Console().print(table(readings, partitions))


if __name__ == "__main__":
    main()
