"""What an application takes: processes, memory and processors, by its number of queries (Linux).

    python -m workshop.benchmarks.sizes [--queries 1 2 4]

Applications as in the README, with a trigger each second, `listen` and the `noop` sink, one after
another: each query has a group of its own and reads all four partitions of a topic, to which a
producer writes ten records a second, so that nearly every trigger has a batch. When every query has
committed two batches, the application looks at itself for half a minute. Memory is proportional
(PSS): pages that processes share are divided between them. The broker has the same processors, and
is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyspark
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from spark_groups import listen
from spark_groups.broker.embedded import EmbeddedKafka
from workshop.benchmarks.processes import JVM, PYTHON, RUNNER, WORKERS, role_of
from workshop.parts.brokers import create_topic
from workshop.parts.processes import descendants
from workshop.parts.waiting import wait_until

TOPIC: Final = "sizes"
PARTITIONS: Final = 4
START_S: Final = 240.0
WATCHED_S: Final = 30.0
PAUSE_S: Final = 0.1
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Used:
    """What a process has.

    Args:
        role: Its role in the application.
        memory_mb: Its proportional memory, in MB of 2^20 bytes.
        processor_s: The processor time that it has used.
    """

    role: str
    memory_mb: float
    processor_s: float


@dataclass(frozen=True, slots=True)
class Size:
    """What the processes of one role take.

    Args:
        role: The role.
        processes: How many processes there are.
        memory_mb: Their proportional memory together, in MB of 2^20 bytes.
        processors: How many processors they use, on average.
    """

    role: str
    processes: int
    memory_mb: float
    processors: float


def application(servers: str, queries: int) -> list[Size]:
    """Be one application: read with so many queries, and return what that takes."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    listen(spark)
    with tempfile.TemporaryDirectory() as directory:
        started = [
            spark.readStream.format("kafka-group")
            .option("kafka.bootstrap.servers", servers)
            .option("kafka.group.id", f"sizes-{queries}-{number}")
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .trigger(processingTime="1 second")
            .option("checkpointLocation", f"{directory}/{number}")
            .start()
            for number in range(queries)
        ]
        wait_until(
            lambda: all((each.lastProgress or {"batchId": 0})["batchId"] > 1 for each in started),
            START_S,
            "two batches of every query",
        )
        before = dict(used(os.getpid()))
        time.sleep(WATCHED_S)
        found = sizes(before, dict(used(os.getpid())))
        for query in started:
            query.stop()
    spark.stop()
    return found


def used(root_pid: int) -> Iterator[tuple[int, Used]]:
    """Yield the processes of an application, by their ids."""
    for pid in (root_pid, *descendants(root_pid)):
        # It may have ended.
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            (memory_kb,) = (line.split()[1] for line in rollup.splitlines() if line[:4] == "Pss:")
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
            processor_s = sum(map(int, fields.split()[11:13])) / TICKS
            role = PYTHON if pid == root_pid else role_of(pid)
            yield pid, Used(role, int(memory_kb) / 1024, processor_s)


def sizes(before: Mapping[int, Used], after: Mapping[int, Used]) -> list[Size]:
    """Return the sizes by role, from what the processes had at two moments."""
    found = []
    for role in (PYTHON, JVM, RUNNER, WORKERS):
        own = {pid: each for pid, each in after.items() if each.role == role}
        processor_s = sum(
            each.processor_s - (before[pid].processor_s if pid in before else 0.0)
            for pid, each in own.items()
        )
        memory_mb = sum(each.memory_mb for each in own.values())
        found.append(Size(role, len(own), memory_mb, processor_s / WATCHED_S))
    return found


@contextlib.contextmanager
def writing(servers: str) -> Iterator[None]:
    """Write ten records a second to the topic."""
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": servers})

    def write() -> None:
        number = 0
        while not is_over.wait(PAUSE_S):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            producer.poll(0)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()
        producer.flush(10)


def measure(servers: str, queries: int) -> list[Size]:
    """Start an application with so many queries, and return what it takes."""
    command = [sys.executable, "-m", "workshop.benchmarks.sizes", "--servers", servers]
    done = subprocess.run(
        [*command, "--queries", str(queries)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    return [Size(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def table(taken: Mapping[int, list[Size]], version: str) -> Table:
    """Return what the applications took, by queries and role."""
    title = f"Kafka {version}, PySpark {pyspark.__version__}, Python {sys.version.split()[0]}"
    shown = Table("queries", "role", "processes", "memory MB", "processors", title=title)
    for queries, found in taken.items():
        for each in found:
            shown.add_row(
                *(str(queries), each.role, str(each.processes)),
                *(f"{each.memory_mb:,.0f}", f"{each.processors:.2f}"),
            )
        total_mb = sum(each.memory_mb for each in found)
        processors = sum(each.processors for each in found)
        processes = sum(each.processes for each in found)
        shown.add_row(
            *(str(queries), "together", str(processes)), f"{total_mb:,.0f}", f"{processors:.2f}"
        )
    return shown


def main() -> None:
    """Measure and print the table; or be one application."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--servers", help="be one application, which reads from these brokers")
    given = parser.parse_args()
    if given.servers:
        found = application(given.servers, given.queries[0])
        sys.stdout.write(json.dumps([asdict(each) for each in found]))
        return
    with EmbeddedKafka(heap_mb=256) as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, TOPIC, PARTITIONS)
        with writing(servers):
            taken = {queries: measure(servers, queries) for queries in given.queries}
        Console(width=100).print(table(taken, kafka.version))


if __name__ == "__main__":
    main()
