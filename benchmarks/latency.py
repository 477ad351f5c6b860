"""How long after it was written a record is a row in the sink, when few records come.

    python -m benchmarks.latency [--seconds 20] [--repeats 3]

Five records a second, each with the time at which it was written, go to a topic of four partitions
on a broker of this machine. Spark's own source and both readers of this one read it in turn, a
repeat after the other, by the default trigger; `foreachBatch` collects each batch and looks at the
clock, in the process that wrote. What comes in the first seconds of a query is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.figures import percentile
from benchmarks.results import write_results
from benchmarks.session import new_session
from spark_groups.lab.broker.embedded import EmbeddedKafka

PARTITIONS = 4
TASKS = 2
GAP_S = 0.2
WARM_S = 10.0
FIRST_ROW_S = 120.0

console = Console(stderr=True)


@dataclass(frozen=True)
class Source:
    """Who reads.

    Args:
        format: The name of its format.
        options: What it is given.
        unix_sockets: Whether Spark talks to its Python workers over unix sockets, not over TCP.
    """

    format: str
    options: Mapping[str, str]
    unix_sockets: bool = False


SOURCES: Mapping[str, Source] = {
    "JVM source": Source("kafka", {}),
    "librdkafka reader": Source("kafka-group", {"reader": "librdkafka"}),
    "fast reader": Source("kafka-group", {"reader": "fast"}),
    "fast reader (unix sockets)": Source("kafka-group", {"reader": "fast"}, unix_sockets=True),
}


@dataclass(frozen=True)
class Reading:
    """What came by one source while one query ran.

    Args:
        source: By whom it was read.
        repeat: Which repeat it was.
        latency_ms: From a record's creation to its row in the sink, of each record.
        trigger_ms: How long the whole triggers of these batches took.
    """

    source: str
    repeat: int
    latency_ms: list[float]
    trigger_ms: list[float]


def latency_session(*, unix_sockets: bool = False) -> SparkSession:
    """Return a session with two slots that has Spark's own source."""
    return new_session(
        TASKS,
        {
            "spark.driver.memory": "1g",
            "spark.python.unix.domain.socket.enabled": str(unix_sockets).lower(),
        },
    )


def new_topic(servers: str) -> str:
    """Make a topic, and return its name."""
    name = f"latency-{uuid.uuid4().hex}"
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


def stream(spark: SparkSession, servers: str, topic: str, source: str) -> DataFrame:
    """Return a stream of a topic from its beginning, by a source."""
    reader = SOURCES[source]
    is_group = reader.format == "kafka-group"
    group = {"kafka.group.id": f"latency-{uuid.uuid4().hex}"} if is_group else {}
    return (
        spark.readStream.format(reader.format)
        .options(**reader.options, **group)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def write_until(stopped: threading.Event, servers: str, topic: str) -> None:
    """Write a record with the time in it, again and again."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    number = 0
    while not stopped.wait(GAP_S):
        producer.produce(topic, str(time.time_ns()), partition=number % PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush(10)


def read_once(
    spark: SparkSession, servers: str, source: str, repeat: int, seconds: float
) -> Reading:
    """Read a new topic by one source while it is written to."""
    topic = new_topic(servers)
    arrivals: list[tuple[int, int]] = []
    has_rows, stopped = threading.Event(), threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        rows = batch.select("value").collect()
        now_ns = time.time_ns()
        arrivals.extend((int(row["value"]), now_ns) for row in rows)
        has_rows.set() if rows else None

    writing = threading.Thread(target=write_until, args=(stopped, servers, topic))
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            stream(spark, servers, topic, source)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        writing.start()
        try:
            if not has_rows.wait(FIRST_ROW_S):
                raise RuntimeError(f"no row by the {source} within {FIRST_ROW_S:g} s")
            time.sleep(WARM_S)
            counted_from_ns = time.time_ns()
            time.sleep(seconds)
        finally:
            stopped.set()
            writing.join()
            # A batch that is interrupted in its function makes Spark print a long error.
            query.processAllAvailable()
            batches = query.recentProgress
            query.stop()
    counted = [each for each in arrivals if each[0] >= counted_from_ns]
    return Reading(
        source,
        repeat,
        latency_ms=[(arrived_ns - written_ns) / 1e6 for written_ns, arrived_ns in counted],
        trigger_ms=[
            float(each["durationMs"]["triggerExecution"])
            for each in batches
            if each["numInputRows"]
        ][-len({arrived_ns for _, arrived_ns in counted}) :],
    )


def measure(servers: str, sources: list[str], repeats: int, seconds: float) -> Iterator[Reading]:
    """Read with every source in turn, again and again."""
    for repeat in range(repeats):
        for unix_sockets, names in groupby(sources, lambda name: SOURCES[name].unix_sockets):
            spark = latency_session(unix_sockets=unix_sockets)
            for source in names:
                reading = read_once(spark, servers, source, repeat, seconds)
                console.print(
                    f"{source}, repeat {repeat}: p50 {percentile(reading.latency_ms, 50):.0f} ms,"
                    f" p99 {percentile(reading.latency_ms, 99):.0f} ms"
                )
                yield reading
            spark.stop()


def table(readings: list[Reading]) -> Table:
    """Return the percentiles of each source, and how far its repeats' medians lie apart."""
    shown = Table("source", "records", "p50 ms", "p90 ms", "p99 ms", "p50 of repeats", "trigger ms")
    for source in dict.fromkeys(each.source for each in readings):
        mine = [each for each in readings if each.source == source]
        together = [ms for each in mine for ms in each.latency_ms]
        medians = sorted(percentile(each.latency_ms, 50) for each in mine)
        triggers = statistics.median(ms for each in mine for ms in each.trigger_ms)
        shown.add_row(
            source,
            str(len(together)),
            *(f"{percentile(together, each):.0f}" for each in (50, 90, 99)),
            f"{medians[0]:.0f} to {medians[-1]:.0f}",
            f"{triggers:.0f}",
        )
    return shown


def settings() -> Mapping[str, Any]:
    """Return the results."""
    return {
        "partitions": PARTITIONS,
        "tasks": TASKS,
        "sources": {name: asdict(each) for name, each in SOURCES.items()},
    }


def main() -> None:
    """Measure, write the readings as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sources", default="", help="separated by commas; all if it is empty")
    parser.add_argument("--json", type=Path, default=Path("build/latency.json"))
    given = parser.parse_args()
    with EmbeddedKafka(heap_mb=256) as kafka:
        sources = given.sources.split(",") if given.sources else list(SOURCES)
        readings = list(measure(kafka.bootstrap_servers, sources, given.repeats, given.seconds))
    write_results(given.json, {**settings(), "records_per_s": 1 / GAP_S}, readings)
    Console().print(table(readings))


if __name__ == "__main__":
    main()
