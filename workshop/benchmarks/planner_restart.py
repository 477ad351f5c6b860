"""A real rolling restart of Spark applications, measured, for workshop/benchmarks/planner_check.py.

Each application is a spark-submit of `jobs/consume.py` on a broker of its own; records are written
at an even rate. The broker is polled for the state of the group; the times of reads are
taken from the checkpoints and from the rows in the sinks afterwards.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.wire.cluster import Cluster
from workshop.parts.applications import Application
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until
from workshop.parts.written import rows_written

LOOK_S = 0.2
CONF = {"spark.sql.streaming.minBatchesToRetain": "10000"}
"""Every batch stays in the checkpoint, which says when it was planned and when it was finished."""
TRIGGER_S = 5.0
"""Long enough that the applications leave a shared machine some rest."""
WAIT_S = 900.0
WRITE_S = 0.05
STEADY_S = 20.0
"""How long the applications run before the restart, so that nothing is cold any more."""
SESSION_S = 180.0
"""Longer than a restart on a busy machine."""
SESSION = {
    f"group.consumer.{name}session.timeout.ms": str(int(SESSION_S * 1000)) for name in ("", "max.")
}


@dataclass(frozen=True)
class Look:
    """The group at an instant, as the broker describes it.

    Args:
        at_s: When; seconds of the wall clock.
        epochs: The member epoch of each application that is a member; -2 is one that will be back.
        owners: Which application has each partition.
        is_stable: Whether the group is stable.
    """

    at_s: float
    epochs: dict[str, int]
    owners: dict[int, str]
    is_stable: bool


@dataclass(frozen=True)
class Read:
    """A batch that finished.

    Args:
        who: The application.
        began_at_s: When it was planned; seconds of the wall clock.
        ended_at_s: When it was in Spark's commit log.
        records: Offset and time of writing of what it read of each partition.
    """

    who: str
    began_at_s: float
    ended_at_s: float
    records: dict[int, list[tuple[int, float]]]


@dataclass(frozen=True)
class Restart:
    """The measurements.

    Args:
        members: How many applications.
        partitions: Of the topic.
        is_static: Whether they have instance ids.
        deploy: How they were restarted.
        records_per_second: Written to each partition.
        began_at_s: When the restart began; seconds of the wall clock.
        ended_at_s: When the last record was written.
        looks: The group, again and again.
        reads: All batches of all applications that finished, in the order of their ends.
        loads: The machine's load average of one minute, again and again.
    """

    members: int
    partitions: int
    is_static: bool
    deploy: str
    records_per_second: float
    began_at_s: float
    ended_at_s: float
    looks: list[Look] = field(repr=False)
    reads: list[Read] = field(repr=False)
    loads: list[float] = field(repr=False)


class Watch:
    """Looks at the group and at the machine until it is stopped."""

    def __init__(self, servers: str, group_id: str) -> None:
        self.looks: list[Look] = []
        self.loads: list[float] = []
        self._place = (servers, group_id)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        servers, group_id = self._place
        with Cluster(servers) as cluster:
            while not self._over.wait(LOOK_S):
                found = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
                owners = {
                    key.partition: member.client_id
                    for member in found.members
                    for key in member.assignment.partitions
                }
                epochs = {member.client_id: member.member_epoch for member in found.members}
                is_stable = found.group_state == "Stable"
                self.looks.append(Look(time.time(), epochs, owners, is_stable))
                self.loads.append(os.getloadavg()[0])

    def has_settled(self, names: Sequence[str]) -> bool:
        """Return whether the group is stable with these applications and all of them are there."""
        if not self.looks:
            return False
        last = self.looks[-1]
        there = {name for name, epoch in last.epochs.items() if epoch > 0}
        return last.is_stable and there == set(names)

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()


class Feed:
    """Writes to each partition at an even rate until it is stopped."""

    def __init__(
        self, servers: str, topic: str, partitions: int, records_per_second: float
    ) -> None:
        self.written = 0
        """How many records were written to each partition."""
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topic = topic
        self._partitions = partitions
        self._rate = records_per_second
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._over.wait(WRITE_S):
            due = int((time.monotonic() - began_s) * self._rate)
            for _ in range(self.written, due):
                for partition in range(self._partitions):
                    self._producer.produce(self._topic, b"row", partition=partition)
            self.written = due
            self._producer.poll(0)

    def end(self) -> None:
        """Write no more, and wait until all is written."""
        self._over.set()
        self._thread.join()
        self._producer.flush(30)


def restart(
    members: int, partitions: int, records_per_second: float, deploy: str, *, is_static: bool
) -> Restart:
    """Start applications, restart them, and measure it.

    Args:
        members: How many applications.
        partitions: Of the topic.
        records_per_second: Written to each partition.
        deploy: `rolling` or `all-at-once`.
        is_static: Whether they have instance ids.
    """
    names = [f"reader-{number}" for number in range(1, members + 1)]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="planner-")))
        broker = EmbeddedKafka(server_properties=SESSION, start_timeout_s=WAIT_S)
        stack.enter_context(broker)
        servers, topic = broker.bootstrap_servers, f"topic-{uuid.uuid4().hex[:8]}"
        create_topic(servers, topic, partitions)
        settings = {
            "source.kafka.bootstrap.servers": servers,
            "source.kafka.group.id": "planned",
            "source.subscribe": topic,
            "source.startingOffsets": "earliest",
            "query.trigger": f"{TRIGGER_S:g}s",
        }

        def start(name: str) -> Application:
            own = {"source.kafka.client.id": name}
            if is_static:
                own["source.kafka.group.instance.id"] = name
            application = Application(directory, name, settings | own, CONF)
            stack.callback(application.close)
            return application

        watch = Watch(servers, "planned")
        stack.callback(watch.end)
        feed = Feed(servers, topic, partitions, records_per_second)
        stack.callback(feed.end)
        applications = {}
        for name in names:
            # One after the other: Spark gives a Python worker ten seconds to start.
            applications[name] = start(name)
            await_rows(applications, name, 0, start)
        wait_until(lambda: watch.has_settled(names), WAIT_S, "all applications")
        began_at_s = until(time.time() + STEADY_S)
        for group in [[name] for name in names] if deploy == "rolling" else [names]:
            restart_together(applications, group, start)
            wait_until(lambda: watch.has_settled(names), WAIT_S, "a stable group")
        ended_at_s = until(time.time() + STEADY_S)
        feed.end()
        ends = dict.fromkeys(range(partitions), feed.written)
        wait_until(lambda: finished_until(applications.values()) == ends, WAIT_S, "all records")
        for each in applications.values():
            each.terminate(WAIT_S)
        watch.end()
        reads = [read for each in applications.values() for read in reads_of(each)]
    return Restart(
        members,
        partitions,
        is_static,
        deploy,
        records_per_second,
        began_at_s,
        ended_at_s,
        watch.looks,
        sorted(reads, key=lambda read: read.ended_at_s),
        watch.loads,
    )


def restart_together(
    applications: dict[str, Application], names: Sequence[str], start: Callable[[str], Application]
) -> None:
    """End some applications at once, start each as soon as it has ended, wait until all read."""
    for name in names:
        applications[name].process.send_signal(signal.SIGTERM)
    before = {}
    for name in names:
        applications[name].process.wait(WAIT_S)
        before[name] = len(applications[name].batches())
        applications[name] = start(name)
    for name in names:
        await_rows(applications, name, before[name], start)


def until(at_s: float) -> float:
    """Let the applications run until a moment, and return when that was."""
    wait_until(lambda: time.time() >= at_s, WAIT_S, "a steady state")
    return time.time()


def await_rows(
    applications: dict[str, Application],
    name: str,
    batches_before: int,
    start: Callable[[str], Application],
) -> None:
    """Wait until an application has finished a batch with rows since it had so many batches.

    One that ends by itself is started again, as by a cluster's scheduler: where a machine is busy,
    Spark does not wait for its Python workers.
    """

    def has_read() -> bool:
        if applications[name].process.poll() is not None:
            log = applications[name].log.read_text()
            sys.stderr.write(f"{name} ended and is started again:\n{log[-2000:]}\n")
            applications[name] = start(name)
        since = applications[name].batches()[batches_before:]
        return any(each.plan.ranges and each.finished_at is not None for each in since)

    wait_until(has_read, WAIT_S, f"rows of {name}")


def finished_until(applications: Iterable[Application]) -> dict[int, int]:
    """Return for each partition where the last batch ended that was finished."""
    ends: dict[int, int] = {}
    for application in applications:
        for batch in application.batches():
            for each in batch.plan.ranges if batch.finished_at is not None else ():
                ends[each.partition] = max(ends.get(each.partition, 0), each.until_offset)
    return ends


def reads_of(application: Application) -> Iterator[Read]:
    """Yield the finished batches of an application with the rows that they wrote."""
    rows = rows_written(application, ("partition", "offset", "timestamp"))
    written_at_s = {(row[0], row[1]): row[2].timestamp() for row in rows}
    assert len(written_at_s) == len(rows), "an application wrote a row twice"
    found = 0
    for batch in application.batches():
        if batch.finished_at is None:
            continue
        records = {
            offset_range.partition: [
                (offset, written_at_s[offset_range.partition, offset])
                for offset in range(offset_range.from_offset, offset_range.until_offset)
            ]
            for offset_range in batch.plan.ranges
        }
        found += sum(map(len, records.values()))
        yield Read(application.name, batch.planned_at, batch.finished_at, records)
    assert found == len(rows), "the sink has other rows than the batches"
