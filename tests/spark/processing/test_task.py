"""What one task does with its rows, without Spark: order, fates, and what is written."""

from __future__ import annotations

import time
from collections import Counter
from math import inf
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.errors import DeliveryError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.letters import Addresses, origin_of
from spark_groups.spark.processing.record import Record
from spark_groups.spark.processing.strategies import (
    Fate,
    Recirculate,
    Relinquish,
    SkipOrDeadLetter,
    Strategy,
)
from spark_groups.spark.processing.tally import counts_of
from spark_groups.spark.processing.task import Task
from spark_groups.spark.reading.rows import ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import TopicPartition
from tests.brokers import create_topic
from tests.spark.processing.topics import poisoned, records_in

NOWHERE = RangeSettings(bootstrap_servers=("localhost:1",), group_id="readers")


def rows(topic: str, count: int) -> pa.RecordBatch:
    """Return rows of one partition whose values are their offsets."""
    listed = [
        {
            "key": None,
            "value": b"%d" % offset,
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "timestamp": 1_000_000,
            "timestampType": 0,
            "headers": None,
        }
        for offset in range(count)
    ]
    return pa.RecordBatch.from_pylist(listed, schema=ROW_SCHEMA_WITH_HEADERS)


def task(strategy: Strategy, topic: str = "t", **changed: Any) -> Task:
    given: dict[str, Any] = {
        "handle": poisoned({b"2"}),
        "strategy": strategy,
        "group_id": "readers",
        "addresses": {topic: Addresses(topic, f"{topic}-dead")},
        "record_s": 0.02,
        "batch_ends_at_s": inf,
        "connection": NOWHERE,
    }
    return Task(**{**given, **changed})


def run(one: Task, *batches: pa.RecordBatch) -> Counter[Fate]:
    """Return how many records had which fate."""
    (told,) = one.run(iter(batches))
    counts = counts_of(tuple(row.values()) for row in told.to_pylist())
    found: Counter[Fate] = Counter()
    for each in counts:
        found[each.fate] += each.records
    return found


def test_what_others_finished_meanwhile_is_left_out() -> None:
    one = task(Relinquish(), passed={TopicPartition("t", 0): 3, TopicPartition("t", 1): 9})
    assert run(one, rows("t", 5)) == {Fate.PROCESSED: 2}


def test_nothing_is_connected_to_where_nothing_fails() -> None:
    seen: list[Record] = []
    one = task(SkipOrDeadLetter(), handle=seen.append)
    assert run(one, rows("t", 3), rows("t", 2)) == {Fate.PROCESSED: 5}
    assert [each.offset for each in seen] == [0, 1, 2, 0, 1]


def test_after_what_is_given_up_nothing_is_processed() -> None:
    one = task(Relinquish(), record_s=inf, batch_ends_at_s=time.time() + 0.3)
    assert run(one, rows("t", 5)) == {Fate.PROCESSED: 2, Fate.RELINQUISHED: 3}


def test_task_that_begins_too_late_does_nothing() -> None:
    seen: list[Record] = []
    one = task(Relinquish(), record_s=inf, batch_ends_at_s=time.time() - 1, handle=seen.append)
    assert run(one, rows("t", 5)) == {Fate.RELINQUISHED: 5}
    assert not seen


@pytest.mark.broker
def test_letters_are_written_when_it_says_so(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    connection = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id="readers")
    one = task(Recirculate(), topic_name, connection=connection)
    assert run(one, rows(topic_name, 4)) == {Fate.PROCESSED: 3, Fate.RECIRCULATED: 1}
    (letter,) = records_in(kafka.bootstrap_servers, topic_name)
    origin = origin_of(letter)
    assert (letter.value, origin.offset, origin.retries) == (b"2", 2, 1)


def test_letters_that_cannot_be_written_are_an_error() -> None:
    connection = RangeSettings(
        bootstrap_servers=("localhost:1",), group_id="readers", request_timeout_s=0.2
    )
    one = task(SkipOrDeadLetter(), connection=connection)
    with pytest.raises(DeliveryError, match="the batch must not end"):
        run(one, rows("t", 4))
