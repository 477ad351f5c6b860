"""Faults of Spark itself, on a standalone cluster: each record is read, and written once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed
from tests.spark.standalone import HOSTS, StandaloneCluster, executor_conf
from tests.spark.tables.delta_setup import offsets
from workshop.parts.applications import kill_everything, start_module
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import descendants, is_alive
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="the second loopback address is Linux's"
    ),
]

RUN_S = 400
PARTITIONS = 4
EACH = 90
LIMIT = 120
SINKS = {"table of records": "records", "table of ranges": "ranges", "seen.json": "records"}
"""Each sink, with the stream's `emit`."""


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task, when it has read its first records.

    Args:
        executor: The process that starts the Python workers of its executor.
        number: The number of the attempt.
        partition: The partition of its first record.
        offset: The offset of its first record.
    """

    executor: int
    number: int
    partition: int
    offset: int


@dataclass(frozen=True)
class Held:
    """An application that has begun its first batch, in which task 0 waits.

    Args:
        process: The driver.
        directory: Where its log, its signs and its sink lie.
        cluster: Where executors run.
    """

    process: subprocess.Popen[bytes]
    directory: Path
    cluster: StandaloneCluster

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def attempts(self) -> list[Attempt]:
        lines = (self.directory / "attempts").read_text().splitlines()
        return [Attempt(*json.loads(each)) for each in lines]

    def first(self) -> Attempt:
        """Return the attempt that is held."""
        return Attempt(*json.loads((self.directory / "held").read_text()))

    def executor(self) -> tuple[int, int]:
        """Return the executor of the held task, and the process that starts its workers."""
        daemon = self.first().executor
        return parent(daemon), daemon

    def go(self) -> None:
        (self.directory / "go").touch()

    def await_sign(self, name: str) -> None:
        sign = self.directory / name
        wait_until(lambda: sign.exists() or self.process.poll() is not None, RUN_S, name)
        assert sign.exists(), self.log[-3000:]

    def await_logged(self, text: str) -> None:
        """Wait until an executor of the application has logged something."""
        wait_until(lambda: text in self.cluster.executor_logs(), RUN_S, text)

    def finish(self) -> None:
        assert self.process.wait(RUN_S) == 0, self.log[-3000:]


def parent(pid: int) -> int:
    """Return the parent of a process."""
    asked = ["ps", "-o", "ppid=", "-p", str(pid)]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of killed processes")


def python_workers(held: Held) -> None:
    """Kill the Python workers of the held task: the one that reads, and the one that waits."""
    _, daemon = held.executor()
    kill(*descendants(daemon))
    held.await_sign("again")


def executor(held: Held) -> None:
    """Kill the executor of the held task, with all its processes."""
    pid, _ = held.executor()
    kill(pid, *descendants(pid))
    held.await_sign("again")


def slow_task(held: Held) -> None:
    """Wait for a second attempt beside the held one, which then ends as well."""
    held.await_sign("again")


def decommission(held: Held) -> None:
    """Decommission the executor of the held task, which may end the task first."""
    pid, _ = held.executor()
    os.kill(pid, signal.SIGPWR)
    held.await_logged("Decommission")


def forced_decommission(held: Held) -> None:
    """Decommission the executor of the held task, which is killed in the task."""
    pid, _ = held.executor()
    os.kill(pid, signal.SIGPWR)
    held.await_sign("again")


DECOMMISSIONED = {"spark.decommission.enabled": "true"}
FAULTS: dict[str, tuple[Callable[[Held], None], dict[str, str]]] = {
    "Python workers die": (python_workers, {}),
    "executor dies": (executor, {}),
    "speculation": (
        slow_task,
        {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "1s",
        },
    ),
    "decommissioned": (decommission, DECOMMISSIONED),
    "decommissioned, killed": (
        forced_decommission,
        {**DECOMMISSIONED, "spark.executor.decommission.forceKillTimeout": "2s"},
    ),
}
"""Each fault, and Spark's configuration for it."""


@dataclass(frozen=True)
class Story:
    """A group that reads a topic on a cluster."""

    servers: str
    topic: str
    group_id: str
    directory: Path
    cluster: StandaloneCluster
    sink: str
    conf: dict[str, str] = field(default_factory=dict)

    def start(self) -> Held:
        create_topic(self.servers, self.topic, PARTITIONS)
        rows = (Row(b"%d" % each, partition=each % PARTITIONS) for each in range(PARTITIONS * EACH))
        produce(self.servers, self.topic, rows)
        given = {
            "master": self.cluster.master,
            "conf": {**executor_conf(), **self.conf},
            "options": {
                "kafka.bootstrap.servers": self.servers,
                "kafka.group.id": self.group_id,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(LIMIT),
                "minPartitions": str(PARTITIONS),
                "emit": SINKS[self.sink],
            },
            "checkpoint": str(self.directory / "checkpoint"),
            "signs": str(self.directory),
            "sink": str(self.directory / self.sink),
        }
        module = "tests.spark.cluster_application"
        log = self.directory / "log"
        process = start_module(module, given, log, SPARK_LOCAL_IP=HOSTS[0])
        return Held(process, self.directory, self.cluster)

    def check(self) -> None:
        """Check that each record is in the sink once, and that all offsets are committed."""
        for partition in range(PARTITIONS):
            assert self._offsets(partition) == list(range(EACH))
        ends = {(self.topic, partition): EACH for partition in range(PARTITIONS)}
        assert committed(self.servers, self.group_id) == ends

    def _offsets(self, partition: int) -> list[int]:
        place = self.directory / self.sink
        if place.suffix != ".json":
            return offsets(place, partition)
        rows = map(json.loads, place.read_text().splitlines())
        return sorted(offset for index, offset in rows if index == partition)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def short_slice(fault: str, sink: str) -> bool:
    return (fault, sink) == ("Python workers die", "table of ranges")


@pytest.mark.parametrize(
    ("fault", "sink"),
    [
        pytest.param(
            *each, marks=() if short_slice(*each) else pytest.mark.long, id=" - ".join(each)
        )
        for each in ((fault, sink) for fault in FAULTS for sink in SINKS)
    ],
)
def test_each_record_is_written_once(  # noqa: PLR0917
    cluster: StandaloneCluster,
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    fault: str,
    sink: str,
) -> None:
    """Also into a function of foreachBatch without a fence: Spark gives it one attempt's rows."""
    happens, conf = FAULTS[fault]
    servers, directory = kafka.bootstrap_servers, tmp_path
    story = Story(servers, topic_name, group_id, directory, cluster, sink, conf)
    held = story.start()
    try:
        held.await_sign("held")
        happens(held)
        held.go()
        held.finish()
    finally:
        if held.process.poll() is None:
            kill_everything(held.process)
    story.check()
    attempts, first = held.attempts(), held.first()
    by_range = Counter((each.partition, each.offset) for each in attempts)
    if fault == "decommissioned":
        assert set(by_range.values()) == {1}, "the task ended before its executor"
    else:
        assert by_range[first.partition, first.offset] == 2, "both attempts read the same range"
    if fault not in {"speculation", "Python workers die"}:
        assert {each.offset for each in attempts if each.executor == first.executor} == {0}
    wait_until(lambda: not cluster.executors(), RUN_S, "the end of the executors")
