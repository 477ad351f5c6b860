"""What Spark's calls prove, told to a real member: the calls are made here, as Spark makes them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_groups.kafka.embedded import EmbeddedKafka
from spark_groups.offsets.plan_text import NOTHING_PLANNED, plan_from_json, plan_text
from spark_groups.spark.drain import DrainNotes
from spark_groups.spark.options import SourceOptions
from spark_groups.spark.query_run import Offset, QueryRun
from tests.brokers import Row, create_topic, produce
from tests.kafka.members import committed
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

Start = Callable[[], QueryRun]


@pytest.fixture
def start(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Start]:
    """Start runs of one query on a topic of one partition with ten rows."""
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v")] * 10)
    runs: list[QueryRun] = []

    def started() -> QueryRun:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.group.id": group_id,
            "subscribe": topic_name,
            "startingoffsets": "earliest",
            "maxoffsetspertrigger": "4",
        }
        runs.append(QueryRun(SourceOptions.of(options)))
        return runs[-1]

    yield started
    for run in runs:
        run.leave(2.0)


def spans(offset: Offset) -> list[tuple[int, int]]:
    plan = plan_from_json(offset)
    return [(each.from_offset, each.until_offset) for each in plan.ranges] if plan else []


def until_rows(run: QueryRun, start: Offset) -> Offset:
    def trigger() -> Offset | None:
        end = run.latest_offset(start)
        return end if spans(end) else None

    end = wait_until(trigger, what="a plan with ranges")
    assert end is not None
    return end


def test_each_call_proves_the_batch_before_it(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    run = start()
    first = until_rows(run, NOTHING_PLANNED)
    assert spans(first) == [(0, 4)]
    assert [len(each) for each in run.ranges(NOTHING_PLANNED, first)] == [4]
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 0
    second = run.latest_offset(first)
    assert spans(second) == [(4, 8)]
    assert run.driver.await_commits(5)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4
    third = run.latest_offset(second)
    assert run.latest_offset(third) == third, "nothing to read gives the start back"
    assert run.ranges(third, third) == ()


def test_without_a_start_the_next_call_proves_the_last_plan(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    run = start()
    offsets = [run.latest_offset(None)]
    while spans(offsets[-1]) != [(8, 10)]:
        offsets.append(run.latest_offset(None))
    assert run.latest_offset(None) == offsets[-1]
    assert run.driver.await_commits(5)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 10


def test_an_old_plan_is_replayed_as_it_was_and_committed_once_it_is_finished(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    killed = start()
    planned = until_rows(killed, NOTHING_PLANNED)
    killed.driver._close()
    again = start()
    assert [(e.from_offset, e.until_offset) for e in again.ranges(NOTHING_PLANNED, planned)] == [
        (0, 4)
    ]
    following = until_rows(again, planned)
    assert spans(following) == [(4, 8)]
    assert again.driver.await_commits(5)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4


def test_a_drained_run_plans_nothing_and_commits_what_the_driver_announced(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    run = start()
    notes = DrainNotes(os.getppid(), directory=tmp_path / "notes")
    run._notes = notes
    planned = until_rows(run, NOTHING_PLANNED)
    notes.request()
    assert run.latest_offset(NOTHING_PLANNED) == NOTHING_PLANNED
    notes.announce([plan_text(plan_from_json(planned))])
    run.leave()
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4


def test_a_drained_run_says_once_who_asked_for_the_end(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start()
    run._notes = DrainNotes(os.getppid(), directory=tmp_path / "notes")
    run._notes.request()
    with caplog.at_level(logging.INFO, "spark_groups.spark.query_run"):
        for _ in range(3):
            assert run.latest_offset(NOTHING_PLANNED) == NOTHING_PLANNED
    assert caplog.text.count("the driver asked for an end") == 1
