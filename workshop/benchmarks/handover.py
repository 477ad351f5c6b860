"""How long no member reads a partition when members join, stop, restart or die.

    python -m workshop.benchmarks.handover [--rounds 3] [--rows join,rolling,static,restart]
                                  [--kinds spark,consumer,classic]

Each row has a topic of 6 partitions, one record for each of them every 50 ms, and a group of its
own. The broker's settings are Kafka's defaults. All members are processes of their own. Members of
confluent-kafka hardly use the processors: in each round, their rows run at the same time. A run
writes its readings as JSON, and the page.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import confluent_kafka
import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.wire.cluster import Cluster
from workshop.benchmarks.cpu import CpuAccount, CpuAccountError, MachineTime
from workshop.benchmarks.handover_report import KINDS, PAGE, SPARK, Figure, write_page
from workshop.benchmarks.results import write_results
from workshop.parts.connector import fetch_connector
from workshop.parts.handover_diary import Event, pauses, read_diary

OWN_SOURCE = "own source"
COMMANDS = {
    SPARK: ("workshop.benchmarks.handover_spark", "kafka-group"),
    OWN_SOURCE: ("workshop.benchmarks.handover_spark", "kafka"),
    "consumer": ("workshop.benchmarks.handover_consumer", "consumer"),
    "classic": ("workshop.benchmarks.handover_consumer", "classic"),
}
PARTITIONS = frozenset(range(6))
PRODUCE_EVERY_S = 0.05
STEADY_S = 5.0
RECENT_S = 2.0
AFTER_S = 1.0
"""How long after the last hand-over pauses are still looked for."""
WAIT_S = 150.0
POLL_S = 0.03

Result = TypeVar("Result")

console = Console(stderr=True)


@dataclass(frozen=True)
class Reading:
    """One figure of one round.

    Args:
        round: The round, from 1.
        kind: Which members.
        figure: The name of the figure.
        worst_s: Of the worst partition, in seconds.
        median_s: Of the median partition, in seconds.
    """

    round: int
    kind: str
    figure: str
    worst_s: float
    median_s: float


@dataclass(frozen=True)
class Round:
    """How busy the machine was.

    Args:
        number: The round, from 1.
        took_s: How long it took.
        load_average: Of one minute, before the round.
        company_cores: How many processors other processes used on average; None if that cannot be
            counted here.
        failed: The rows that were not measured.
    """

    number: int
    took_s: float
    load_average: float
    company_cores: float | None
    failed: tuple[str, ...]


class Member:
    """A member's process and its diary.

    Args:
        kind: Which member.
        arguments: Brokers, group and topic.
        instance_id: Its instance id, or "".
    """

    def __init__(self, kind: str, arguments: tuple[str, ...], instance_id: str = "") -> None:
        self.place = Path(tempfile.mkdtemp(prefix="handover-"))
        module, further = COMMANDS[kind]
        command = [sys.executable, "-m", module, str(self.place), *arguments]
        self._command = [*command, instance_id, further]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.place / "log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )

    def events(self, what: str = "rows", since_s: float = 0.0) -> list[Event]:
        """Return the events of one name, from a moment on."""
        if self.process.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
            raise RuntimeError("a member ended by itself")
        found = read_diary(self.place)
        return [each for each in found if each.what == what and each.at_s >= since_s]

    def log(self) -> str:
        """Return the end of its log."""
        return (self.place / "log").read_text(errors="replace")[-3000:]

    def recent(self) -> frozenset[int]:
        """Return the partitions that it has read in the last two seconds."""
        rows = self.events(since_s=time.time() - RECENT_S)
        return frozenset(partition for row in rows for partition in row.partitions)

    def signal(self, number: signal.Signals) -> float:
        """Send a signal: SIGKILL to all its processes, any other to the first; return when."""
        at_s = time.time()
        if number is signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return at_s

    def restart(self) -> None:
        """Start it again in the same place, once it has ended."""
        self.process.wait(WAIT_S)
        self.process = self._start()

    def close(self) -> None:
        """End its remaining processes."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(30)
        shutil.rmtree(self.place, ignore_errors=True)


class Group:
    """Members of one kind in a group of their own, and a topic with steady records.

    Args:
        kind: Which members.
        servers: The brokers.
    """

    def __init__(self, kind: str, servers: str) -> None:
        self.kind = kind
        self.group_id = f"group-{uuid.uuid4().hex[:8]}"
        self._servers = servers
        self._topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []
        self._cluster = Cluster(servers)
        admin = AdminClient({"bootstrap.servers": servers})
        new = NewTopic(self._topic, num_partitions=len(PARTITIONS), replication_factor=1)
        admin.create_topics([new])[self._topic].result(30)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Produce records; at the end, end all members."""
        try:
            with producing(self._servers, self._topic):
                yield
        except RuntimeError:
            for member in self.members:
                console.print(member.log(), markup=False, soft_wrap=True)
            raise
        finally:
            for member in self.members:
                member.close()
            self._cluster.close()

    def start(self, instance_id: str = "", kind: str = "") -> Member:
        """Start a member."""
        arguments = (self._servers, self.group_id, self._topic)
        self.members.append(Member(kind or self.kind, arguments, instance_id))
        return self.members[-1]

    def size(self) -> int:
        """Return how many members a group of the consumer protocol has."""
        described = self._cluster.describe_group(DescribeGroupRequest(group_id=self.group_id))
        return len(described.members)

    def await_size(self, wanted: int, member: Member, what: str) -> float:
        """Return when the group had so many members.

        Of a classic group: when this member noted it in its diary.
        """
        if self.kind == "classic":
            return wait(lambda: member.events(what), what)[0].at_s
        wait(lambda: self.size() == wanted, f"a group of {wanted}")
        return time.time()

    def shares(self, members: Collection[Member]) -> list[frozenset[int]]:
        """Wait until each partition is read by one of the members, and return their shares."""

        def divided() -> list[frozenset[int]] | None:
            found = [member.recent() for member in members]
            is_disjoint = sum(map(len, found)) == len(PARTITIONS)
            return found if is_disjoint and all(found) and union(found) == PARTITIONS else None

        return wait(divided, f"{len(members)} shares of {self.kind}")

    def pauses(self, partitions: Iterable[int], from_s: float, until_s: float) -> dict[int, float]:
        """Return how long no member read each partition at most."""
        wait(lambda: time.time() > until_s, "the end of the time looked at")
        events = [event for member in self.members for event in read_diary(member.place)]
        return pauses(events, partitions, from_s, until_s)

    def steady(self) -> dict[int, float]:
        """Let members run for a while; return the longest pause of each partition meanwhile."""
        began_s = time.time()
        return self.pauses(PARTITIONS, began_s, began_s + STEADY_S)


Figures = dict[Figure, Mapping[int, float]]
"""Seconds by partition."""


def join_and_stop(group: Group) -> Figures:
    """Let a cold application join another one, and stop it by SIGTERM."""
    owner = group.start()
    group.shares([owner])
    group.steady()
    cadence = group.steady()
    began_s = time.time()
    joiner = group.start()
    joined_s = group.await_size(2, joiner, "joining")
    kept, taken = group.shares([owner, joiner])
    during = group.pauses(PARTITIONS, began_s, time.time() + AFTER_S)
    first_rows = {each: first(joiner, began_s, {each}) - joined_s for each in taken}
    group.steady()
    shared = group.steady()
    signal_s = joiner.signal(signal.SIGTERM)
    left_s = group.await_size(1, joiner, "left")
    taken_back = {each: first(owner, signal_s, {each}) for each in taken}
    stopping = group.pauses(PARTITIONS, signal_s, max(taken_back.values()) + AFTER_S)
    batch_s = max((each.at_s - signal_s for each in joiner.events(since_s=signal_s)), default=0.0)
    return {
        Figure.JOIN: above(during, cadence, taken),
        Figure.JOIN_ROWS: first_rows,
        Figure.STAY_CADENCE: {each: cadence[each] for each in kept},
        Figure.STAY_PAUSE: {each: during[each] for each in kept},
        Figure.STAY: above(during, cadence, kept),
        Figure.STOP: above(stopping, shared, taken),
        Figure.STOP_LEFT: {each: at_s - left_s for each, at_s in taken_back.items()},
        Figure.STOP_SIGNAL: {each: at_s - signal_s for each, at_s in taken_back.items()},
        Figure.STOP_BATCH: dict.fromkeys(taken, batch_s),
        Figure.STOP_ABOVE: {each: at_s - signal_s - batch_s for each, at_s in taken_back.items()},
    }


def rolling(group: Group, *, is_static: bool) -> Figures:
    """Restart three members, one after the other."""
    members = [group.start(f"instance-{each}" if is_static else "") for each in range(3)]
    group.shares(members)
    group.steady()
    cadence = group.steady()
    unread: dict[int, float] = {}
    own: dict[int, float] = {}
    others: dict[int, float] = {}
    for number, member in enumerate(members):
        mine = group.shares(members)[number]
        signal_s = member.signal(signal.SIGTERM)
        member.restart()
        restarted_s = time.time()
        own_s = first(member, restarted_s, PARTITIONS) - signal_s
        group.shares(members)
        found = group.pauses(PARTITIONS, signal_s, time.time() + AFTER_S)
        worst(unread, above(found, cadence, PARTITIONS))
        worst(own, above(found, {each: cadence[each] + own_s for each in mine}, mine))
        worst(others, above(found, cadence, PARTITIONS - mine))
        group.steady()
    if is_static:
        return {Figure.STATIC: unread, Figure.STATIC_OWN: own, Figure.STATIC_OTHERS: others}
    return {Figure.ROLLING: unread}


def restart(group: Group) -> Figures:
    """Kill the only member by SIGKILL and start it again, beside Spark's own source."""
    found: Figures = {}
    for kind in (group.kind, OWN_SOURCE) if group.kind == SPARK else (group.kind,):
        member = group.start(kind=kind)
        group.shares([member])
        group.steady()
        killed_s = member.signal(signal.SIGKILL)
        member.restart()
        back = {
            partition: first(member, killed_s, {partition}) - killed_s for partition in PARTITIONS
        }
        found[Figure.OWN_START if kind == OWN_SOURCE else Figure.RESTART] = back
        member.signal(signal.SIGTERM)
        member.process.wait(WAIT_S)
    if Figure.OWN_START in found:
        base = dict.fromkeys(PARTITIONS, max(found[Figure.OWN_START].values()))
        found[Figure.RESTART_ABOVE] = above(found[Figure.RESTART], base, PARTITIONS)
    return found


ROWS: Mapping[str, Callable[[Group], Figures]] = {
    "join": join_and_stop,
    "rolling": lambda group: rolling(group, is_static=False),
    "static": lambda group: rolling(group, is_static=True),
    "restart": restart,
}


def above(
    found: Mapping[int, float], base: Mapping[int, float], partitions: Iterable[int]
) -> dict[int, float]:
    """Return how far some partitions are above a base, 0 where they are below."""
    return {partition: max(0.0, found[partition] - base[partition]) for partition in partitions}


def union(shares: Iterable[frozenset[int]]) -> frozenset[int]:
    """Return the partitions of all shares."""
    return frozenset().union(*shares)


def worst(so_far: dict[int, float], found: Mapping[int, float]) -> None:
    """Keep the largest number of each partition."""
    so_far.update({each: max(so_far.get(each, 0.0), at) for each, at in found.items()})


def first(member: Member, since_s: float, partitions: Collection[int]) -> float:
    """Return when a member first read one of some partitions."""

    def found() -> list[float]:
        rows = member.events(since_s=since_s)
        return [row.at_s for row in rows if not set(partitions).isdisjoint(row.partitions)]

    return wait(found, f"rows of partitions {sorted(partitions)}")[0]


@contextmanager
def producing(servers: str, topic: str) -> Iterator[None]:
    """Produce one record for each partition at a steady rate."""
    over = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def produce() -> None:
        while not over.wait(PRODUCE_EVERY_S):
            for partition in PARTITIONS:
                producer.produce(topic, b"row", partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        producer.flush(10)


def wait(look: Callable[[], Result | None], what: str) -> Result:
    """Wait until something is true, with a deadline; return it."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := look()):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"no {what} within {WAIT_S:g} s")
        time.sleep(POLL_S)
    return found


def measure(kind: str, row: str, servers: str) -> Figures:
    """Measure one row for one kind of members; without figures, it failed."""
    group = Group(kind, servers)
    try:
        with group.running():
            found = ROWS[row](group)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        console.print(f"  {kind}, {row}: failed: {error}", markup=False, soft_wrap=True)
        return {}
    for figure, by_partition in found.items():
        shown = f"  {kind}: {figure}: {max(by_partition.values()):.2f} s"
        console.print(shown, markup=False, soft_wrap=True)
    return found


def play(
    kinds: Collection[str], rows: Iterable[str], servers: str
) -> Iterator[tuple[str, str, Figures]]:
    """Measure all rows of a round: Spark's one after the other, then the others together."""
    wanted = [(kind, row) for row in rows for kind in kinds]
    for kind, row in wanted:
        if kind == SPARK:
            yield kind, row, measure(kind, row, servers)
    others = [(kind, row) for kind, row in wanted if kind != SPARK]
    if others:
        with ThreadPoolExecutor(len(others)) as pool:
            found = pool.map(lambda each: measure(*each, servers), others)
            for (kind, row), figures in zip(others, found, strict=True):
                yield kind, row, figures


def run(
    rounds: int, kinds: Collection[str], rows: Collection[str]
) -> Iterator[Reading | Round | str]:
    """Yield the version of Kafka, the readings of each round, and how busy the machine was."""
    account = cpu_account()
    with EmbeddedKafka() as kafka:
        yield kafka.version
        for number in range(1, rounds + 1):
            console.print(f"round {number} of {rounds}")
            load_average, before = os.getloadavg()[0], MachineTime.now()
            used_s = account.used().total if account else 0.0
            failed = []
            for kind, row, figures in play(kinds, rows, kafka.bootstrap_servers):
                if not figures:
                    failed.append(f"{kind}: {row}")
                for figure, by_partition in figures.items():
                    seconds = list(by_partition.values())
                    median_s = statistics.median(seconds)
                    yield Reading(number, kind, figure.name, max(seconds), median_s)
            now, company = MachineTime.now(), None
            if account is not None:
                company = now.company_cores(before, account.used().total - used_s)
            yield Round(number, now.at_s - before.at_s, load_average, company, tuple(failed))
    if account is not None:
        account.close()


def cpu_account() -> CpuAccount | None:
    """Return the CPU account of this process, None if CPU seconds cannot be counted here."""
    try:
        return CpuAccount(os.getpid())
    except CpuAccountError as error:
        console.print(f"other processes are not counted: {error}")
        return None


def main() -> None:
    """Run the rounds; write the readings as JSON, and the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", type=Path, default=Path("build/handover.json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    kinds, rows = given.kinds.split(","), given.rows.split(",")
    if not set(kinds) <= set(KINDS) or not set(rows) <= ROWS.keys():
        parser.error(f"kinds are {', '.join(KINDS)}; rows are {', '.join(ROWS)}")
    if "restart" in rows and SPARK in kinds:
        fetch_connector(pyspark.__version__)
    taken = list(run(given.rounds, kinds, rows))
    settings = {
        "kafka": taken[0],
        "confluent_kafka": confluent_kafka.__version__,
        "partitions": len(PARTITIONS),
        "rounds": [asdict(each) for each in taken if isinstance(each, Round)],
    }
    write_results(given.json, settings, (each for each in taken if isinstance(each, Reading)))
    write_page(given.page, json.loads(given.json.read_text(encoding="utf-8")))
    console.print(f"wrote {given.json} and {given.page}")


if __name__ == "__main__":
    main()
