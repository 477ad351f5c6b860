"""The fastest options of Spark's own Kafka source on this machine, by a search.

    python -m workshop.benchmarks.best_peer [--batch-rows 1250000] [--tasks 2,4] \
        [--topics 100,1000,100-lz4]

Every combination of `FETCHED` and `POLLED`, in sessions of each number of tasks, reads each topic
once. The fastest `FINALISTS` of each topic, the options that this package tunes by itself and
Spark's defaults then read it in turn, again and again. `workshop.benchmarks.throughput` measures
the winners beside this source.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from spark_groups.broker.embedded import EmbeddedKafka
from workshop.benchmarks.cpu import CpuAccount
from workshop.benchmarks.readers import JVM_DEFAULT, JVM_TUNED, READERS, Reader
from workshop.benchmarks.results import write_results
from workshop.benchmarks.session import new_session
from workshop.benchmarks.throughput import Bench, Reading, Topic, TopicKind, console, generate

OPTIONS: Final = (
    "kafka.max.partition.fetch.bytes",
    "kafka.max.poll.records",
    "kafka.receive.buffer.bytes",
)
FETCHED: Final = ("1048576", "4194304", "8388608")
POLLED: Final = (("500", "65536"), ("10000", "4194304"), ("100000", "-1"))
"""Records of a poll and the receive buffer: Kafka's defaults, two large ones, the system's."""
FINALISTS: Final = 4


@dataclass(frozen=True, slots=True)
class PeerReading:
    """A reading of a topic with some options.

    Args:
        topic: What the topic holds.
        tasks: How many tasks run at a time.
        options: Values of `OPTIONS`, in their order.
        repeat: 0 in the search, from 1 among the finalists.
        rows_per_s: Rows a second of `addBatch`.
        cpu_s: CPU seconds of Spark for a million rows.
        company_cores: How many processors others used.
    """

    topic: str
    tasks: int
    options: tuple[str, ...]
    repeat: int
    rows_per_s: float
    cpu_s: float
    company_cores: float


def combinations() -> dict[tuple[str, ...], Reader]:
    """Return a reader for each combination of the choices."""
    return {
        values: Reader("kafka", dict(zip(OPTIONS, values, strict=True)))
        for values in ((size, *rest) for size in FETCHED for rest in POLLED)
    }


def fixed() -> set[tuple[str, ...]]:
    """Return the combinations that are measured to the end: the default and the tuned one."""
    return {
        tuple(
            READERS[name].options.get(key, default)
            for key, default in zip(OPTIONS, (FETCHED[0], *POLLED[0]), strict=True)
        )
        for name in (JVM_DEFAULT, JVM_TUNED)
    }


def finalists(found: Iterable[PeerReading]) -> dict[str, set[tuple[int, tuple[str, ...]]]]:
    """Return the tasks and options that the search leaves of each topic."""
    by_topic: dict[str, list[PeerReading]] = {}
    for each in found:
        by_topic.setdefault(each.topic, []).append(each)
    kept: dict[str, set[tuple[int, tuple[str, ...]]]] = {}
    for topic, readings in by_topic.items():
        fastest = sorted(readings, key=lambda each: -each.rows_per_s)[:FINALISTS]
        fewest = min(each.tasks for each in readings)
        kept[topic] = {(each.tasks, each.options) for each in fastest}
        kept[topic] |= {(fewest, options) for options in fixed()}
    return kept


def _of(reading: Reading, tasks: int, options: tuple[str, ...]) -> PeerReading:
    return PeerReading(
        reading.topic,
        tasks,
        options,
        reading.repeat,
        reading.counted_rows / reading.add_batch_s,
        (reading.jvm_cpu_s + reading.python_cpu_s) / reading.counted_rows * 1e6,
        reading.company_cores,
    )


@dataclass(frozen=True, slots=True)
class Search:
    """Where it is searched.

    Args:
        kafka: The broker.
        topics: The topics that are read, by what they hold.
    """

    kafka: EmbeddedKafka
    topics: Mapping[str, Topic]

    def readings(
        self, tasks: int, asked: Mapping[str, Iterable[tuple[str, ...]]], repeat: int
    ) -> Iterator[PeerReading]:
        """Yield readings in one session.

        Args:
            tasks: How many run at a time.
            asked: The options to read each kind of topic with.
            repeat: 0 in the search.
        """
        spark = new_session(tasks, {"spark.driver.memory": "6g"})
        assert self.kafka.pid is not None
        jvm_pid = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
        accounts = CpuAccount(jvm_pid), CpuAccount(self.kafka.pid)
        readers = {" ".join(values): reader for values, reader in combinations().items()}
        bench = Bench(spark, self.kafka, readers, accounts, tasks)
        for topic, every in asked.items():
            if not (options := sorted(every)):
                continue
            for values in options[:2]:
                bench.read(self.topics[topic], " ".join(values), repeat)  # compiles the JVM's code
            for values in options:
                reading = bench.read_alone(self.topics[topic], " ".join(values), repeat)
                yield _of(reading, tasks, values)
        for account in accounts:
            account.close()
        spark.stop()


def table(found: Iterable[PeerReading]) -> Table:
    """Return the finalists of each topic, the fastest first."""
    shown = Table("topic", "tasks", *OPTIONS, "M rows/s", "lowest", "highest", "CPU s/M rows")
    groups: dict[tuple[str, int, tuple[str, ...]], list[PeerReading]] = {}
    for each in found:
        if each.repeat:
            groups.setdefault((each.topic, each.tasks, each.options), []).append(each)
    medians = {
        key: statistics.median(each.rows_per_s for each in mine) for key, mine in groups.items()
    }
    for key in sorted(groups, key=lambda key: (key[0], -medians[key])):
        topic, tasks, options = key
        rates = [each.rows_per_s / 1e6 for each in groups[key]]
        shown.add_row(
            topic,
            str(tasks),
            *options,
            *(f"{each:.2f}" for each in (medians[key] / 1e6, min(rates), max(rates))),
            f"{statistics.median(each.cpu_s for each in groups[key]):.2f}",
        )
    return shown


def main() -> None:
    """Search, write the readings as JSON, and print the finalists."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batch-rows", type=int, default=1_250_000)
    parser.add_argument("--repeats", type=int, default=5, help="of the finalists")
    parser.add_argument("--tasks", default="2,4")
    parser.add_argument("--topics", default="100,1000,100-lz4")
    parser.add_argument("--json", type=Path, default=Path("build/best_peer.json"))
    given = parser.parse_args()
    tasks = [int(each) for each in given.tasks.split(",")]
    kinds = [TopicKind.of(each) for each in given.topics.split(",")]
    topics = {
        str(kind): Topic(f"peer-{kind.value_bytes}-{kind.codec}", kind, kind.batch_rows(rows))
        for kind in kinds
        for rows in [given.batch_rows]
    }
    found: list[PeerReading] = []
    with EmbeddedKafka(heap_mb=512) as kafka:
        spark = new_session(tasks[0], {"spark.driver.memory": "6g"})
        for topic in topics.values():
            generate(spark, kafka, topic.name, topic.kind, topic.rows)
        spark.stop()
        search = Search(kafka, topics)
        every = {topic: [*combinations()] for topic in topics}
        for count in tasks:
            for reading in search.readings(count, every, 0):
                console.print(f"{reading}")
                found.append(reading)
        left = finalists(found)
        for repeat, count in itertools.product(range(1, given.repeats + 1), tasks):
            asked = {
                topic: [options for its_tasks, options in pairs if its_tasks == count]
                for topic, pairs in left.items()
            }
            if any(asked.values()):
                found += search.readings(count, asked, repeat)
        measured = {"options": OPTIONS, "kafka": kafka.version}
    write_results(given.json, measured, found)
    Console().print(table(found))


if __name__ == "__main__":
    main()
