"""How long a new application takes to its first row, by Spark's own source and by this one.

    python -m workshop.benchmarks.cold_start [--repeats 5]

A topic holds records already. For every reading a new Python process starts a new Spark, loads the
topic and starts a query by the default trigger, and waits for its first row: counted from the start
of the process, and from the query's. Applications with this source do what the jobs do: they use
unix sockets, listen, register the source, and start Python workers meanwhile. The broker has the
same processors. The group of each reading is new, and so is its member. The first repeat warms the
system's caches up, and what the fast reader compiles once on a machine; it is not counted.

At the end one more application shows what the Python processes that Spark starts import for this
package.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from spark_groups import listen, start
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.jobs.run import start_workers
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.source.registration import register
from workshop.benchmarks.latency import (
    FIRST_ROW_S,
    PARTITIONS,
    SOURCES,
    latency_session,
    new_topic,
    settings,
    stream,
)
from workshop.benchmarks.results import write_results
from workshop.parts.python_imports import Imports, measuring_python, read_imports

RECORDS = 1_000
PEER = "JVM source"
APPLICATIONS = [name for name, each in SOURCES.items() if not each.unix_sockets]

console = Console(stderr=True)


@dataclass(frozen=True)
class Reading:
    """One application.

    Args:
        source: By whom it reads.
        repeat: Which repeat it was; 0 warms up.
        session_s: From the start of its process to its Spark session.
        first_row_s: From the start of its query to the first row.
        from_process_s: From the start of its process to the first row.
    """

    source: str
    repeat: int
    session_s: float
    first_row_s: float
    from_process_s: float


def run(source: str, servers: str, topic: str, began_at: float) -> dict[str, float]:
    """Be one application: read the first rows, and return what it took."""
    spark = latency_session(unix_sockets=source != PEER)
    has_session_at = time.time()
    if source != PEER:
        listen(spark)
        register(spark)
    came_at: list[float] = []
    has_rows = threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        if batch.select("value").collect():
            came_at.append(time.time())
            has_rows.set()

    rows = stream(spark, servers, topic, source)
    with tempfile.TemporaryDirectory() as checkpoint:
        started_at = time.time()
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query = start(writer)
        if source != PEER:
            reader = ReaderChoice(SOURCES[source].options["reader"])
            settings = RangeSettings(bootstrap_servers=(), group_id="", reader=reader)
            start_workers(spark, settings)
        if not has_rows.wait(FIRST_ROW_S):
            raise RuntimeError(f"no row by the {source} within {FIRST_ROW_S:g} s")
        query.processAllAvailable()
        query.stop()
    spark.stop()
    return {
        "session_s": has_session_at - began_at,
        "first_row_s": came_at[0] - started_at,
        "from_process_s": came_at[0] - began_at,
    }


def application(source: str, servers: str, topic: str, python: str = sys.executable) -> str:
    """Run an application to its end, and return what it printed.

    Args:
        python: The Python of the processes that Spark starts.
    """
    command = [sys.executable, "-m", "workshop.benchmarks.cold_start", "--run", source]
    arguments = [*command, "--servers", servers, "--topic", topic, "--began-at"]
    done = subprocess.run(
        [*arguments, str(time.time())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": python},
    )
    return done.stdout


def measure(servers: str, topic: str, repeats: int) -> Iterator[Reading]:
    """Start an application for every source in turn, again and again."""
    for repeat in range(repeats + 1):
        for source in APPLICATIONS:
            printed = application(source, servers, topic)
            reading = Reading(source, repeat, **json.loads(printed.splitlines()[-1]))
            console.print(f"{reading}")
            yield reading


def imports(servers: str, topic: str) -> list[Imports]:
    """Return what the processes of an application import, in the order of their start."""
    with tempfile.TemporaryDirectory() as directory:
        application("fast reader", servers, topic, str(measuring_python(Path(directory))))
        return [*read_imports(Path(directory))]


def generate(servers: str) -> str:
    """Write a topic, and return its name."""
    topic = new_topic(servers)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    if producer.flush(60):
        raise RuntimeError("the topic could not be written")
    return topic


def table(readings: list[Reading]) -> Table:
    """Return the medians of each source, and what they are more than the peer's."""
    shown = Table(
        "source", "from start s", "lowest", "highest", "+ s", "from process s", "session s"
    )
    starts = {
        source: [reading.first_row_s for reading in readings if reading.source == source]
        for source in APPLICATIONS
    }
    for source, found in starts.items():
        mine = [reading for reading in readings if reading.source == source]
        shown.add_row(
            source,
            *(f"{each:.1f}" for each in (statistics.median(found), min(found), max(found))),
            f"{statistics.median(found) - statistics.median(starts[PEER]):+.1f}",
            f"{statistics.median(each.from_process_s for each in mine):.1f}",
            f"{statistics.median(each.session_s for each in mine):.1f}",
        )
    return shown


def main() -> None:
    """Measure, write the readings as JSON, and print the table; or be one application."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("build/cold_start.json"))
    one = parser.add_argument_group("one application")
    one.add_argument("--run", choices=APPLICATIONS)
    one.add_argument("--servers")
    one.add_argument("--topic")
    one.add_argument("--began-at", type=float)
    given = parser.parse_args()
    if given.run:
        result = run(given.run, given.servers, given.topic, given.began_at)
        sys.stdout.write(json.dumps(result))
        return
    with EmbeddedKafka(heap_mb=256) as kafka:
        servers = kafka.bootstrap_servers
        topic = generate(servers)
        taken = list(measure(servers, topic, given.repeats))
        found = imports(servers, topic)
    readings = [each for each in taken if each.repeat]
    write_results(given.json, {**settings(), "imports": [asdict(each) for each in found]}, readings)
    Console().print(table(readings))
    for each in found:
        Console().print(f"{each}")


if __name__ == "__main__":
    main()
