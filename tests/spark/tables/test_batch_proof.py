"""Batches whose offsets are committed when the table has them, in a session without a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import spark_groups
from tests.runtime.members import queries
from tests.spark.queries import READ_S
from tests.spark.tables.write_setup import TableQuery
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BATCH = 60
Take = Callable[[DataFrame, int], object]


@contextmanager
def one_batch(query: TableQuery, take: Take) -> Iterator[StreamingQuery]:
    """Run the first batch of a query, whose next trigger does not come."""
    running = spark_groups.start(
        query.source()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(processingTime="1 hour")
    )
    try:
        yield running
    finally:
        running.stop()
    query.await_left()


def test_batch_is_committed_and_handed_over_before_the_next_trigger(
    query_of: Callable[..., TableQuery],
) -> None:
    query = query_of(TableQuery, "records")
    with one_batch(query, query.writer()):
        wait_until(lambda: sum(query.committed().values()) == BATCH, READ_S, "the commit")
        with queries(query.kafka.bootstrap_servers, query.group_id, query.topic) as start:
            second = start()
            wait_until(lambda: second.assigned, READ_S, "the hand-over")
        assert not query.offsets_file(1).exists(), "no second trigger"
    assert sum(query.values().values()) == BATCH


def called_by_another(query: TableQuery) -> Take:
    writer = query.writer()

    def mine(batch: DataFrame, batch_id: int) -> None:
        writer(batch, batch_id)

    return mine


def called_by_compiled_code(query: TableQuery) -> Take:
    """Return a function that calls another one without a frame of its own."""
    return partial(query.writer())


def failing(query: TableQuery) -> Take:
    query.transform = lambda rows: rows["no such column"]
    return query.writer()


@pytest.mark.long
@pytest.mark.parametrize("proving", [called_by_another, called_by_compiled_code, failing])
def test_function_that_may_do_more_and_a_failed_batch_prove_nothing(
    query_of: Callable[..., TableQuery], proving: Callable[[TableQuery], Take]
) -> None:
    query = query_of(TableQuery, "ranges")
    with one_batch(query, proving(query)) as running:
        ended: Any = query.commits_file(0).exists
        wait_until(lambda: ended() or running.exception(), READ_S, "the end of the batch")
        assert ended() is (proving is not failing)
    assert sum(query.committed().values()) == 0
