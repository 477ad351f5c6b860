"""Groups on a real broker that commands and pages are to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.runtime.members import QueryLike, queries
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

Members = tuple[QueryLike, Callable[..., QueryLike]]
"""The first member of a group, and what starts another one."""


def run_until_assigned(query: QueryLike, partitions: int, *others: QueryLike) -> None:
    """Run members until one of them has so many partitions."""

    def is_assigned() -> bool:
        for each in (query, *others):
            each.run()
        return len(query.assigned) == partitions

    wait_until(is_assigned, what=f"an assignment of {partitions}")


@contextmanager
def assigned_group(
    servers: str, topic_name: str, group_id: str, partitions: int = 2
) -> Iterator[Members]:
    """Create a topic, and a group whose one member has all of it."""
    create_topic(servers, topic_name, partitions)
    with queries(servers, group_id, topic_name) as start:
        first = start()
        run_until_assigned(first, partitions)
        yield first, start


@contextmanager
def lagging_group(servers: str, topic_name: str, group_id: str, lag: int) -> Iterator[Members]:
    """Create a topic of four partitions, and a group that has read all but the end of the second.

    Three partitions have 30 records that are committed; nothing is in the fourth.
    """
    create_topic(servers, topic_name, 4)
    produce(servers, topic_name, [Row(b"x", partition=each % 3) for each in range(90)])
    with queries(servers, group_id, topic_name) as start:
        first = start()
        first.plan_rows()
        first.commit_all()
        produce(servers, topic_name, [Row(b"y", partition=1)] * lag)
        yield first, start
