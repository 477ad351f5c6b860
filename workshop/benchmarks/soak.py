"""`make soak`: a query that runs for an hour, and must not grow.

    python -m workshop.benchmarks.soak [--minutes 60] [--page docs/benchmarks/load.md]

A real query reads six partitions with a trigger each second, a producer writes, and a light member
joins and leaves in turn, so that partitions move to and fro. Every few seconds it notes memory,
threads, descriptors and connections of the driver's JVM and Python, of the query's runner and of
the Python workers. `workshop.benchmarks.trends` decides. Status 0: nothing grows. 1: a series
grows. 2: the
query ended, stopped reading, or the run was too short.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyspark
from rich.console import Console

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.kafka_jars import DEFAULT_VERSION
from spark_groups.runtime.snapshot_sockets import read_snapshots
from workshop.benchmarks import pictures
from workshop.benchmarks.heartbeats import coordinator_of
from workshop.benchmarks.light_members import LightMembers
from workshop.benchmarks.load_spark import Query, notes_of, running
from workshop.benchmarks.noted import markdown_table, write_section
from workshop.benchmarks.planner_restart import Feed
from workshop.benchmarks.processes import JVM, usage_by_role
from workshop.benchmarks.trends import Kind, Sample, Trend, Verdict, after_warm_up, trend
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

GROUP: Final = "soak"
TOPIC: Final = "soak"
PARTITIONS: Final = 6
RECORDS_PER_SECOND: Final = 20.0
SAMPLE_S: Final = 3.0
TURN_S: Final = 45.0
"""The light member is in the group for this long, then outside as long."""
WAIT_S: Final = 600.0
MISSING_S: Final = 60.0
"""How many seconds before its end a run may stop reading, or noting a series, and still count."""
JVM_PARTS: Final = {
    "heap_mb": f"{JVM}: heap after a collection",
    "classes_mb": f"{JVM}: classes",
}
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "load.md"
COUNTS: Final = (
    "batches_finished",
    "offsets_finished",
    "rebalance",
    "partitions_assigned",
    "partitions_revoked",
    "memberships_lost",
    "heartbeat_failed",
    "commit_failed",
)

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Soak:
    """The measurements of a run.

    Args:
        minutes: From the first sample to the last.
        series: Samples by kind and name.
        counts: Counts of the member by the names of `group.counts.Count`.
        loads: The load average of the machine at each sample.
        status: The exit status of the driver.
        last_batch_s: When the last batch with rows ended, in seconds after the first sample.
    """

    minutes: float
    series: Mapping[Kind, Mapping[str, Sequence[Sample]]] = field(repr=False)
    counts: Mapping[str, int]
    loads: Sequence[float] = field(repr=False)
    status: int
    last_batch_s: float

    def ends_s(self) -> float:
        """Return when the reading or a series ended first, in seconds after the first sample."""
        series = (each for found in self.series.values() for each in found.values() if each)
        return min(self.last_batch_s, *(each[-1][0] for each in series))

    def trends(self) -> list[Trend]:
        """Return the trend of each series."""
        return [
            trend(name, kind, samples)
            for kind, found in self.series.items()
            for name, samples in found.items()
        ]


class Sampler:
    """Notes what an application uses, until it is over.

    Args:
        process: The driver's Python process.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.series: dict[Kind, dict[str, list[Sample]]] = {kind: {} for kind in Kind}
        self.loads: list[float] = []
        self._process = process

    def note(self, at_s: float) -> None:
        """Add a sample to each series.

        Raises:
            RuntimeError: The driver has ended.
        """
        if self._process.poll() is not None:
            raise RuntimeError(f"the driver ended with status {self._process.returncode}")
        for role, used in usage_by_role(self._process.pid).items():
            for kind, value in (
                (Kind.MEMORY, used.memory_mb),
                (Kind.THREADS, used.threads),
                (Kind.DESCRIPTORS, used.descriptors),
                (Kind.CONNECTIONS, used.connections),
            ):
                self.series[kind].setdefault(role, []).append((at_s, value))
        self.loads.append(os.getloadavg()[0])


def soak(minutes: float, directory: Path) -> Soak:
    """Run a query for so many minutes after its first batch."""
    with EmbeddedKafka(heap_mb=512, start_timeout_s=WAIT_S) as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, TOPIC, PARTITIONS)
        query = Query(str(directory), servers, GROUP, TOPIC)
        feed = Feed(servers, TOPIC, PARTITIONS, RECORDS_PER_SECOND)
        try:
            with (
                running(query) as process,
                LightMembers(coordinator_of(kafka, GROUP), connections=1) as light,
            ):
                wait_until(lambda: _has_read(query, process), WAIT_S, "a batch with rows")
                began_s = time.time()
                sampler = Sampler(process)
                for _ in _times(minutes * 60):
                    sampler.note(time.time() - began_s)
                    _take_turns(light, time.time() - began_s)
                light.leave(list(light.all))
                counts = _counts()
        finally:
            feed.end()
    for key, name in JVM_PARTS.items():
        sampler.series[Kind.MEMORY][name] = [
            (each["at_s"] - began_s, each[key])
            for each in notes_of(query, "memory")
            if each["at_s"] >= began_s
        ]
    batches = (each["at_s"] - began_s for each in notes_of(query, "batch") if each["rows"])
    last_batch_s = max(batches, default=0.0)
    return Soak(minutes, sampler.series, counts, sampler.loads, process.returncode, last_batch_s)


def _has_read(query: Query, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the driver ended:\n{query.log.read_text()[-3000:]}")
    return any(each["rows"] for each in notes_of(query, "batch"))


def _times(seconds: float) -> Iterator[None]:
    """Yield at each sample."""
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0:
        yield
        time.sleep(min(SAMPLE_S, left_s))


def _take_turns(light: LightMembers, at_s: float) -> None:
    is_wanted = int(at_s / TURN_S) % 2 == 1
    if is_wanted and not light.all:
        light.join([GROUP], TOPIC)
    elif not is_wanted and light.all:
        light.leave(list(light.all))


def _counts() -> dict[str, int]:
    """Return the member's own counts."""
    (view,) = (each for each in read_snapshots(GROUP) if "tally" in each)
    return {name: view["tally"]["counts"][name] for name in COUNTS}


def section(found: Soak, picture: str) -> Iterator[str]:
    """Yield the lines of the page."""
    loads, counts = found.loads, found.counts
    yield (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}: {found.minutes:g} minutes, Kafka"
        f" {DEFAULT_VERSION}, Spark {pyspark.__version__}, Python {platform.python_version()},"
        f" {os.cpu_count()} processors. Load average {statistics.fmean(loads):.1f}, at most"
        f" {max(loads):.1f}."
    )
    yield (
        f"{counts['batches_finished']:,} batches, {counts['offsets_finished']:,} records,"
        f" {counts['rebalance']} rebalances, {counts['partitions_assigned']} partitions assigned,"
        f" {counts['partitions_revoked']} revoked; {counts['memberships_lost']} memberships lost,"
        f" {counts['heartbeat_failed']} failed heartbeats, {counts['commit_failed']} failed"
        " commits."
    )
    yield ""
    rows = (
        (
            each.name,
            each.kind.value,
            f"{each.first:.1f}",
            f"{each.last:.1f}",
            f"{each.rise:+.1f}",
            f"{each.limit:.1f}",
            each.verdict.value,
        )
        for each in found.trends()
    )
    heads = ("series", "unit", "first quarter", "last quarter", "rise", "limit", "verdict")
    yield from markdown_table(heads, rows)
    yield f"![Growth of each series after the warm-up]({picture})"


def draw(found: Soak, path: Path) -> None:
    """Draw how each series differs from the median of its first quarter after the warm-up."""
    first = {(each.kind, each.name): each.first for each in found.trends()}
    growth = {
        kind.value: {
            name: (
                [at_s / 60 for at_s, _ in shown],
                [value - first[kind, name] for _, value in shown],
            )
            for name, samples in by_name.items()
            for shown in [after_warm_up(samples)]
        }
        for kind, by_name in found.series.items()
    }
    pictures.draw_growth(path, growth, found.minutes)


def status_of(found: Soak) -> int:
    """Return the exit status of a run."""
    verdicts = {each.verdict for each in found.trends()}
    is_cut = found.ends_s() < found.minutes * 60 - MISSING_S
    if Verdict.TOO_SHORT in verdicts or found.status or is_cut:
        return 2
    return 1 if Verdict.GROWS in verdicts else 0


def main() -> int:
    """Run, write the page and its picture, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        try:
            found = soak(given.minutes, Path(directory))
        except RuntimeError as error:
            console.print(error, markup=False)
            return 2
    picture = given.page.with_name("soak.svg")
    draw(found, picture)
    write_section(given.page, "soak", section(found, picture.name))
    for each in found.trends():
        console.print(each)
    return status_of(found)


if __name__ == "__main__":
    sys.exit(main())
