"""A query in a live group of classic consumers: it joins, works beside them, and leaves them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import GroupError
from spark_groups.group.batches.plan_limit import PlanLimit
from tests.runtime.classic import ClassicConsumer
from tests.runtime.members import QueryLike, all_at, committed, fill, queries
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

PARTITIONS = 6
SMALL = PlanLimit(max_offsets=30)


class Migration:
    """A topic, two classic consumers and a query, and which rows somebody has read.

    Args:
        servers: The broker.
        group_id: The group.
        topic: The topic.
    """

    def __init__(self, servers: str, group_id: str, topic: str) -> None:
        self.servers, self.group_id, self.topic = servers, group_id, topic
        self.consumers: list[ClassicConsumer] = []
        self.query: QueryLike | None = None
        self.rows_each = 0

    def feed(self, rows_each: int) -> None:
        fill(self.servers, self.topic, PARTITIONS, rows_each)
        self.rows_each += rows_each

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Run the query until a condition holds."""

        def turned() -> object:
            if self.query is not None:
                self.query.run(SMALL)
            return condition()

        wait_until(turned, what=what)

    def is_split(self, share: int) -> bool:
        """Return whether the query has `share` partitions, the consumers the rest, none twice."""
        assert self.query is not None
        owned = {int(name.rsplit("-", 1)[1]) for name in self.query.assigned}
        theirs = [partition for each in self.consumers for partition in each.partitions]
        return len(owned) == share and sorted([*owned, *theirs]) == list(range(PARTITIONS))

    def all_is_committed(self) -> bool:
        wanted = all_at(self.topic, PARTITIONS, self.rows_each)
        return committed(self.servers, self.group_id) == wanted

    def unread(self, query: QueryLike) -> set[tuple[int, int]]:
        """Return partition and offset of rows that no member has read."""
        read = {(p, offset) for _, p, start, end in query.ranges for offset in range(start, end)}
        for each in self.consumers:
            read |= each.rows
        return {(p, o) for p in range(PARTITIONS) for o in range(self.rows_each)} - read


@pytest.mark.parametrize(
    ("version", "classic"),
    [
        ("4.3.1", ("cooperative-sticky", 1)),
        ("4.3.1", ("range", 2)),
        pytest.param("4.0.0", ("cooperative-sticky", 1), marks=pytest.mark.slow),
        pytest.param("4.4.0", ("range", 2), marks=pytest.mark.slow),
    ],
)
def test_a_query_works_beside_classic_consumers_and_nothing_is_lost(
    kafka_version: Callable[[str], EmbeddedKafka],
    version: str,
    classic: tuple[str, int],
    topic_name: str,
    group_id: str,
) -> None:
    strategy, consumers = classic
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name, PARTITIONS)
    with ExitStack() as running:
        group = Migration(servers, group_id, topic_name)
        for _ in range(consumers):
            consumer = ClassicConsumer(servers, group_id, topic_name, strategy)
            group.consumers.append(running.enter_context(consumer))
        for each in group.consumers:
            each.await_partitions(PARTITIONS // consumers)
        group.feed(50)
        group.until(group.all_is_committed, "the classic consumers to read alone")

        start = running.enter_context(queries(servers, group_id, topic_name))
        query = group.query = start()
        share = PARTITIONS // (consumers + 1)
        group.until(lambda: group.is_split(share), "a fair share for each")
        read_before = [len(each.rows) for each in group.consumers]
        group.feed(50)
        group.until(group.all_is_committed, "all of them to read")
        assert len(query.ranges) > 0
        assert {start for _, _, start, _ in query.ranges} >= {50}, "from where they stopped"
        assert all(
            len(each.rows) > before
            for each, before in zip(group.consumers, read_before, strict=True)
        )

        group.feed(50)
        query.plan_rows(SMALL)
        query.finish()
        group.query = None
        query.driver.leave()
        group.until(
            lambda: sum(len(each.partitions) for each in group.consumers) == PARTITIONS,
            "the classic consumers to take over",
        )
        group.feed(50)
        group.until(group.all_is_committed, "the classic consumers to read alone again")
        assert group.unread(query) == set()
        assert not [error for each in group.consumers for error in each.errors]


def test_a_group_that_cannot_be_converted_is_left_alone_and_the_query_says_why(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    # Kafka takes what librdkafka's cooperative-sticky says of itself from its second round on for
    # the words of a custom assignor.
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, PARTITIONS)
    with ExitStack() as running:
        group = Migration(servers, group_id, topic_name)
        for count in (1, 2):
            consumer = ClassicConsumer(servers, group_id, topic_name, "cooperative-sticky")
            group.consumers.append(running.enter_context(consumer))
            consumer.await_partitions(PARTITIONS // count)
        start = running.enter_context(queries(servers, group_id, topic_name))
        began_at = time.monotonic()
        said = r"GROUP_ID_NOT_FOUND.*unsupported custom assignor.*or stop them first"
        with pytest.raises(GroupError, match=said):
            start().plan()
        assert time.monotonic() - began_at < SOON_S
        group.feed(10)
        group.until(group.all_is_committed, "the classic consumers to continue")
