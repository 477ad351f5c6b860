"""Topics that come, grow, go and come again while queries read them, by name and by pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.group.member.subscription import Subscription
from tests.runtime.members import QueryLike, committed, fill, filled_topic, queries
from workshop.parts.brokers import create_topic, delete_topic, grow_topic
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

NEWEST = pytest.param("4.4.0", marks=pytest.mark.slow)
OLDEST = pytest.param("4.0.0", marks=pytest.mark.slow)
Broker = Callable[[str], EmbeddedKafka]


class Readers:
    """Queries of one group that run one batch after another, and what they read.

    Args:
        kafka: The broker.
        group_id: The group.
        queries: The queries.
    """

    def __init__(self, kafka: EmbeddedKafka, group_id: str, queries: list[QueryLike]) -> None:
        self.servers, self.group_id, self.queries = kafka.bootstrap_servers, group_id, queries

    @property
    def ranges(self) -> list[tuple[str, int, int, int]]:
        """Topic, partition and offsets of all that was read, sorted."""
        return sorted(each for query in self.queries for each in query.ranges)

    @property
    def timelines(self) -> str:
        return "\n".join(query.timeline for query in self.queries)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Trigger all of them again and again until something holds."""

        def turned() -> object:
            for query in self.queries:
                query.run()
            return condition()

        wait_until(turned, what=what)

    def until_read(self, *ranges: tuple[str, int, int, int]) -> None:
        """Trigger until exactly these ranges are read, each once, and all is committed."""
        wanted = rows_of(ranges)
        self.until(lambda: rows_of(self.ranges) >= wanted, f"{ranges}")
        read = sum(end - start for _, _, start, end in self.ranges)
        assert rows_of(self.ranges) == wanted
        assert read == len(wanted), "no row is read twice"
        for query in self.queries:
            query.commit_all()
        ends = {(topic, partition): end for topic, partition, _, end in sorted(ranges)}
        found = committed(self.servers, self.group_id)
        assert {key: found.get(key) for key in ends} == ends


def rows_of(ranges: Iterable[tuple[str, int, int, int]]) -> set[tuple[str, int, int]]:
    """Return topic, partition and offset of every row of some ranges."""
    return {(topic, p, offset) for topic, p, start, end in ranges for offset in range(start, end)}


def unread_of_deleted(group: Readers, topic: str) -> int:
    """Return how many unread rows of a deleted topic are reported."""
    line = rf"topic {topic} was deleted or .*; at least (\d+) rows"
    return sum(map(int, re.findall(line, group.timelines)))


@contextmanager
def readers(
    kafka: EmbeddedKafka,
    group_id: str,
    *,
    topics: str,
    pattern: str | None = None,
    count: int = 1,
    start: StartingPoint = StartingPoint.EARLIEST,
) -> Iterator[Readers]:
    """Run queries of one group."""
    member = {} if pattern is None else {"subscription": Subscription.of_pattern(pattern)}
    with queries(kafka.bootstrap_servers, group_id, topics) as begin:
        yield Readers(kafka, group_id, [begin(start=start, member=member) for _ in range(count)])


@pytest.mark.parametrize("version", [OLDEST, "4.3.1", NEWEST])
def test_two_members_share_topics_by_name_that_appear_later_and_grow(
    kafka_version: Broker, version: str, topic_name: str, group_id: str
) -> None:
    kafka, later = kafka_version(version), f"{topic_name}-later"
    servers = kafka.bootstrap_servers
    filled_topic(servers, topic_name, 2, 3)
    # Under "latest" a partition that comes later is read from its beginning all the same.
    latest = StartingPoint.LATEST
    with readers(kafka, group_id, topics=f"{topic_name},{later}", count=2, start=latest) as group:
        group.until(
            lambda: [len(query.assigned) for query in group.queries] == [1, 1], "one for each"
        )
        group.until(lambda: len(committed(servers, group_id)) == 2, "where the group starts")
        assert f"no such topic yet: {later}" in group.timelines
        fill(servers, topic_name, 2, 4)
        filled_topic(servers, later, 2, 5)
        grow_topic(servers, topic_name, 4)
        fill(servers, topic_name, 4, 6)
        group.until_read(
            *((topic_name, partition, 3, 13) for partition in (0, 1)),
            *((topic_name, partition, 0, 6) for partition in (2, 3)),
            *((later, partition, 0, 5) for partition in (0, 1)),
        )
        assert [len(query.assigned) for query in group.queries] == [3, 3]


@pytest.mark.parametrize("version", [OLDEST, "4.3.1", NEWEST])
def test_a_topic_that_is_deleted_is_reported_and_the_others_are_read(
    kafka_version: Broker, version: str, topic_name: str, group_id: str
) -> None:
    kafka, other = kafka_version(version), f"{topic_name}-other"
    servers = kafka.bootstrap_servers
    for topic in (topic_name, other):
        filled_topic(servers, topic, 2, 3)
    with readers(kafka, group_id, topics=f"{topic_name},{other}", count=2) as group:
        group.until(
            lambda: [len(query.assigned) for query in group.queries] == [2, 2], "two for each"
        )
        group.until(lambda: len(rows_of(group.ranges)) == 12, "all rows")
        group.queries[0].commit_all()
        fill(servers, topic_name, 2, 3)
        # A batch of the topic is running when it goes, and the rest is known.
        for query in group.queries:
            if any(each.rpartition("-")[0] == topic_name for each in query.assigned):
                query.plan_rows(PlanLimit(max_offsets=1))
        delete_topic(servers, topic_name)
        group.until(
            lambda: (
                sorted(each for query in group.queries for each in query.assigned)
                == [f"{other}-0", f"{other}-1"]
            ),
            "the deleted topic to be given up",
        )
        fill(servers, other, 2, 2)
        group.until(lambda: rows_of(group.ranges) >= {(other, 0, 4), (other, 1, 4)}, "the other")
        for query in group.queries:
            query.commit_all()
        assert committed(servers, group_id) == {(other, 0): 5, (other, 1): 5}
        left = 12 - sum(1 for topic, _, _ in rows_of(group.ranges) if topic == topic_name)
        wait_until(
            lambda: unread_of_deleted(group, topic_name) == left, what="the loss to be reported"
        )


@pytest.mark.parametrize("version", ["4.0.0", "4.3.1", NEWEST])
def test_a_recreated_topic_is_another_one_for_every_reader(
    kafka_version: Broker, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    servers = kafka.bootstrap_servers
    filled_topic(servers, topic_name, 4, 10)
    with readers(kafka, group_id, topics=topic_name, count=2, start=StartingPoint.LATEST) as group:
        group.until(
            lambda: [len(query.assigned) for query in group.queries] == [2, 2], "two for each"
        )
        group.until(lambda: len(committed(servers, group_id)) == 4, "where the group starts")
        fill(servers, topic_name, 4, 5)
        # Two rows of each partition are read, three are known and left.
        for query in group.queries:
            query.plan_rows(PlanLimit(max_offsets=4))
        delete_topic(servers, topic_name)
        filled_topic(servers, topic_name, 3, 2)
        new = {(topic_name, p, offset) for p in range(3) for offset in range(2)}
        group.until(lambda: rows_of(group.ranges) >= new, "the new topic")
        for query in group.queries:
            query.commit_all()
        assert committed(servers, group_id) == {(topic_name, p): 2 for p in range(3)}
        old = rows_of(group.ranges) - new
        assert min(offset for _, _, offset in old) == 10
        unread = re.findall(r"created again; at least (\d+) rows of the deleted", group.timelines)
        assert sum(map(int, unread)) == 4 * 5 - len(old)


@pytest.mark.parametrize("version", [OLDEST, "4.3.1", NEWEST])
def test_topics_of_a_pattern_come_grow_and_go(
    kafka_version: Broker, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)
    servers, first, second = kafka.bootstrap_servers, f"{topic_name}-a", f"{topic_name}-b"
    create_topic(servers, first, 2)
    create_topic(servers, f"not-{first}", 1)
    fill(servers, first, 2, 3)
    fill(servers, f"not-{first}", 1, 3)
    # Under "latest" what comes later is read from its beginning all the same.
    latest = StartingPoint.LATEST
    pattern = f"{topic_name}-.*"
    with readers(kafka, group_id, topics="unused", pattern=pattern, count=2, start=latest) as group:
        group.until(lambda: len(committed(servers, group_id)) == 2, "where the group starts")
        group.until(lambda: sum(len(query.assigned) for query in group.queries) == 2, "a start")
        grow_topic(servers, first, 3)
        fill(servers, first, 3, 1)
        group.until_read(*((first, each, 3, 4) for each in (0, 1)), (first, 2, 0, 1))
        filled_topic(servers, second, 2, 4)
        delete_topic(servers, first)
        group.until(
            lambda: (
                sorted(each for query in group.queries for each in query.assigned)
                == [f"{second}-0", f"{second}-1"]
            ),
            "the new topic in place of the deleted one",
        )
        group.until(lambda: len(rows_of(group.ranges)) == 3 + 8, "the new topic to be read")
        for query in group.queries:
            query.commit_all()
        assert committed(servers, group_id) == {(second, 0): 4, (second, 1): 4}
        assert f"topic {first} was deleted" in group.timelines
