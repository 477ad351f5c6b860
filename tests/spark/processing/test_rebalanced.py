"""Strategies by which partitions go to another member: it passes what one member cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_groups
from spark_groups import Fate, ProgressDeadline, RecordProcessing, Relinquish
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.processing.kafka_record import Record
from tests.spark.processing.topics import Seen
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

VALUES = [b"%d" % each for each in range(10)]


def held_back_by(gate: Path) -> Callable[[Record], None]:
    """Return a function that fails for one record until a file is there."""
    path = str(gate)

    def fail(record: Record) -> None:
        if record.value == b"4" and not Path(path).exists():
            raise ValueError("not here")

    return fail


class Member:
    """A query in a group that processes records.

    Args:
        query: The query, of which source and checkpoint are used.
        processing: What it does with each batch.
    """

    def __init__(self, query: GroupQuery, processing: RecordProcessing) -> None:
        self.query = query
        self.processing = processing
        self.running: Any = None
        self.starts = 0

    def start(self) -> Any:
        self.starts += 1
        writer = self.query.source().writeStream.foreachBatch(self.processing)
        writer = writer.option("checkpointLocation", str(self.query.checkpoint))
        self.running = spark_groups.start(writer.trigger(processingTime="100 milliseconds"))
        return self.running


@pytest.fixture
def member(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> Any:
    """Makes members of a group whose topic has one partition; they are stopped at the end."""
    create_topic(kafka.bootstrap_servers, topic_name)
    made: list[Member] = []

    def make(name: str, processing: RecordProcessing, **options: str) -> Member:
        query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path / name, options)
        made.append(Member(query, processing))
        return made[-1]

    yield make
    for each in made:
        if each.running is not None:
            each.running.stop()


def test_progress_deadline_lets_the_group_continue_without_the_member(
    member: Callable[..., Member], kafka: EmbeddedKafka, topic_name: str, tmp_path: Path
) -> None:
    gate, here, there = tmp_path / "gate", Seen(tmp_path / "here"), Seen(tmp_path / "there")
    strategy = ProgressDeadline()
    stuck = member(
        "stuck",
        spark_groups.process_records(here.noting(held_back_by(gate)), strategy),
        maxBatchTime="3s",
    )
    stuck.start()
    produce(kafka.bootstrap_servers, topic_name, VALUES)
    wait_until(lambda: len(here.offsets()) >= 4, READ_S, "the records before")
    other = member(
        "other",
        spark_groups.process_records(there.noting(lambda _: None), strategy),
        maxBatchTime="1h",
    )
    other.start()
    everything = {0: len(VALUES)}
    wait_until(lambda: other.query.committed() == everything, READ_S, "the other's commit")
    assert set(there.values()) == set(VALUES)
    assert stuck.running.isActive
    # What held it back is gone: its late batch ends, and it is a member again.
    gate.touch()
    wait_until(lambda: len(here.offsets()) == len(VALUES), READ_S, "the end of the late batch")
    wait_until(lambda: other.query.members() == 2, READ_S, "the member's return")
    assert other.query.committed() == everything
    assert stuck.running.isActive


def test_relinquished_partition_goes_to_another_and_the_query_joins_again(
    member: Callable[..., Member], kafka: EmbeddedKafka, topic_name: str, tmp_path: Path
) -> None:
    here, there = Seen(tmp_path / "here"), Seen(tmp_path / "there")
    never = tmp_path / "never"
    processing = spark_groups.process_records(
        here.noting(held_back_by(never)), Relinquish(batch_deadline_s=3.0)
    )
    stuck = member("stuck", processing)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            processing.run(stuck.start)
        except BaseException as error:
            failures.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    wait_until(lambda: stuck.running is not None and stuck.query.members() == 1, READ_S)
    produce(kafka.bootstrap_servers, topic_name, VALUES)
    wait_until(lambda: len(here.offsets()) >= 4, READ_S, "the records before")
    assert stuck.query.committed()[0] < len(VALUES)
    other = member(
        "other", spark_groups.process_records(there.noting(lambda _: None), Relinquish())
    )
    other.start()
    everything = {0: len(VALUES)}
    wait_until(lambda: other.query.committed() == everything, READ_S, "the other's commit")
    assert set(there.values()) == set(VALUES)
    # Its batch comes again, without what the other has finished; then it is a member like any.
    wait_until(lambda: other.query.members() == 2, READ_S, "the return")
    wait_until(lambda: _is_past_its_batch(stuck), READ_S, "the end of the batch that came again")
    assert stuck.starts >= 2
    assert processing.totals[Fate.RELINQUISHED] >= 1
    assert not failures
    stuck.running.stop()
    running.join(READ_S)
    assert not running.is_alive()


def _is_past_its_batch(member: Member) -> bool:
    planned, finished = (
        {path.name for path in (member.query.checkpoint / log).glob("[0-9]*")}
        for log in ("offsets", "commits")
    )
    return bool(planned) and planned == finished
