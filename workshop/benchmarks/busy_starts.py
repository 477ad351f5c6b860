"""How many starts of the README's application succeed while the machine is busy.

    python -m workshop.benchmarks.busy_starts [--programs 30] [--load 12] [--json FILE]

Spark gives the Python process of a query's source 10 s to connect back. `--load` processes keep the
processors busy while one application after another starts with `spark_groups.start`, reads what the
topic holds, and ends by SIGTERM as `await_end` ends it. Each has a group of its own. The broker
shares the processors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from spark_groups.broker.embedded import EmbeddedKafka
from workshop.benchmarks.latency import new_topic
from workshop.benchmarks.results import write_results
from workshop.parts.processes import descendants, environment, is_alive

RECORDS: Final = 100
STARTED: Final = "started"
READ: Final = "read"
END_S: Final = 120.0
BUSY: Final = "while True: pass"

APPLICATION: Final = f"""
import sys
import threading
from pyspark.sql import SparkSession
from spark_groups import await_end, listen, start

servers, topic, directory = sys.argv[1:]
spark = (
    SparkSession.builder.appName("flights")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
listen(spark)
flights = (
    spark.readStream.format("kafka-group")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.group.id", directory)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
)
query = start(
    flights.selectExpr("CAST(key AS STRING) AS tail_number", "CAST(value AS STRING) AS flight")
    .writeStream.format("parquet")
    .option("path", directory + "/rows")
    .option("checkpointLocation", directory + "/checkpoint")
)
print("{STARTED}", flush=True)


def read():
    query.processAllAvailable()
    print("{READ}", flush=True)


# Meanwhile the main thread waits for the signal.
threading.Thread(target=read, daemon=True).start()
await_end(query)
"""

console = Console(stderr=True)


@dataclass(frozen=True)
class Reading:
    """One start.

    Args:
        program: Its number, from 0.
        read: Whether the application has read the topic.
        repeats: How often its query was started again.
        started_s: From the start of its process to the return of `start`; None: it did not return.
        read_s: From the start of its process to the end of its first batches; None: not read.
        exit_code: That of the application, which SIGTERM ended after it had read.
        last_line: The last line of its log.
    """

    program: int
    read: bool
    repeats: int
    started_s: float | None
    read_s: float | None
    exit_code: int
    last_line: str


@contextlib.contextmanager
def busy(load: int) -> Iterator[None]:
    """Keep the processors busy with so many processes."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(load)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()
        for each in processes:
            each.wait(10)


def run(program: int, servers: str, topic: str, directory: Path) -> Reading:
    """Start one application, and end it when it has read the topic."""
    place = directory / f"program-{program}"
    place.mkdir()
    log = place / "log"
    began_s = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", APPLICATION, servers, topic, str(place)],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=environment(PYSPARK_PYTHON=sys.executable),
        )
    noted: dict[str, float] = {}
    try:
        assert process.stdout is not None
        # The application ends by itself if its query does not start.
        for line in process.stdout:
            noted[line.strip()] = time.monotonic() - began_s
            if READ in noted:
                break
        if READ in noted:
            process.send_signal(signal.SIGTERM)
        exit_code = process.wait(END_S)
    finally:
        _kill(process)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    repeats = sum("WARN kafka-group" in each and " follows in " in each for each in lines)
    return Reading(
        program=program,
        read=READ in noted,
        repeats=repeats,
        started_s=noted.get(STARTED),
        read_s=noted.get(READ),
        exit_code=exit_code,
        last_line=lines[-1] if lines else "",
    )


def _kill(process: subprocess.Popen[str]) -> None:
    for pid in (process.pid, *descendants(process.pid)):
        if is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def table(readings: list[Reading]) -> Table:
    """Return what became of the starts."""
    shown = Table("programs", "read", "started again", "to start s", "longest s", "to read s")
    started = sorted(each.started_s for each in readings if each.started_s is not None)
    read = sorted(each.read_s for each in readings if each.read_s is not None)
    shown.add_row(
        f"{len(readings)}",
        f"{sum(each.read for each in readings)}",
        f"{sum(each.repeats for each in readings)}",
        f"{started[len(started) // 2]:.1f}" if started else "",
        f"{started[-1]:.1f}" if started else "",
        f"{read[len(read) // 2]:.1f}" if read else "",
    )
    return shown


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=30, help="How many applications start.")
    parser.add_argument("--load", type=int, default=12, help="How many processes are busy.")
    parser.add_argument("--json", type=Path, help="Where the readings are kept.")
    given = parser.parse_args()
    readings: list[Reading] = []
    with tempfile.TemporaryDirectory() as directory, EmbeddedKafka() as kafka:
        topic = new_topic(kafka.bootstrap_servers)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(topic, b"flight %d" % number, b"N%d" % number)
        if producer.flush(60):
            raise RuntimeError("the topic could not be written")
        with busy(given.load):
            for program in range(given.programs):
                reading = run(program, kafka.bootstrap_servers, topic, Path(directory))
                console.print(f"{reading}")
                readings.append(reading)
    Console().print(table(readings))
    if given.json is not None:
        settings = {"programs": given.programs, "load": given.load}
        write_results(given.json, settings, readings)
    if not all(each.read for each in readings):
        sys.exit(1)


if __name__ == "__main__":
    main()
