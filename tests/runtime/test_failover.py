"""Two queries on a cluster of three nodes whose coordinator is killed, paused, stopped or moved."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.runtime.engine import suspension_clock
from tests.clusters import ThreeBrokers
from tests.runtime.members import NO_LIMIT, QueryLike, all_at, committed, queries
from workshop.parts.brokers import Row, produce
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

PARTITIONS = 4
SMALL = PlanLimit(max_offsets=4)
DETECTED_S = 35.0
"""A heartbeat's timeout of 5 s and 3 s for each broker that does not name the coordinator,
three times, because the machine is busy: still less than the session of 45 s."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """Three brokers that these tests may stop, one at a time."""
    with ThreeBrokers() as running:
        yield running


class Pair:
    """Two queries that share a topic and run one batch after another, and what they read.

    Args:
        cluster: The brokers.
        topic: A topic with `PARTITIONS` partitions.
        start: Starts a member of the group.
    """

    def __init__(self, cluster: ThreeBrokers, topic: str, start: Callable[..., QueryLike]) -> None:
        self.cluster, self.topic = cluster, topic
        self.both = (start(), start())
        self.rows_each = 0
        self.slowest_call_s = 0.0

    @property
    def membership(self) -> list[tuple[object, ...]]:
        """Who the members are, at which epoch, and what each owns."""
        shown = [query.driver.snapshot() for query in self.both]
        return [(s.member_id, s.member_epoch, frozenset(s.assigned)) for s in shown]

    @property
    def rows_read(self) -> int:
        return sum(end - start for query in self.both for _, _, start, end in query.ranges)

    def feed(self, rows_each: int) -> None:
        """Write rows to every partition."""
        rows = [Row(b"v", partition=p) for p in range(PARTITIONS) for _ in range(rows_each)]
        produce(self.cluster.bootstrap_servers, self.topic, rows)
        self.rows_each += rows_each

    def run_until(self, condition: Callable[[], Any], what: str, limit: PlanLimit = SMALL) -> None:
        """Trigger again and again until something holds; a call that fails, fails the test."""

        def triggered() -> Any:
            for query in self.both:
                began_at = time.monotonic()
                query.run(limit)
                self.slowest_call_s = max(self.slowest_call_s, time.monotonic() - began_at)
            return condition()

        wait_until(triggered, what=what)

    def run_some(self) -> None:
        """Run until both have read more than one batch more."""
        read = [len(query.ranges) for query in self.both]
        self.run_until(
            lambda: all(
                len(query.ranges) > before + PARTITIONS
                for query, before in zip(self.both, read, strict=True)
            ),
            "batches of both",
        )

    def read_all(self) -> None:
        """Continue until every row is read and committed, and check that none was read twice."""
        everything = self.rows_each * PARTITIONS
        self.run_until(lambda: self.rows_read == everything, "every row to be read", NO_LIMIT)
        for query in self.both:
            query.finish()
            assert query.driver.await_commits(LONG_S), query.driver.snapshot()
        group_id = str(self.both[0].driver.snapshot().group)
        found = committed(self.cluster.bootstrap_servers, group_id)
        assert found == all_at(self.topic, PARTITIONS, self.rows_each)
        ranges = sorted(self.both[0].ranges + self.both[1].ranges)
        for partition in range(PARTITIONS):
            read = [(start, end) for _, p, start, end in ranges if p == partition]
            assert [start for start, _ in read] == [0, *(end for _, end in read[:-1])]

    def coordinators(self) -> list[str | None]:
        """Return where each of them takes the coordinator to be."""
        nodes = [
            query.driver._engine.client.parts.search.node if query.driver._engine.client else None
            for query in self.both
        ]
        return [f"{node.host}:{node.port}" if node else None for node in nodes]


@contextmanager
def pair_on(cluster: ThreeBrokers, topic: str, group_id: str) -> Iterator[Pair]:
    """Run two members that have settled and have much to read."""
    cluster.create_topic(topic, PARTITIONS)
    with queries(cluster.bootstrap_servers, group_id, topic) as start:
        pair = Pair(cluster, topic, start)
        pair.run_until(
            lambda: [len(query.assigned) for query in pair.both] == [2, 2], "half for each"
        )
        pair.feed(2_000)
        pair.run_some()
        yield pair


@contextmanager
def watched(pair: Pair) -> Iterator[Callable[[], float]]:
    """Give the longest time between two heartbeats of one member that were accepted since."""
    over, began_at = threading.Event(), suspension_clock()
    sent_at: list[list[float]] = [[began_at] for _ in pair.both]

    def watch() -> None:
        while not over.wait(0.01):
            for query, times in zip(pair.both, sent_at, strict=True):
                client = query.driver._engine.client
                accepted_at = client.parts.member.last_accepted_sent_at if client else None
                if accepted_at is not None and accepted_at > times[-1]:
                    times.append(accepted_at)

    def longest_s() -> float:
        ended = [[*times, suspension_clock()] for times in sent_at]
        return max(b - a for times in ended for a, b in pairwise(times))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield longest_s
    finally:
        over.set()
        thread.join()


@contextmanager
def killed(node: EmbeddedKafka) -> Iterator[None]:
    node.kill()
    try:
        yield
    finally:
        node.start()


@contextmanager
def paused(node: EmbeddedKafka) -> Iterator[None]:
    node.pause()
    try:
        yield
    finally:
        node.resume()


@contextmanager
def stopped(node: EmbeddedKafka) -> Iterator[None]:
    ending = threading.Thread(target=node._stop_jvm, args=(30.0,))
    ending.start()
    try:
        yield
    finally:
        ending.join()
        node.start()


@pytest.mark.parametrize("outage", [killed, paused, pytest.param(stopped, marks=pytest.mark.slow)])
def test_the_coordinator_goes_and_the_members_stay(
    cluster: ThreeBrokers, topic_name: str, group_id: str, outage: Any
) -> None:
    with pair_on(cluster, topic_name, group_id) as pair:
        before, node = pair.membership, cluster.coordinator_of(group_id)
        with watched(pair) as longest_s, outage(node):
            pair.run_until(
                lambda: not {None, node.bootstrap_servers} & {*pair.coordinators()},
                "another coordinator",
            )
            pair.run_some()
            print(
                f"{outage.__name__}: {longest_s():.1f} s between two heartbeats,"
                f" slowest call {pair.slowest_call_s:.1f} s"
            )
            assert longest_s() < DETECTED_S
            assert pair.membership == before
        cluster.await_all()
        pair.feed(10)
        pair.read_all()
        assert pair.membership == before


@pytest.mark.slow
def test_a_group_that_moves_to_another_broker_is_followed_without_a_pause(
    cluster: ThreeBrokers, topic_name: str, group_id: str
) -> None:
    with pair_on(cluster, topic_name, group_id) as pair:
        before, node = pair.membership, cluster.coordinator_of(group_id)
        with watched(pair) as longest_s:
            cluster.move_group(group_id)
            pair.run_until(
                lambda: not {None, node.bootstrap_servers} & {*pair.coordinators()},
                "another coordinator",
            )
            pair.run_some()
            print(f"moved: {longest_s():.1f} s between two heartbeats")
            assert longest_s() < DETECTED_S / 2
        pair.read_all()
        assert pair.membership == before
