"""`make demo`: a real topic is handed over between two Spark applications, and the result checked.

A single-node Kafka is started, and flights from New York are loaded into it: a third of them at
once, the others while they are read. One Spark application reads them as a member of a consumer
group; a second one joins and gets half of the partitions; the first is killed, and the second
takes over.
The exit status is 1 if a row is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from demo.applications import Application, ApplicationError
from demo.check import Verdict, compare, describe_group, parse_description, written_rows
from demo.flights import FLIGHTS, read_flights
from demo.load import LoadError, create_topic, load
from demo.picture import animated
from demo.signals import interrupt_on_termination
from demo.watch import DemoTimeoutError, Seen, Watch
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import SparkGroupsError

TOPIC = "flights"
GROUP_ID = "flight-readers"
PARTITIONS = 12
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
BROKER_PROPERTIES = {
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
TRIGGER_S = 1
ROWS = 36_000
ALONE_S = 18
"""How long one application alone would take for all rows: time enough to see a hand-over."""
BATCHES_SHARED = 3
"""How many batches each application writes before one is killed."""
START_TIMEOUT_S = 300.0
STEP_TIMEOUT_S = 180.0
FINISH_TIMEOUT_S = 240.0
_FAILURES = (SparkGroupsError, ApplicationError, DemoTimeoutError, LoadError)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the exit status is 0 only if nothing is missing."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.split("\n", 2)[2])
    parser.add_argument(
        "--rows", type=int, default=ROWS, help=f"flights, up to {FLIGHTS}; default {ROWS}"
    )
    parser.add_argument(
        "--seconds",
        type=int,
        default=ALONE_S,
        help=f"how long one application alone would take for them; default {ALONE_S}",
    )
    parser.add_argument("--keep", type=Path, help="a directory for outputs and logs, kept")
    parser.add_argument("--picture", type=Path, help="write the hand-over as an animated SVG")
    chosen = parser.parse_args(arguments)
    if not PARTITIONS <= chosen.rows <= FLIGHTS or chosen.seconds < TRIGGER_S:
        parser.error(f"--rows is {PARTITIONS} to {FLIGHTS}, --seconds at least {TRIGGER_S}")
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    interrupt_on_termination()
    began_s = time.monotonic()
    try:
        with _directory(chosen.keep) as directory:
            verdict = _run(console, directory, chosen.rows, chosen.seconds, chosen.picture)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return 130
    except _FAILURES as error:
        console.print(f"\nthe demo failed: {error}", markup=False, style="red")
        return 1
    console.print(f"the demo took {time.monotonic() - began_s:.0f} s")
    if not verdict.is_good:
        return 1
    for line in what_was_seen(verdict):
        console.print(line, markup=False)
    return 0


def what_was_seen(verdict: Verdict) -> Sequence[str]:
    """Return the last lines of a demo that went well: what happened, and what to try next."""
    return (
        f"\nSeen: a group of one Spark application grew to two, one was killed, and the other took"
        f" over; all {verdict.produced:,} rows are there.",
        "Look closer: .venv/bin/python -m demo.run --keep build/demo keeps the output and the logs"
        " of both applications.",
        "Try next: docs/tutorial/first_steps.md does this with a topic of your own, in ten minutes;"
        " README.md shows the query.",
    )


@contextlib.contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="spark-groups-demo-") as path:
            yield Path(path)
    else:
        if kept.exists() and any(kept.iterdir()):
            raise DemoTimeoutError(f"{kept} is not empty: name a new directory")
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.absolute()


def _run(
    console: Console, directory: Path, rows: int, seconds: int, picture: Path | None
) -> Verdict:
    console.print("starting Apache Kafka: one node, and these settings of its own")
    with EmbeddedKafka(server_properties=BROKER_PROPERTIES) as kafka:
        console.print(f"  version {kafka.version}, {kafka.bootstrap_servers}, pid {kafka.pid}")
        for name, value in BROKER_PROPERTIES.items():
            console.print(f"  {name}={value}")
        console.print("  (shorter than Kafka's defaults: a killed member is noticed sooner)")
        create_topic(kafka.bootstrap_servers, TOPIC, PARTITIONS)
        flights = read_flights(rows)
        first_rows = rows // 3
        produced = load(
            kafka.bootstrap_servers, TOPIC, islice(flights, first_rows), first_rows, console
        )
        console.print(f"loaded {produced:,} flights, by tail number, into {PARTITIONS} partitions")

        def load_the_rest() -> int:
            return load(kafka.bootstrap_servers, TOPIC, flights, rows - first_rows)

        per_batch = max(PARTITIONS, rows * TRIGGER_S // seconds)
        applications = [
            Application(name, directory, _job_arguments(kafka, per_batch))
            for name in ("flights-1", "flights-2")
        ]
        try:
            produced += _after_input(console, kafka, applications, load_the_rest, picture)
        finally:
            for application in applications:
                application.stop()
        return _check(console, kafka, applications, rows, produced)


def _job_arguments(kafka: EmbeddedKafka, per_batch: int) -> list[str]:
    return [
        *("--bootstrap-servers", kafka.bootstrap_servers, "--group", GROUP_ID, "--topics", TOPIC),
        *("--trigger", f"{TRIGGER_S}s", "--set", f"source.maxOffsetsPerTrigger={per_batch}"),
        # The fast reader would be compiled first, which takes longer than the demo reads.
        *("--set", "source.reader=librdkafka"),
    ]


def _after_input(
    console: Console,
    kafka: EmbeddedKafka,
    applications: list[Application],
    load_the_rest: Callable[[], int],
    picture: Path | None,
) -> int:
    """Show a join, a kill and a take-over; return how many flights were loaded meanwhile."""
    first, second = applications
    with Watch(console, kafka.bootstrap_servers, GROUP_ID, applications, PARTITIONS) as watch:
        watch.announce(f"spark-submit jobs/consume.py --name {first.name} --group {GROUP_ID}")
        first.start()
        # The second one's Spark starts while the first one's query does, and joins after it.
        watch.until(
            lambda seen: first.has_spark or bool(seen.owned(first.name)),
            f"{first.name} has a SparkContext",
            running=[first],
            timeout_s=START_TIMEOUT_S,
        )
        watch.announce(f"spark-submit jobs/consume.py --name {second.name}: the same group")
        second.start()
        watch.until(
            lambda seen: seen.is_settled and all(seen.owned(each.name) for each in applications),
            f"{first.name} and {second.name} own their shares",
            running=applications,
            timeout_s=START_TIMEOUT_S,
        )
        # However slow the machine is, there is something left for both to read.
        loaded = load_the_rest()
        watch.say(f"the other {loaded:,} flights arrive while both read")
        _both_read(watch, first, second)
        watch.announce(
            f"SIGKILL for {first.name}, JVM, driver and runner: it cannot leave the group"
        )
        killed = first.kill()
        watch.say(f"killed: {', '.join(map(str, killed))}")
        watch.until(
            lambda seen: len(seen.owned(second.name)) == PARTITIONS,
            f"{second.name} owns everything",
            running=[second],
            timeout_s=SESSION_TIMEOUT_MS / 1000 + STEP_TIMEOUT_S,
        )
        watch.announce(f"{second.name} has taken over and reads the rest")
        watch.until(
            lambda seen: seen.lag == 0,
            "everything is committed",
            running=[second],
            timeout_s=FINISH_TIMEOUT_S,
        )
        watch.announce(f"SIGTERM for {second.name}: batch finished, offsets committed, group left")
        exit_code = second.terminate()
        watch.until(
            lambda seen: not seen.members,
            "the group is empty",
            running=[],
            timeout_s=SESSION_TIMEOUT_MS / 1000,
        )
        watch.say(f"{second.name} ended with exit code {exit_code}; the group is empty")
        if picture is not None:
            names = [each.name for each in applications]
            picture.write_text(animated(watch.looks, watch.captions, names), encoding="utf-8")
        return loaded


def _both_read(watch: Watch, first: Application, second: Application) -> None:
    """Wait until both have written some batches since both own partitions."""
    written: dict[str, set[int]] = {first.name: set(), second.name: set()}

    def both_go_on(seen: Seen) -> bool:
        for name, counts in written.items():
            counts.add(seen.rows[name])
        return all(len(counts) > BATCHES_SHARED for counts in written.values())

    watch.until(both_go_on, "both write rows", running=[first, second], timeout_s=STEP_TIMEOUT_S)


def _check(
    console: Console,
    kafka: EmbeddedKafka,
    applications: list[Application],
    rows: int,
    produced: int,
) -> Verdict:
    description = describe_group(kafka, GROUP_ID)
    console.print("\nKafka's own ConsumerGroupCommand --describe:", description.rstrip(), sep="\n")
    committed = parse_description(description, TOPIC)
    outputs = [application.output for application in applications]
    verdict = compare(read_flights(rows), written_rows(outputs), committed, produced)
    table = Table(title="the check against the input", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for application in applications:
        own = sum(1 for _ in written_rows([application.output]))
        table.add_row(f"rows written by {application.name}", f"{own:,}")
    offsets = sum(offset for offset, _ in committed.values())
    for name, value in (
        ("flights produced", f"{verdict.produced:,}"),
        ("distinct rows in the output", f"{verdict.distinct:,}"),
        ("missing", f"{verdict.missing:,}"),
        ("not as they were loaded", f"{verdict.foreign:,}"),
        ("written twice (at least once: a kill may repeat a batch)", f"{verdict.twice:,}"),
        ("sum of committed offsets", f"{offsets:,}"),
        ("result", "nothing is missing" if verdict.is_good else "NOT GOOD"),
    ):
        table.add_row(name, value)
    console.print(table)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
