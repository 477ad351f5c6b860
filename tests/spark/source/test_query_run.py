"""Proofs in Spark's calls reach a real member; the tests make the calls as Spark does."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import CheckpointError
from spark_groups.group.batches import first_batches
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED, plan_as_json
from spark_groups.runtime import engine
from spark_groups.spark.control.control_messages import RunEnded
from spark_groups.spark.options import source_options
from spark_groups.spark.options.packed import Load
from spark_groups.spark.source.query_run import PlanJson, QueryRun
from spark_groups.spark.source.source import KafkaGroupStreamReader, WarmUpPartition
from spark_groups.types import BatchPlan
from tests.runtime.members import committed
from tests.spark.control.listening import QUERY_ID, Driver
from tests.spark.source.query_run_setup import (
    Start,
    ranges,
    small_batches,
    spans,
    until_rows,
)
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

OPTIONS = {"kafka.bootstrap.servers": "none:1", "kafka.group.id": "g"}


@pytest.fixture
def start(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Start]:
    with small_batches(kafka, topic_name, group_id) as started:
        yield started


def test_plan_that_this_run_made_is_not_read_again(start: Start, monkeypatch) -> None:
    run = start()
    end = json.loads(json.dumps(until_rows(run, NOTHING_PLANNED)))
    monkeypatch.setattr("spark_groups.group.batches.proofs.plan_from_json", pytest.fail)
    assert [len(each) for each in ranges(run, NOTHING_PLANNED, end)] == [4]
    assert spans(run.latest_offset(end)) == [(4, 8)]


def test_each_call_proves_the_batch_before_it(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    run = start()
    first = until_rows(run, NOTHING_PLANNED)
    assert spans(first) == [(0, 4)]
    assert [len(each) for each in ranges(run, NOTHING_PLANNED, first)] == [4]
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 0
    second = run.latest_offset(first)
    assert spans(second) == [(4, 8)]
    assert run.driver.await_commits(300)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4
    third = run.latest_offset(second)
    assert run.latest_offset(third) == third, "nothing to read gives the start back"
    assert ranges(run, third, third) == ()


def test_without_a_start_the_next_call_proves_the_last_plan(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    run = start()
    offsets = [run.latest_offset(None)]
    while spans(offsets[-1]) != [(8, 10)]:
        offsets.append(run.latest_offset(None))
    assert run.latest_offset(None) == offsets[-1]
    assert run.driver.await_commits(300)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 10


def test_an_old_plan_is_replayed_as_it_was_and_committed_once_it_is_finished(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    killed = start()
    planned = until_rows(killed, NOTHING_PLANNED)
    killed.driver.close()
    again = start()
    assert [(e.from_offset, e.until_offset) for e in ranges(again, NOTHING_PLANNED, planned)] == [
        (0, 4)
    ]
    following = until_rows(again, planned)
    assert spans(following) == [(4, 8)]
    assert again.driver.await_commits(300)
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4


def test_an_old_plan_of_other_topics_is_not_replayed(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    killed = start()
    planned = until_rows(killed, NOTHING_PLANNED)
    killed.driver.close()
    create_topic(kafka.bootstrap_servers, f"{topic_name}-other")
    other = start(subscribe=f"{topic_name}-other")
    with pytest.raises(CheckpointError) as caught:
        ranges(other, NOTHING_PLANNED, planned)
    assert f"reads {topic_name}, but this stream subscribes to {topic_name}-other" in str(
        caught.value
    )
    assert "Run the unchanged query once" in str(caught.value)
    # After the batch is finished, the query may change its subscription.
    assert ranges(other, planned, planned) == ()
    assert spans(other.latest_offset(planned)) == []


def test_topics_that_are_subscribed_no_more_are_replayed_with_a_warning(
    start: Start, kafka: EmbeddedKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka.bootstrap_servers, f"{topic_name}-kept")
    produce(kafka.bootstrap_servers, f"{topic_name}-kept", [Row(b"v")] * 2)
    killed = start(subscribe=f"{topic_name},{topic_name}-kept")
    planned = until_rows(killed, NOTHING_PLANNED)
    assert len(spans(planned)) == 2
    killed.driver.close()
    again = start(subscribe=f"{topic_name}-kept")
    with caplog.at_level(logging.WARNING):
        assert len(ranges(again, NOTHING_PLANNED, planned)) == 2
    assert f"also reads {topic_name}, which the query no longer subscribes to" in caplog.text
    assert "reads their rows again" in caplog.text


def listening(run: QueryRun, directory: Path, **listens: Any) -> Driver:
    """Have a driver listen to a run that was just made."""
    driver = Driver(directory, **{"group_id": run.control._group_id, **listens})
    run.control._client._jvm_pid = driver.jvm_pid
    run.control._client._directories = (directory,)
    run.control.start()
    return driver


def test_run_is_named_after_its_application_and_logs_its_end_through_one_driver(
    start: Start,
    kafka: EmbeddedKafka,
    group_id: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "spark_groups")
    run = start()
    with listening(run, tmp_path, application_name="flights 1") as driver:
        planned = until_rows(run, NOTHING_PLANNED)
        view = spark_groups.describe(group_id, kafka.bootstrap_servers)
        assert [member.client_id for member in view.members] == ["flights-1"]
        driver.report(planned)
        run.await_last_report()
        run.leave()
        ended = driver.next(RunEnded)
        assert (ended.group_id, ended.query_id) == (group_id, QUERY_ID)
        assert re.fullmatch(
            r"committed, left the group after 1 batch, 4 records in \d+ s", ended.line
        ), ended


def test_last_line_is_sent_once_although_two_threads_end_the_run(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_groups")
    run = start()
    with listening(run, tmp_path) as driver:
        driver.report(until_rows(run, NOTHING_PLANNED))
        run.await_last_report()
        # Any of them may end the process once it returns.
        with ThreadPoolExecutor(2) as both:
            first, _ = wait([both.submit(run.leave) for _ in range(2)], 30, FIRST_COMPLETED)
            assert first
            assert run.control._client.links() == []
        driver.next(RunEnded)
        assert driver._messages.empty()


def test_client_id_of_the_options_names_the_member(
    start: Start, kafka: EmbeddedKafka, group_id: str, tmp_path: Path
) -> None:
    run = start(**{"kafka.client.id": "mine"})
    with listening(run, tmp_path, application_name="flights 1"):
        until_rows(run, NOTHING_PLANNED)
        view = spark_groups.describe(group_id, kafka.bootstrap_servers)
        assert [member.client_id for member in view.members] == ["mine"]


def test_a_drained_run_plans_nothing_and_commits_what_the_driver_reported(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    run = start()
    with listening(run, tmp_path, group_id="") as driver:
        planned = until_rows(run, NOTHING_PLANNED)
        driver.drain()
        assert run.latest_offset(NOTHING_PLANNED) == NOTHING_PLANNED
        driver.report(planned)
        run.await_last_report()
        run.leave()
        assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4


def test_a_drained_run_says_once_who_asked_for_the_end(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start()
    with listening(run, tmp_path) as driver, caplog.at_level(logging.INFO, "spark_groups"):
        driver.drain()
        for _ in range(3):
            assert run.latest_offset(NOTHING_PLANNED) == NOTHING_PLANNED
    assert caplog.text.count("the driver is ending the query") == 1


def test_a_reported_batch_is_committed_without_another_call(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    run = start()
    with listening(run, tmp_path) as driver:
        first = until_rows(run, NOTHING_PLANNED)
        driver.report(NOTHING_PLANNED)
        driver.report({**first, "member_epoch": 77})
        assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 0
        driver.report(first)
        wait_until(lambda: committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4)
        second = run.latest_offset(first)
        assert spans(second) == [(4, 8)], "a batch is finished once"
        driver.report(first)
        driver.report(second)
        wait_until(lambda: committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 8)


def test_the_member_of_a_query_with_a_long_trigger_is_not_taken_for_a_silent_one(
    start: Start, tmp_path: Path
) -> None:
    run = start()
    with listening(run, tmp_path) as driver:
        driver.report(until_rows(run, NOTHING_PLANNED), trigger_interval_s=3600.0)
        liveness = run.driver._engine.started().parts.liveness.activity
        wait_until(lambda: liveness.idle_limit_s == 4 * 3600.0, what="the report")


def test_a_replayed_batch_is_committed_when_it_is_reported(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    killed = start()
    planned = until_rows(killed, NOTHING_PLANNED)
    killed.driver.close()
    again = start()
    with listening(again, tmp_path) as driver:
        assert len(ranges(again, NOTHING_PLANNED, planned)) == 1
        driver.report(planned)
        wait_until(lambda: committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 4)


def test_the_only_batch_has_no_limit_and_its_report_commits_it(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    run = start()
    with listening(run, tmp_path) as driver:
        run.prepare_available_now()
        end = run.latest_offset(NOTHING_PLANNED, everything=True)
        assert spans(end) == [(0, 10)]
        driver.report(end)
        run.await_last_report()
        run.leave()
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 10


def test_holes_in_the_log_replay_the_last_entry_and_take_no_offset_back(
    start: Start, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    killed = start(maxoffsetspertrigger="2")
    end: PlanJson = NOTHING_PLANNED
    plans = [end := until_rows(killed, end) for _ in range(5)]
    assert killed.driver.await_commits(300)
    killed.driver.close()
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 8
    # Spark's log has the first and the third batch: the third runs again, after the first.
    again = start(maxoffsetspertrigger="2")
    assert [each.from_offset for each in ranges(again, plans[0], plans[2])] == [4]
    assert spans(until_rows(again, plans[2])) == [(8, 10)]
    assert committed(kafka.bootstrap_servers, group_id)[topic_name, 0] == 8


def asked(run: QueryRun, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Note how many tasks a run offers its member for a warm-up; it joins at once then."""
    seen: dict[str, int] = {}
    begin = run.driver.start

    def note(checkpointed: BatchPlan | None, *, warm_up_tasks: int, client_id: str | None) -> None:
        seen.setdefault("tasks", warm_up_tasks)
        begin(checkpointed)

    monkeypatch.setattr(run.driver, "start", note)
    return seen


@pytest.mark.parametrize(
    ("changed", "parallelism", "tasks"),
    [
        ({}, 8, 8),
        ({"minpartitions": "5"}, 8, 8),
        ({"minpartitions": "5"}, 0, 5),
        ({"emit": "ranges"}, 8, 1),
        ({}, 100_000, 1_000),
    ],
    ids=str,
)
def test_a_new_run_may_warm_up_with_as_many_tasks_as_its_batches_have(
    start: Start, tmp_path: Path, monkeypatch, *, changed, parallelism: int, tasks: int
) -> None:
    run = start(**changed)
    with listening(run, tmp_path, default_parallelism=parallelism):
        seen = asked(run, monkeypatch)
        until_rows(run, NOTHING_PLANNED)
    assert seen == {"tasks": tasks}


def without_a_start(run: QueryRun) -> None:
    run.latest_offset(None)


def replay(run: QueryRun) -> None:
    end = BatchPlan("g", "m", 1)
    run.batch(NOTHING_PLANNED, plan_as_json(end))
    run.latest_offset(plan_as_json(end))


@pytest.mark.parametrize("call", [without_a_start, replay])
def test_other_runs_join_at_once(start: Start, monkeypatch, call) -> None:
    run = start()
    seen = asked(run, monkeypatch)
    call(run)
    assert seen == {"tasks": 0}


def test_without_a_listener_the_processors_count(start: Start, monkeypatch) -> None:
    run = start()
    seen = asked(run, monkeypatch)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    until_rows(run, NOTHING_PLANNED)
    assert seen == {"tasks": 3}


WARM_UP = BatchPlan("g", "m", 0, warm_up_tasks=3)


def test_a_warm_up_plan_has_its_tasks_also_when_it_runs_again(
    start: Start, topic_name: str
) -> None:
    run = start()
    reader = KafkaGroupStreamReader(Load.of({**OPTIONS, "subscribe": topic_name}))
    reader._run = run
    end = plan_as_json(WARM_UP)
    for _ in range(2):
        tasks = reader.partitions(dict(NOTHING_PLANNED), end)
        assert tasks == [WarmUpPartition("m", 3, (topic_name,), None)] * 3
    assert reader.partitions(end, end) == []
    assert spans(until_rows(run, end)) == [(0, 4)]


def test_first_batches_are_small_after_a_report_of_a_short_trigger(
    start: Start, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(first_batches, "FIRST_OFFSETS_PER_TASK", 1)
    for interval_s, expected in ((0.0, [(0, 2)]), (5.0, [(0, 10)])):
        run = start(maxoffsetspertrigger="1000")
        with listening(run, tmp_path, default_parallelism=2) as driver:
            end = plan_as_json(WARM_UP)
            ranges(run, NOTHING_PLANNED, end)
            driver.report(end, trigger_interval_s=interval_s)
            assert spans(until_rows(run, end)) == expected
            run.leave()


@pytest.mark.parametrize("available_now", [False, True])
def test_without_a_limit_the_first_batches_grow_until_one_has_the_whole_backlog(
    start: Start, kafka: EmbeddedKafka, topic_name: str, *, monkeypatch, caplog, available_now: bool
) -> None:
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v" * 10_000)] * 90)
    monkeypatch.setattr(source_options, "FIRST_BYTES", 200)
    run = start(maxoffsetspertrigger=None)
    if available_now:
        run.prepare_available_now()
    read, end = [], NOTHING_PLANNED
    with caplog.at_level(logging.INFO, engine.__name__):
        while not read or read[-1][1] < 100:
            end = until_rows(run, end)
            read += spans(end)
    sizes = [until - begin for begin, until in read]
    assert 1 <= sizes[0] <= 9
    assert len(read) > 5
    lines = [each for each in caplog.messages if "unread offsets in this batch" in each]
    assert f": reading {sizes[0]} of 100 unread offsets in this batch, about 0.0" in lines[0]
    assert "maxBytesPerTrigger=none reads the whole backlog at once" in lines[0]
    assert len(lines) == len(read) - 1
    if not available_now:
        produce(kafka.bootstrap_servers, topic_name, [Row(b"v" * 10_000)] * 200)
        assert spans(until_rows(run, end)) == [(100, 300)], "the first batches are over"


@pytest.mark.parametrize("own", [{"maxbytespertrigger": "none"}, {"maxoffsetspertrigger": "50"}])
def test_with_a_limit_of_its_own_a_query_has_no_other(
    start: Start, monkeypatch, own: dict[str, str]
) -> None:
    monkeypatch.setattr(source_options, "FIRST_BYTES", 1)
    run = start(**{"maxoffsetspertrigger": None, **own})
    assert spans(until_rows(run, NOTHING_PLANNED)) == [(0, 10)]
    assert not [each for each in run.snapshot()["timeline"] if "in this batch" in each]
