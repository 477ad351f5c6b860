"""What one task does with its rows, without Spark: order, fates and letters."""

from __future__ import annotations

import signal
import time
from collections import Counter
from math import inf
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import DeliveryError, UnprocessableError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.counts import counts_of
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import Addresses, origin_of
from spark_groups.spark.processing.strategies import (
    Fate,
    Recirculate,
    Relinquish,
    SkipOrDeadLetter,
    Strategy,
)
from spark_groups.spark.processing.task import Task, attempt
from spark_groups.spark.reading.rows import ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import TopicPartition
from spark_groups.wire.timeouts import Timeouts
from tests.spark.processing.topics import poisoned, records_in
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import SOON_S

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
        "addresses": {topic: Addresses(topic, topic, f"{topic}-dead")},
        "record_s": 1.0,
        "batch_ends_at_s": inf,
        "connection": NOWHERE,
    }
    return Task(**{**given, **changed})


def run(one: Task, *batches: pa.RecordBatch) -> Counter[Fate]:
    """Return how many records had which fate."""
    (counted,) = one.run(iter(batches))
    counts = counts_of(tuple(row.values()) for row in counted.to_pylist())
    found: Counter[Fate] = Counter()
    for each in counts:
        found[each.fate] += each.records
    return found


def test_what_others_finished_meanwhile_is_left_out() -> None:
    one = task(
        Relinquish(), committed_offsets={TopicPartition("t", 0): 3, TopicPartition("t", 1): 9}
    )
    assert run(one, rows("t", 5)) == {Fate.PROCESSED: 2}


def test_nothing_is_connected_to_where_nothing_fails() -> None:
    seen: list[Record] = []
    one = task(SkipOrDeadLetter(), handle=seen.append)
    assert run(one, rows("t", 3), rows("t", 2)) == {Fate.PROCESSED: 5}
    assert [each.offset for each in seen] == [0, 1, 2, 0, 1]


def test_after_a_relinquished_record_none_is_processed() -> None:
    one = task(Relinquish(), record_s=inf, batch_ends_at_s=time.time() + 2.0)
    assert run(one, rows("t", 5)) == {Fate.PROCESSED: 2, Fate.RELINQUISHED: 3}


def test_task_that_begins_too_late_does_nothing() -> None:
    seen: list[Record] = []
    one = task(Relinquish(), record_s=inf, batch_ends_at_s=time.time() - 1, handle=seen.append)
    assert run(one, rows("t", 5)) == {Fate.RELINQUISHED: 5}
    assert not seen


@pytest.mark.broker
def test_recirculate_writes_letters(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    connection = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id="readers")
    one = task(Recirculate(), topic_name, connection=connection)
    assert run(one, rows(topic_name, 4)) == {Fate.PROCESSED: 3, Fate.RECIRCULATED: 1}
    (letter,) = records_in(kafka.bootstrap_servers, topic_name)
    origin = origin_of(letter)
    assert (letter.value, origin.offset, origin.retries) == (b"2", 2, 1)


def test_letters_that_cannot_be_written_are_an_error() -> None:
    connection = RangeSettings(
        bootstrap_servers=("localhost:1",), group_id="readers", timeouts=Timeouts(request_s=0.2)
    )
    one = task(SkipOrDeadLetter(), connection=connection)
    with pytest.raises(DeliveryError, match="the batch fails"):
        run(one, rows("t", 4))


RECORD = Record(b"k", b"v", "flights", 0, 17, 0)


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_groups.spark.processing.task.FIRST_PAUSE_S", 0.005)


def soon() -> float:
    return time.monotonic() + 1.0


class Failing:
    """Fails so many times, then succeeds."""

    def __init__(self, failures: float, error: type[Exception] = ValueError) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self, record: Record) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"{record} is bad")


def test_first_success_is_all() -> None:
    handle = Failing(0)
    assert attempt(handle, RECORD, soon()).error is None
    assert handle.calls == 1


@pytest.mark.parametrize("left_s", [inf, 3_600.0])
def test_it_is_tried_until_it_succeeds_and_each_failure_is_reported(
    left_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    tried = attempt(Failing(2), RECORD, time.monotonic() + left_s)
    assert (tried.attempts, tried.error) == (3, None)
    assert caplog.messages == [
        "flights-0@17, attempt 1: ValueError: flights-0@17 is bad; retrying in 0.005 s",
        "flights-0@17, attempt 2: ValueError: flights-0@17 is bad; retrying in 0.01 s",
    ]


def test_at_the_deadline_it_is_over() -> None:
    tried = attempt(Failing(inf), RECORD, soon())
    assert tried.error == "ValueError: flights-0@17 is bad"
    assert tried.attempts > 1


def test_what_hangs_is_interrupted_even_if_it_takes_every_error() -> None:
    def hangs(_: Record) -> None:
        try:
            time.sleep(600)
        except Exception:
            time.sleep(600)

    before = signal.getsignal(signal.SIGALRM)
    tried = attempt(hangs, RECORD, soon())
    assert tried.error is not None
    assert tried.error.startswith("TimeoutError: not processed by its deadline")
    assert signal.getsignal(signal.SIGALRM) is before


def test_what_hangs_again_while_it_cleans_up_is_interrupted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_groups.spark.processing.task.AGAIN_S", 0.05)

    def hangs(_: Record) -> None:
        try:
            time.sleep(600)
        finally:
            time.sleep(600)

    began_s = time.monotonic()
    tried = attempt(hangs, RECORD, soon())
    assert tried.error is not None
    assert tried.error.startswith("TimeoutError")
    assert time.monotonic() - began_s < SOON_S
    assert signal.getitimer(signal.ITIMER_REAL)[1] == 0


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("name \ud800"), "ValueError: name \\ud800"),
        (ValueError("é" * 5_000), "ValueError: " + "é" * 506),
    ],
    ids=["half of a pair", "long"],
)
def test_errors_are_reported_in_text_that_can_be_written(error: Exception, text: str) -> None:
    def handle(_: Record) -> NoReturn:
        raise error

    assert attempt(handle, RECORD, soon()).error == text


def test_error_without_a_usable_text_is_reported_by_its_name() -> None:
    class UntoldError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    assert attempt(Failing(inf, UntoldError), RECORD, soon()).error == "UntoldError"


def test_hopeless_record_is_tried_once_if_there_is_a_deadline() -> None:
    handle = Failing(2, UnprocessableError)
    tried = attempt(handle, RECORD, time.monotonic() + 3_600)
    assert (tried.attempts, tried.error) == (1, "UnprocessableError: flights-0@17 is bad")


def test_without_a_deadline_a_hopeless_record_is_waited_for_too() -> None:
    assert attempt(Failing(2, UnprocessableError), RECORD, inf).attempts == 3


def test_when_time_is_up_it_is_not_tried() -> None:
    def handle(_: Record) -> NoReturn:
        raise AssertionError("it was tried")

    tried = attempt(handle, RECORD, time.monotonic() - 1)
    assert (tried.attempts, tried.error) == (0, "its deadline passed before the first attempt")
