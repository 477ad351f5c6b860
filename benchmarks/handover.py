"""How long partitions stand still when a member joins, leaves or dies, beside confluent-kafka.

    python -m benchmarks.handover [--rounds 3] [--kinds spark,consumer,classic] [--json]

Each round has a topic of 6 partitions, one record for each of them every 50 ms, a group with one
member, then: a second member joins; it is ended by SIGTERM; another one joins and is killed
(SIGKILL). The broker's settings are Kafka's defaults. All members are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.protocol.messages import DescribeGroupRequest
from spark_groups.wire.cluster import Cluster

COMMANDS = {
    "spark": ("benchmarks.handover_spark",),
    "consumer": ("benchmarks.handover_consumer", "consumer"),
    "classic": ("benchmarks.handover_consumer", "classic"),
}
PARTITIONS = frozenset(range(6))
PRODUCE_EVERY_S = 0.05
STEADY_S = 4.0
RECENT_S = 2.0
WAIT_S = 120.0
POLL_S = 0.03

console = Console(stderr=True)


@dataclass(frozen=True)
class Event:
    """A line of a member's diary."""

    what: str
    at_s: float
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """What one round measured, in seconds; None where a kind has no such thing.

    Args:
        kind: Which members.
        join_to_plan_s: From the join to the first planned range of the joiner.
        join_to_rows_s: From the join to its first records.
        pause_s: Longest pause of the partitions whose owner did not change, during the join.
        cadence_s: Longest pause of the same partitions while nothing happened.
        stop_to_plan_s: From SIGTERM to the survivor's first plan of the released partitions.
        stop_to_rows_s: From SIGTERM to its first records of it.
        leave_to_plan_s: From the moment the group no longer had the member to the survivor's plan.
        leave_to_rows_s: From the moment the group no longer had the member to them.
        kill_to_rows_s: From SIGKILL to the survivor's first records.
    """

    kind: str
    join_to_plan_s: float | None
    join_to_rows_s: float
    pause_s: float
    cadence_s: float
    stop_to_plan_s: float | None
    stop_to_rows_s: float
    leave_to_plan_s: float | None
    leave_to_rows_s: float | None
    kill_to_rows_s: float


class Member:
    """A member's process and its diary."""

    def __init__(self, kind: str, servers: str, group_id: str, topic: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="handover-")
        place = Path(self._directory.name)
        self._diary = place / "events.jsonl"
        self._log = place / "log"
        module, *protocol = COMMANDS[kind]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(place), servers, group_id, topic, *protocol],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )

    def events(self, what: str, since_s: float = 0.0) -> list[Event]:
        """Return the events of one name, from a moment on."""
        if self.process.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
            raise SystemExit(f"a member ended by itself:\n{self._log.read_text()[-3000:]}")
        if not self._diary.exists():
            return []
        # The last line may be half written.
        lines = self._diary.read_text().split("\n")[:-1]
        found = [Event(**json.loads(line)) for line in lines]
        return [each for each in found if each.what == what and each.at_s >= since_s]

    def recent(self) -> frozenset[int]:
        """Return the partitions that it has read in the last two seconds."""
        rows = self.events("rows", time.time() - RECENT_S)
        return frozenset(partition for each in rows for partition in each.partitions)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGKILL to all its processes, any other to the first."""
        if number is signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def close(self) -> None:
        """End its remaining processes."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(30)
        self._directory.cleanup()


def main() -> None:
    """Run the rounds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(COMMANDS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    outcomes = []
    with EmbeddedKafka() as kafka:
        for number in range(arguments.rounds):
            for kind in kinds:
                console.print(f"round {number + 1} of {arguments.rounds}: {kind}")
                outcomes.append(measure(kind, kafka.bootstrap_servers))
                console.print(f"  {outcomes[-1]}")
    if arguments.json:
        Console().print_json(json.dumps([asdict(each) for each in outcomes]))
    else:
        Console(width=140).print(summary(kinds, outcomes))


def measure(kind: str, servers: str) -> Outcome:
    """Let members of one kind join, leave and die in a group of their own."""
    group_id, topic = f"group-{uuid.uuid4().hex[:8]}", f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, num_partitions=len(PARTITIONS), replication_factor=1)
    admin.create_topics([new])[topic].result(30)
    members: list[Member] = []

    def start() -> Member:
        members.append(Member(kind, servers, group_id, topic))
        return members[-1]

    try:
        with producing(servers, topic), Cluster(servers) as cluster:
            owner = start()
            wait(lambda: owner.recent() == PARTITIONS, "all partitions at the first member")
            began_s = let_run()
            joiner = start()
            joined_s = await_join(kind, cluster, group_id, joiner)
            kept, taken = await_shares(owner, joiner)
            let_run()
            stop_s, left_s = end(kind, cluster, group_id, joiner)
            stop_rows_s = first(owner, "rows", stop_s, taken) - stop_s
            victim = start()
            _, orphaned = await_shares(owner, victim)
            killed_s = time.time()
            victim.signal(signal.SIGKILL)
            kill_rows_s = first(owner, "rows", killed_s, orphaned) - killed_s
            is_spark = kind == "spark"
            stop_plan_s = first(owner, "planned", stop_s, taken) - stop_s if is_spark else None
            join_rows_s = first(joiner, "rows", 0.0, PARTITIONS) - joined_s
            return Outcome(
                kind,
                first(joiner, "planned", 0.0, PARTITIONS) - joined_s if is_spark else None,
                join_rows_s,
                longest_pause(owner, kept, joined_s - 0.5, joined_s + join_rows_s + 1),
                longest_pause(owner, kept, began_s, began_s + STEADY_S),
                stop_plan_s,
                stop_rows_s,
                since_leave(stop_plan_s, stop_s, left_s),
                since_leave(stop_rows_s, stop_s, left_s),
                kill_rows_s,
            )
    finally:
        for member in members:
            member.close()


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


def await_join(kind: str, cluster: Cluster, group_id: str, joiner: Member) -> float:
    """Return when a member joined: seen in the group, or, if it cannot be, by its own word."""
    if kind != "spark":
        wait(lambda: bool(joiner.events("joining")), "the join")
        return joiner.events("joining")[0].at_s
    wait(lambda: size(cluster, group_id) == 2, "the second member")
    return time.time()


def end(kind: str, cluster: Cluster, group_id: str, member: Member) -> tuple[float, float | None]:
    """End a member by SIGTERM; return when that was, and when the group was without it."""
    stop_s = time.time()
    member.signal(signal.SIGTERM)
    if kind == "classic":
        return stop_s, None
    wait(lambda: size(cluster, group_id) == 1, "the leave")
    return stop_s, time.time()


def let_run() -> float:
    """Let members run for a while, so that their batches are short; return when that began."""
    began_s = time.time()
    wait(lambda: time.time() - began_s > STEADY_S, "a steady state")
    return began_s


def since_leave(after_stop_s: float | None, stop_s: float, left_s: float | None) -> float | None:
    """Return the times since the member left the group, instead of since SIGTERM."""
    if after_stop_s is None or left_s is None:
        return None
    return stop_s + after_stop_s - left_s


def size(cluster: Cluster, group_id: str) -> int:
    """Return how many members a group of the consumer protocol has."""
    return len(cluster.describe_group(DescribeGroupRequest(group_id=group_id)).members)


def await_shares(owner: Member, other: Member) -> tuple[frozenset[int], frozenset[int]]:
    """Wait until two members read different partitions, together all; return both shares."""

    def divided() -> bool:
        mine, theirs = owner.recent(), other.recent()
        return bool(mine and theirs) and not mine & theirs and mine | theirs == PARTITIONS

    wait(divided, "a share for each member")
    return owner.recent(), other.recent()


def first(member: Member, what: str, since_s: float, partitions: frozenset[int]) -> float:
    """Return when an event first concerned one of some partitions."""

    def found() -> list[float]:
        events = member.events(what, since_s)
        return [each.at_s for each in events if partitions & set(each.partitions)]

    wait(lambda: bool(found()), f"{what} of {sorted(partitions)}")
    return found()[0]


def longest_pause(
    member: Member, partitions: frozenset[int], from_s: float, until_s: float
) -> float:
    """Return the longest time without records of one of some partitions."""
    wait(lambda: time.time() > until_s, "the end of the time looked at")
    events = [each for each in member.events("rows", from_s) if each.at_s <= until_s]
    pauses = [0.0]
    for partition in partitions:
        times = [each.at_s for each in events if partition in each.partitions]
        pauses += [later - earlier for earlier, later in pairwise(times)]
    return max(pauses)


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, at most two minutes."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"no {what} within {WAIT_S:g} s")
        time.sleep(POLL_S)


def summary(kinds: list[str], outcomes: list[Outcome]) -> Table:
    """Return medians, with the smallest and the largest beside them."""
    table = Table(title="seconds: median (smallest-largest)")
    table.add_column("")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for field in list(asdict(outcomes[0]))[1:]:
        cells = [field]
        for kind in kinds:
            values = [getattr(each, field) for each in outcomes if each.kind == kind]
            known = [each for each in values if each is not None]
            cells.append(
                f"{statistics.median(known):.2f} ({min(known):.2f}-{max(known):.2f})"
                if known
                else "-"
            )
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    main()
