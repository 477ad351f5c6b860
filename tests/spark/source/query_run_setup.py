"""Shared by test_query_run.py and other tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.proofs import PlanJson
from spark_groups.group.ledger.plan_text import plan_from_json
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.source.query_run import QueryRun
from spark_groups.types import OffsetRange
from tests.runtime.members import filled_topic
from workshop.parts.waiting import wait_until

Start = Callable[..., QueryRun]


@contextmanager
def query_runs(kafka: EmbeddedKafka, group_id: str, **options: str) -> Iterator[Start]:
    """Start runs of a query, here instead of in a runner."""
    always = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group_id}
    runs: list[QueryRun] = []

    def started(key: str = "", **changed: str | None) -> QueryRun:
        every = {**always, **options, **{name.lower(): value for name, value in changed.items()}}
        given = {name: value for name, value in every.items() if value is not None}
        runs.append(QueryRun(SourceOptions.of(given), key=key))
        return runs[-1]

    yield started
    for run in runs:
        run.leave(20.0)


def small_batches(kafka: EmbeddedKafka, topic: str, group_id: str) -> AbstractContextManager[Start]:
    """Start runs of one query on a topic of one partition with ten rows, four for each batch."""
    filled_topic(kafka.bootstrap_servers, topic, 1, 10)
    options = {"startingoffsets": "earliest", "maxoffsetspertrigger": "4"}
    return query_runs(kafka, group_id, subscribe=topic, **options)


def spans(offset: PlanJson) -> list[tuple[int, int]]:
    plan = plan_from_json(offset)
    return [(each.from_offset, each.until_offset) for each in plan.ranges] if plan else []


def ranges(run: QueryRun, start: PlanJson, end: PlanJson) -> tuple[OffsetRange, ...]:
    plan = run.batch(start, end)
    return plan.ranges if plan else ()


def until_rows(run: QueryRun, start: PlanJson) -> PlanJson:
    def trigger() -> PlanJson | None:
        end = run.latest_offset(start)
        return end if spans(end) else None

    end = wait_until(trigger, what="a plan with ranges")
    assert end is not None
    return end
