"""Static members that are queries of real Spark: one at a time, stopped for a while or for good."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED
from tests.runtime.members import instance_epochs
from tests.spark.queries import GroupQuery
from tests.spark.source.query_run_setup import Start, query_runs
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

READ_S = 400.0


@pytest.mark.spark
def test_second_query_with_one_instance_id_fails_and_a_stopped_one_makes_room(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v", partition=p) for p in (0, 1)])

    def query(name: str, leave_on_stop: str = "false") -> GroupQuery:
        options = {"kafka.group.instance.id": "${HOSTNAME}-i1", "leaveOnStop": leave_on_stop}
        return GroupQuery(spark, kafka, group_id, topic_name, tmp_path / name, options)

    first = query("first")
    with first.running():
        first.await_rows(2)
        (instance_id,) = instance_epochs(kafka.bootstrap_servers, group_id)
        assert instance_id is not None
        assert instance_id.endswith("-i1")
        assert "$" not in instance_id
        holder = wait_until(first.member, what="a snapshot")
        with query("second").running() as second, pytest.raises(StreamingQueryException) as failed:
            second.awaitTermination(int(READ_S))
        assert f"process {holder['pid']}, member {holder['member_id']}" in str(failed.value)
        assert instance_epochs(kafka.bootstrap_servers, group_id)[instance_id] > 0, (
            "the holder does not notice"
        )
    wait_until(
        lambda: instance_epochs(kafka.bootstrap_servers, group_id) == {instance_id: -2},
        READ_S,
        what="a -2",
    )
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v", partition=p) for p in (0, 1)])
    third = query("third", leave_on_stop="true")
    with third.running():
        third.await_rows(2)
    wait_until(
        lambda: not instance_epochs(kafka.bootstrap_servers, group_id),
        READ_S,
        what="an empty group",
    )


@pytest.fixture
def start(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Start]:
    create_topic(kafka.bootstrap_servers, topic_name)
    with query_runs(kafka, group_id, subscribepattern=f"^{topic_name}") as started:
        yield started


def test_pattern_that_matches_less_than_it_seems_to_is_logged_once(
    start: Start, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "spark_groups"):
        run = start()
        run.latest_offset(NOTHING_PLANNED)
    assert caplog.text.count("matches whole topic names") == 1
    assert f"{topic_name + '.*'!r}" in caplog.text
    assert run.driver.snapshot().assigned == (f"{topic_name}-0",)


@pytest.mark.parametrize(
    "case",
    [("false", False, {"i1": -2}), ("true", False, {}), ("true", True, {"i1": -2})],
)
def test_leaving_for_good_is_for_those_who_are_stopped_not_for_those_who_crash(
    start: Start,
    kafka: EmbeddedKafka,
    group_id: str,
    case: tuple[str, bool, dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave_on_stop, jvm_is_gone, left = case
    run = start(**{"kafka.group.instance.id": "i1", "leaveonstop": leave_on_stop})
    run.latest_offset(NOTHING_PLANNED)
    if jvm_is_gone:
        # What a runner sees whose parent died.
        monkeypatch.setattr(os, "getppid", lambda: 1)
    run.leave()
    assert instance_epochs(kafka.bootstrap_servers, group_id) == left
