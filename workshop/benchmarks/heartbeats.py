"""What heartbeats cost a broker: its processor time with n members at 5 s and at 0.3 s.

    python workshop/benchmarks/heartbeats.py [SECONDS [MEMBERS...]]

A broker is started for it. Members are those of the source, without Spark and without reading.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import FindCoordinatorRequest, HeartbeatResponse, Node
from spark_groups.group.member.pace import DEFAULT_INTERVAL_S, FAST_INTERVAL_S
from spark_groups.group.member.subscription import Subscription
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.coordinator_connection import CoordinatorConnection

TOPIC = "heartbeats"
SETTLE_S = 120.0
THREADS = 4


class Beating:
    """A member that heartbeats at a pace of our own.

    Args:
        group_id: Its group.
        coordinator: Where to.
    """

    def __init__(self, group_id: str, coordinator: Node) -> None:
        config = MemberConfig(group_id=group_id, subscription=Subscription.of_names(TOPIC))
        self.member = Member(config, lambda: str(uuid.uuid4()))
        self.beats = 0
        self._coordinator = coordinator
        self._connection = CoordinatorConnection()
        self.member.join(time.monotonic())

    def beat(self) -> None:
        """Send one heartbeat, and release revoked partitions at once."""
        now = time.monotonic()
        self.member.pace.at_once(now)
        request = self.member.poll_heartbeat(now)
        if request is None:
            return
        response = self._connection.send(self._coordinator, request, 10.0)
        assert isinstance(response, HeartbeatResponse)
        self.member.handle_response(response, time.monotonic())
        self.beats += 1
        if self.member.state is MemberState.RECONCILING:
            self.member.acknowledge(time.monotonic())

    def leave(self) -> None:
        """Leave the group."""
        self.member.leave(time.monotonic())
        self.member.leave_now(time.monotonic())
        self.beat()
        self._connection.close()


class Pulse:
    """Threads that make members beat at one interval.

    Args:
        members: The members.
        interval_s: Seconds between two heartbeats of one member.
    """

    def __init__(self, members: Sequence[Beating], interval_s: float) -> None:
        self._interval_s = interval_s
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(members[first::THREADS],), daemon=True)
            for first in range(THREADS)
        ]

    def __enter__(self) -> Pulse:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, members: Sequence[Beating]) -> None:
        began_at = time.monotonic()
        due = [
            (began_at + self._interval_s * index / max(1, len(members)), member)
            for index, member in enumerate(members)
        ]
        while due and not self._over.is_set():
            due.sort(key=lambda entry: entry[0])
            due_at, each = due[0]
            if self._over.wait(max(0.0, due_at - time.monotonic())):
                return
            each.beat()
            due[0] = (max(due_at + self._interval_s, time.monotonic()), each)


def processor_s(pid: int) -> float:
    """Return the processor time a process has used, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(pid: int, seconds: float) -> float:
    """Return how much of one processor a process uses, in percent."""
    before_s, began_at = processor_s(pid), time.monotonic()
    time.sleep(seconds)
    return (processor_s(pid) - before_s) / (time.monotonic() - began_at) * 100


def coordinator_of(kafka: EmbeddedKafka, group_id: str) -> Node:
    """Return a group's coordinator, as soon as there is one."""
    deadline = time.monotonic() + SETTLE_S
    with Cluster(kafka.bootstrap_servers) as cluster:
        while time.monotonic() < deadline:
            found = cluster.find_coordinator(FindCoordinatorRequest(group_id=group_id))
            if found.coordinator is not None:
                return found.coordinator
            time.sleep(0.2)
    raise TimeoutError("the group has no coordinator")


def one_group(kafka: EmbeddedKafka, count: int, seconds: float) -> None:
    """Print a line for each pace of a group of so many members."""
    group_id, pid = f"heartbeats-{count}", kafka.pid
    assert pid is not None
    coordinator = coordinator_of(kafka, group_id)
    idle = measure(pid, seconds)
    members = [Beating(group_id, coordinator) for _ in range(count)]
    with Pulse(members, FAST_INTERVAL_S):
        deadline = time.monotonic() + SETTLE_S
        while any(each.member.state is not MemberState.STABLE for each in members):
            assert time.monotonic() < deadline, "the group does not become stable"
            time.sleep(1.0)
        time.sleep(5.0)
    print(f"{count:>7} {'none':>9} {0:>12} {idle:>16.1f}", flush=True)  # noqa: T201
    for interval_s in (DEFAULT_INTERVAL_S, FAST_INTERVAL_S):
        with Pulse(members, interval_s):
            before = sum(member.beats for member in members)
            used = measure(pid, seconds)
            rate = (sum(member.beats for member in members) - before) / seconds
        print(f"{count:>7} {interval_s:>7} s {rate:>12.1f} {used:>16.1f}", flush=True)  # noqa: T201
    for member in members:
        member.leave()


def main(seconds: float, counts: Sequence[int]) -> None:
    """Measure groups of so many members.

    Args:
        seconds: How long each pace is measured.
        counts: How many members.
    """
    columns = f"{'members':>7} {'interval':>9} {'heartbeats/s':>12} {'broker, % of CPU':>16}"
    print(columns)  # noqa: T201
    with EmbeddedKafka() as kafka:
        client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        topic = NewTopic(TOPIC, max(counts), 1)
        client.create_topics([topic], operation_timeout=30)[TOPIC].result(30)
        for count in counts:
            one_group(kafka, count, seconds)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 60.0,
        [int(each) for each in sys.argv[2:]] or [10, 100],
    )
