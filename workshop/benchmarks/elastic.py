"""`make elastic`: applications are added and removed as the lag of their group grows and falls.

This needs no Kubernetes: one Kafka, one producer whose rate steps from a tenth to `--rate` and
back, and Spark applications that run the command of conf/kubernetes/deployment.yaml, each with a
limit of records a second, into one fenced Delta table. A scaler reads the lag in time as
`spark-groups lag` does and follows `workshop.benchmarks.elastic_rule`. In the end the table is
compared with
the topic.

Exit status: 0 if no row is lost or doubled, the lag came back within its target and every
application ended cleanly; 1 if any of these failed; 2 if the run could not be made; 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pyspark
from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console

from demo.applications import ApplicationError
from demo.signals import interrupt_on_termination
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.kafka_jars import DEFAULT_VERSION
from spark_groups.errors import SparkGroupsError
from spark_groups.observation.frames import GroupWatch
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.views import GroupView
from workshop.benchmarks import pictures
from workshop.benchmarks.elastic_report import (
    Elastic,
    Pauses,
    Sample,
    Verdict,
    figures,
    rate_between,
    section,
)
from workshop.benchmarks.elastic_rule import Recommendation, Rule, decide, recommend
from workshop.benchmarks.noted import DOCS, write_section
from workshop.parts.brokers import create_topic
from workshop.parts.elastic_reader import Reader

GROUP: Final = "elastic"
TOPIC: Final = "elastic"
TRIGGER_S: Final = 2.0
PAUSE_S: Final = 3 * TRIGGER_S
"""A longer pause of a partition counts."""
LOW_SHARE: Final = 0.1
CALM_S: Final = 30.0
"""For how long the low rate lasts before the step, once the group reads."""
RATE_WINDOW_S: Final = 15.0
"""The window of the rate that the scaler sees."""
SMOOTH_S: Final = 10.0
"""The window of the rates in the picture: several triggers."""
LOOK_S: Final = 1.0
WRITE_S: Final = 0.02
VALUE_BYTES: Final = 100
JOIN_S: Final = 240.0
RECOVER_S: Final = 420.0
"""For how much longer than asked the step may last until the lag is within its target."""
FALL_S: Final = 420.0
DRAIN_S: Final = 240.0
FLUSH_S: Final = 120.0
PAGE: Final = DOCS / "elastic.md"

console = Console(stderr=True, highlight=False, soft_wrap=True)


class ElasticError(Exception):
    """The run cannot be made: a part of it failed, or took too long."""


class Load:
    """Writes to all partitions in turn, at a rate that may change, until it is stopped.

    Args:
        servers: The broker.
        partitions: Of the topic.
        rate: Records a second.
    """

    def __init__(self, servers: str, partitions: int, rate: float) -> None:
        self.rate = rate
        self.acknowledged = 0
        self.problems: list[str] = []
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="elastic-load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write no more, and wait until everything is acknowledged."""
        self._ended.set()
        self._thread.join(FLUSH_S)
        if left := self._producer.flush(FLUSH_S):
            self.problems.append(f"{left} records were not acknowledged within {FLUSH_S:g} s")

    def _work(self) -> None:
        number, due, before_s = 0, 0.0, time.monotonic()
        while not self._ended.wait(WRITE_S):
            now_s = time.monotonic()
            # After a pause of this process, records that are late are not written all at once.
            due += min(now_s - before_s, 1.0) * self.rate
            before_s = now_s
            while due >= 1 and not self._ended.is_set():
                value = str(number).zfill(VALUE_BYTES)
                try:
                    self._producer.produce(
                        TOPIC,
                        value,
                        partition=number % self._partitions,
                        on_delivery=self._acknowledged,
                    )
                except BufferError:
                    self._producer.poll(WRITE_S)
                    continue
                number, due = number + 1, due - 1
            self._producer.poll(0)

    def _acknowledged(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif not self.problems:
            self.problems.append(f"a record was refused: {error}")


class Scaler:
    """Looks at the group, and starts and ends applications as the rule decides.

    Args:
        rule: The rule.
        watch: Reads the group.
        make: Returns a new application, by its name.
    """

    def __init__(self, rule: Rule, watch: GroupWatch, make: Callable[[str], Reader]) -> None:
        self.samples: list[Sample] = []
        self.loads: list[float] = []
        self.pauses: Pauses | None = None
        """The pauses of partitions; None until the first application keeps up."""
        self.made: list[Reader] = []
        self.is_scaling = False
        self._rule = rule
        self._watch = watch
        self._make = make
        self._running: list[Reader] = []
        self._ending: list[Future[int | None]] = []
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="elastic-end")
        self._recommendations: deque[Recommendation] = deque()
        self._began_s = time.monotonic()
        self._changed_s = 0.0
        self._look_at_s = 0.0

    @property
    def now_s(self) -> float:
        """Seconds since the scaler began."""
        return time.monotonic() - self._began_s

    @property
    def exit_codes(self) -> list[int | None]:
        """The exit codes of the applications that were to end; waits for them."""
        return [each.result() for each in self._ending]

    def add(self) -> None:
        """Start an application."""
        application = self._make(f"elastic-{len(self.made) + 1}")
        application.started_s = self.now_s
        self.made.append(application)
        self._running.append(application)
        application.start()
        self._changed_s = self.now_s

    def remove(self) -> None:
        """End the newest application with SIGTERM; it ends in the background."""
        self._ending.append(self._pool.submit(self._running.pop().terminate))
        self._changed_s = self.now_s

    def look(self) -> Sample | None:
        """Read the group, note a sample and scale; None: the group cannot be read now.

        Raises:
            ApplicationError: An application ended by itself.
        """
        time.sleep(max(0.0, self._look_at_s - self.now_s))
        self._look_at_s = self.now_s + LOOK_S
        for each in self._running:
            each.check()
        for ended in self._ending:
            if ended.done():
                ended.result()
        frame = self._watch.look()
        if frame.view is None or frame.stale is not None:
            return None
        sample = self._sampled(frame.view)
        self.samples.append(sample)
        self.loads.append(os.getloadavg()[0])
        if self.is_scaling:
            self._scale(sample)
        return sample

    def _sampled(self, view: GroupView) -> Sample:
        at_s = self.now_s
        known = {
            each.partition: (each.committed_offset or 0, each.log_end_offset)
            for each in view.partitions
            if each.log_end_offset is not None
        }
        if self.pauses is not None:
            self.pauses.look(at_s, known)
        members = {member.client_id for member in view.members if member.current}
        for reader in self._running:
            if reader.joined_s is None and reader.name in members:
                reader.joined_s = at_s
                console.print(f"[{at_s:5.0f} s] {reader.name} joined")
        return Sample(
            at_s=at_s,
            written=sum(end for _, end in known.values()),
            committed=sum(committed for committed, _ in known.values()),
            lag_s=view.totals.seconds_behind,
            applications=len(self._running),
            members=view.totals.members,
            unowned=view.totals.unassigned_partitions,
        )

    def _scale(self, sample: Sample) -> None:
        recommendations = self._recommendations
        recommended = recommend(
            self._rule,
            lag_s=sample.lag_s,
            records_per_s=rate_between(self.samples, sample.at_s - RATE_WINDOW_S, sample.at_s),
            applications=sample.applications,
        )
        recommendations.append(Recommendation(sample.at_s, recommended))
        while recommendations[0].at_s < sample.at_s - 2 * self._rule.down_window_s:
            recommendations.popleft()
        count = len(self._running)
        wanted = decide(self._rule, recommendations, count, self._changed_s)
        if wanted < count and any(each.joined_s is None for each in self._running):
            # An application that starts cannot end cleanly yet.
            return
        if wanted != count:
            lag = "unknown" if sample.lag_s is None else f"{sample.lag_s:.1f} s"
            console.print(
                f"[{sample.at_s:5.0f} s] lag in time {lag}: applications {count} -> {wanted}"
            )
        for _ in range(wanted - count):
            self.add()
        for _ in range(count - wanted):
            self.remove()

    def end(self) -> None:
        """End all applications with SIGTERM, and wait for them."""
        while self._running:
            self.remove()
        self._pool.shutdown(wait=True)

    def kill(self) -> None:
        """Kill the applications that run."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for each in self.made:
            each.stop()


def run(given: argparse.Namespace, command: str, directory: Path) -> Elastic:
    """Make a run.

    Raises:
        ElasticError: A phase took too long.
        ApplicationError: An application ended by itself, or did not end.
    """
    low = given.rate * LOW_SHARE
    rule = Rule(
        target_s=given.target_lag,
        max_applications=given.max_applications,
        per_application_per_s=given.records_per_application,
    )
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedKafka(heap_mb=512, start_timeout_s=JOIN_S))
        servers = kafka.bootstrap_servers
        create_topic(servers, TOPIC, given.partitions)
        watch = stack.enter_context(closing(GroupWatch(GroupObserver(servers), GROUP)))

        def make(name: str) -> Reader:
            return Reader(name, directory, _arguments(servers, given.records_per_application))

        scaler = Scaler(rule, watch, make)
        stack.callback(scaler.kill)
        load = Load(servers, given.partitions, low)
        stack.callback(load.stop)
        step_s, fall_s, problems = _play(scaler, load, given, low)
        load.stop()
        drained_s = _drain(scaler, load)
        scaler.end()
        last = scaler.samples[-1]
        rows, distinct = _rows(directory / "output")
        assert scaler.pauses is not None
        return Elastic(
            command=command,
            low_per_s=low,
            high_per_s=given.rate,
            partitions=given.partitions,
            target_s=given.target_lag,
            step_s=step_s,
            fall_s=fall_s,
            samples=tuple(scaler.samples),
            pauses=scaler.pauses,
            verdict=Verdict(
                acknowledged=load.acknowledged,
                in_topic=last.written,
                rows=rows,
                distinct=distinct,
            ),
            drained_s=drained_s,
            exit_codes=tuple(scaler.exit_codes),
            starts_s=tuple(
                each.joined_s - each.started_s for each in scaler.made if each.joined_s is not None
            ),
            loads=tuple(scaler.loads),
            problems=(*load.problems, *problems),
        )


def _play(
    scaler: Scaler, load: Load, given: argparse.Namespace, low: float
) -> tuple[float, float, list[str]]:
    """Play the load; return when the rate rose and fell, and what did not happen in time."""
    scaler.add()
    console.print(f"{low:,.0f} records a second; the first application starts")

    def is_read() -> bool:
        last = scaler.samples[-1]
        return not last.unowned and last.committed > 0 and _within(last, given.target_lag)

    if not _until(scaler, is_read, JOIN_S):
        raise ElasticError(f"the first application did not read within {JOIN_S:g} s")
    scaler.pauses = Pauses(PAUSE_S)
    scaler.is_scaling = True
    calm_ends_s = scaler.now_s + min(CALM_S, given.seconds / 4)
    _until(scaler, lambda: scaler.now_s >= calm_ends_s, CALM_S + LOOK_S)
    problems = []
    load.rate, step_s = given.rate, scaler.now_s
    console.print(f"[{step_s:5.0f} s] {given.rate:,.0f} records a second")

    def has_recovered() -> bool:
        recent = [e for e in scaler.samples if e.at_s >= scaler.now_s - CALM_S]
        is_over = scaler.now_s >= step_s + given.seconds
        return is_over and all(_within(each, given.target_lag) for each in recent)

    if not _until(scaler, has_recovered, given.seconds + RECOVER_S):
        problems.append(
            f"the lag did not stay below {given.target_lag:g} s within"
            f" {given.seconds + RECOVER_S:g} s after the rate rose"
        )
    load.rate, fall_s = low, scaler.now_s
    console.print(f"[{fall_s:5.0f} s] {low:,.0f} records a second")
    if not _until(scaler, lambda: scaler.samples[-1].applications == 1, FALL_S):
        problems.append(f"more than one application {FALL_S:g} s after the rate fell")
    scaler.is_scaling = False
    quiet_s = scaler.now_s + min(CALM_S, given.seconds / 4)
    _until(scaler, lambda: scaler.now_s >= quiet_s, CALM_S + LOOK_S)
    return step_s, fall_s, problems


def _drain(scaler: Scaler, load: Load) -> float | None:
    """Wait until everything is committed; return how long that took, None if it was not."""
    began_s = scaler.now_s

    def is_drained() -> bool:
        last = scaler.samples[-1]
        return last.at_s > began_s and last.committed == last.written == load.acknowledged

    return scaler.now_s - began_s if _until(scaler, is_drained, DRAIN_S) else None


def _within(sample: Sample, target_s: float) -> bool:
    return sample.lag_s is not None and sample.lag_s <= target_s


def _until(scaler: Scaler, condition: Callable[[], bool], timeout_s: float) -> bool:
    """Look at the group until a condition holds; False: it did not in time."""
    deadline_s = scaler.now_s + timeout_s
    while scaler.now_s < deadline_s:
        if scaler.look() is not None and condition():
            return True
    return False


def _arguments(servers: str, per_application_per_s: float) -> Iterator[str]:
    yield from ("--bootstrap-servers", servers, "--group", GROUP, "--topics", TOPIC)
    yield from ("--trigger", f"{TRIGGER_S:g}s")
    for key, value in (
        ("source.maxOffsetsPerTrigger", f"{per_application_per_s * TRIGGER_S:.0f}"),
        ("source.emit", "ranges"),
        ("query.selectExpr", "[]"),
        ("sink.format", "delta"),
    ):
        yield from ("--set", f"{key}={value}")


def _rows(path: Path) -> tuple[int, int]:
    """Return the rows of the table, and how many different offsets they have."""
    import deltalake  # noqa: PLC0415

    dataset = deltalake.DeltaTable(path).to_pyarrow_dataset()
    # With threads, a program that ends soon after reading is often aborted (delta-rs issue 2184).
    table = dataset.to_table(columns=["partition", "offset"], use_threads=False)
    found = table.group_by("partition").aggregate([("offset", "count_distinct")])
    return table.num_rows, sum(found.column("offset_count_distinct").to_pylist())


def draw(found: Elastic, path: Path) -> None:
    """Draw rate, lag in time and applications over time."""
    samples = [sample for sample in found.samples if sample.lag_s is not None]
    at_s = [sample.at_s for sample in samples]
    rates = [
        (
            sample.at_s,
            rate_between(samples, sample.at_s - SMOOTH_S, sample.at_s),
            rate_between(samples, sample.at_s - SMOOTH_S, sample.at_s, lambda it: it.committed),
        )
        for sample in samples[1:]
    ]
    pictures.draw_steps(
        path,
        {
            "records a second": {
                "written": ([at for at, _, _ in rates], [rate or 0.0 for _, rate, _ in rates]),
                "committed": ([at for at, _, _ in rates], [rate or 0.0 for _, _, rate in rates]),
            },
            "lag in time, s": {"lag": (at_s, [sample.lag_s or 0.0 for sample in samples])},
            "applications": {
                "started": (at_s, [float(sample.applications) for sample in samples]),
                "members": (at_s, [float(sample.members) for sample in samples]),
            },
        },
        limits={"lag in time, s": found.target_s},
        marks={"rate rises": found.step_s, "rate falls": found.fall_s},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.benchmarks.elastic",
        description=__doc__.split("\n", 2)[2],
        epilog="example: python -m workshop.benchmarks.elastic --seconds 60 --rate 3000",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=240.0,
        help="how long the high rate lasts, at least; default 240",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=30_000.0,
        help="records a second of the high rate; default 30000",
    )
    parser.add_argument(
        "--records-per-application",
        type=float,
        help="most records a second that one application reads; default 0.4 * rate",
    )
    parser.add_argument(
        "--target-lag",
        type=float,
        default=10.0,
        help="lag in time above which applications are added, in seconds; default 10",
    )
    parser.add_argument(
        "--max-applications",
        type=int,
        default=4,
        help="most applications at the same time; default 4",
    )
    parser.add_argument(
        "--partitions", type=int, default=12, help="partitions of the topic; default 12"
    )
    parser.add_argument("--record", action="store_true", help=f"write {PAGE.name} and its picture")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Make a run, show its figures, and return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    given.records_per_application = given.records_per_application or 0.4 * given.rate
    if not (given.seconds > 0 and given.target_lag > 0 and given.rate >= 10):
        parser.error("--seconds and --target-lag are above 0, --rate is at least 10")
    if not 1 <= given.max_applications <= given.partitions:
        parser.error("--max-applications is 1 to --partitions")
    if given.max_applications * given.records_per_application <= given.rate:
        parser.error("--max-applications * --records-per-application must be above --rate")
    shown = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "-m", "workshop.benchmarks.elastic", *shown])
    interrupt_on_termination()
    with tempfile.TemporaryDirectory(prefix="elastic-", ignore_cleanup_errors=True) as directory:
        try:
            found = run(given, command, Path(directory))
        except KeyboardInterrupt:
            console.print("stopped; nothing is left running")
            return 130
        except (ElasticError, ApplicationError, SparkGroupsError) as error:
            console.print(f"the run could not be made: {error}", markup=False)
            return 2
    for name, value in figures(found):
        console.print(f"{name}: {value}", markup=False)
    for problem in found.problems:
        console.print(problem, markup=False)
    if given.record:
        record(found)
    return 0 if found.is_good else 1


def record(found: Elastic) -> None:
    """Write the page and its picture."""
    picture = PAGE.with_suffix(".svg")
    circumstances = (
        f"Kafka {DEFAULT_VERSION}, Spark {pyspark.__version__}, Python"
        f" {platform.python_version()}, {os.cpu_count()} processors, which Kafka, the producer and"
        " all applications share."
    )
    draw(found, picture)
    write_section(PAGE, "elastic", section(found, circumstances, picture.name))


if __name__ == "__main__":
    sys.exit(main())
