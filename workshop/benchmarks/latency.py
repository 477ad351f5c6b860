"""How long after it was written a record is a row in the sink, when few records come.

    python -m workshop.benchmarks.latency [--seconds 20] [--repeats 3] [--async-progress]

Five records a second, each with the time at which it was written, go to a topic of four partitions
on a broker of this machine. Spark's own source and both readers of this one read it in turn, a
repeat after the other, by the default trigger; `foreachBatch` collects each batch and looks at the
clock, in the process that wrote. What comes in the first seconds of a query is not counted. The
rate source makes as many rows at the same pace: its trigger is what Spark itself takes.

With `--async-progress` each source also runs with asynchronous progress tracking. Spark allows
that only with few sinks, so these rows go to a topic, which a consumer of this process reads.
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
from itertools import groupby, product
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from workshop.benchmarks.figures import ASYNCHRONOUS, FAST_UNIX, RATE_SOURCE, percentile
from workshop.benchmarks.results import write_results
from workshop.benchmarks.session import new_session

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
    RATE_SOURCE: Source(
        RATE_SOURCE, {"rowsPerBatch": "1", "numPartitions": str(TASKS)}, unix_sockets=True
    ),
    "JVM source": Source("kafka", {}),
    "librdkafka reader": Source("kafka-group", {"reader": "librdkafka"}),
    "fast reader": Source("kafka-group", {"reader": "fast"}),
    FAST_UNIX: Source("kafka-group", {"reader": "fast"}, unix_sockets=True),
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
            UNIX_SOCKETS: str(unix_sockets).lower(),
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
    if source == RATE_SOURCE:
        return spark.readStream.format(reader.format).options(**reader.options).load()
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


class Arrivals:
    """The rows that reached the sink: when each was written, and when it came, in nanoseconds."""

    def __init__(self) -> None:
        self.times_ns: list[tuple[int, int]] = []
        self.has_rows = threading.Event()

    def take(self, batch: DataFrame, _: int) -> None:
        """Collect a batch, for `foreachBatch`."""
        self._add([int(row["value"]) for row in batch.select("value").collect()])

    def consume(self, stopped: threading.Event, servers: str, topic: str) -> None:
        """Read the topic of a sink from its beginning."""
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"latency-{uuid.uuid4().hex}",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.subscribe([topic])
        try:
            while not stopped.is_set():
                record = consumer.poll(0.1)
                if record is not None and record.error() is None:
                    self._add([int(record.value())])
        finally:
            consumer.close()

    def _add(self, written_ns: list[int]) -> None:
        now_ns = time.time_ns()
        self.times_ns.extend((each, now_ns) for each in written_ns)
        if written_ns:
            self.has_rows.set()


def start_query(
    rows: DataFrame, arrivals: Arrivals, checkpoint: str, servers: str, sink_topic: str
) -> StreamingQuery:
    """Start a query; it writes to a topic, with asynchronous progress tracking, if one is given."""
    writer = rows.selectExpr("cast(value as string) as value").writeStream
    if sink_topic:
        writer = (
            writer.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", sink_topic)
            .option("asyncProgressTrackingEnabled", "true")
        )
    else:
        writer = writer.foreachBatch(arrivals.take)
    if "topic" not in rows.columns:
        # The rate source has rows at any time.
        writer = writer.trigger(processingTime=f"{round(GAP_S * 1000)} milliseconds")
    return writer.option("checkpointLocation", checkpoint).start()


def read_once(
    spark: SparkSession,
    servers: str,
    source: str,
    repeat: int,
    seconds: float,
    *,
    is_asynchronous: bool = False,
) -> Reading:
    """Read a new topic by one source while it is written to."""
    topic = new_topic(servers)
    sink_topic = new_topic(servers) if is_asynchronous else ""
    arrivals = Arrivals()
    stopped = threading.Event()
    threads = [threading.Thread(target=write_until, args=(stopped, servers, topic))]
    if sink_topic:
        reading = (stopped, servers, sink_topic)
        threads.append(threading.Thread(target=arrivals.consume, args=reading))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        rows = stream(spark, servers, topic, source)
        query = start_query(rows, arrivals, checkpoint, servers, sink_topic)
        for thread in threads:
            thread.start()
        try:
            if not arrivals.has_rows.wait(FIRST_ROW_S):
                raise RuntimeError(f"no row by the {source} within {FIRST_ROW_S:g} s")
            time.sleep(WARM_S)
            counted_from_ns = time.time_ns()
            counted_after_batch = (query.lastProgress or {"batchId": 0})["batchId"]
            time.sleep(seconds)
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
            if source != RATE_SOURCE and not sink_topic:
                # A batch that is interrupted in its function makes Spark print a long error.
                query.processAllAvailable()
            batches = query.recentProgress
            query.stop()
    counted = [] if source == RATE_SOURCE else arrivals.times_ns
    return Reading(
        f"{source}{ASYNCHRONOUS if is_asynchronous else ''}",
        repeat,
        latency_ms=[
            (arrived_ns - written_ns) / 1e6
            for written_ns, arrived_ns in counted
            if written_ns >= counted_from_ns
        ],
        trigger_ms=[
            float(batch["durationMs"]["triggerExecution"])
            for batch in batches
            if batch["numInputRows"] and batch["batchId"] > counted_after_batch
        ],
    )


def measure(servers: str, sources: list[str], given: argparse.Namespace) -> Iterator[Reading]:
    """Read with every source in turn, again and again."""
    ways = (False, True) if given.async_progress else (False,)
    for repeat in range(given.repeats):
        for unix_sockets, names in groupby(sources, lambda name: SOURCES[name].unix_sockets):
            spark = latency_session(unix_sockets=unix_sockets)
            for source, is_asynchronous in product(names, ways):
                reading = read_once(
                    spark, servers, source, repeat, given.seconds, is_asynchronous=is_asynchronous
                )
                console.print(
                    f"{reading.source}, repeat {repeat}:"
                    f" p50 {percentile_text(reading.latency_ms, 50)} ms,"
                    f" p99 {percentile_text(reading.latency_ms, 99)} ms,"
                    f" trigger {percentile_text(reading.trigger_ms, 50)} ms"
                )
                yield reading
            spark.stop()


def percentile_text(found_ms: list[float], percent: float) -> str:
    """Return a percentile as text; a dash if there is nothing."""
    return f"{percentile(found_ms, percent):.0f}" if found_ms else "-"


def table(readings: list[Reading]) -> Table:
    """Return the percentiles of each source, and how far its repeats' medians lie apart."""
    shown = Table("source", "records", "p50 ms", "p90 ms", "p99 ms", "p50 of repeats", "trigger ms")
    for source in dict.fromkeys(reading.source for reading in readings):
        mine = [reading for reading in readings if reading.source == source]
        together = [ms for each in mine for ms in each.latency_ms]
        medians = sorted(percentile(each.latency_ms, 50) for each in mine if each.latency_ms)
        triggers = statistics.median(ms for each in mine for ms in each.trigger_ms)
        shown.add_row(
            source,
            str(len(together)),
            *(percentile_text(together, each) for each in (50, 90, 99)),
            f"{medians[0]:.0f} to {medians[-1]:.0f}" if medians else "-",
            f"{triggers:.0f}",
        )
    return shown


def settings() -> Mapping[str, Any]:
    """Return the results."""
    return {
        "partitions": PARTITIONS,
        "tasks": TASKS,
        "sources": {name: asdict(source) for name, source in SOURCES.items()},
    }


def main() -> None:
    """Measure, write the readings as JSON, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sources", default="", help="separated by commas; all if it is empty")
    parser.add_argument(
        "--async-progress", action="store_true", help="also with asynchronous progress tracking"
    )
    parser.add_argument("--json", type=Path, default=Path("build/latency.json"))
    given = parser.parse_args()
    with EmbeddedKafka(heap_mb=256) as kafka:
        sources = given.sources.split(",") if given.sources else list(SOURCES)
        readings = list(measure(kafka.bootstrap_servers, sources, given))
    write_results(given.json, {**settings(), "records_per_s": 1 / GAP_S}, readings)
    Console().print(table(readings))


if __name__ == "__main__":
    main()
