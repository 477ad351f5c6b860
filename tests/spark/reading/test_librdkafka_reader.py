"""The executors' reader where brokers are behind for a moment, and where Spark takes its time."""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka.admin import TopicDescription

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import AccessError, BrokerUnreachableError, DataLossError
from spark_groups.spark.options.librdkafka_options import FETCH_TUNING
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.librdkafka_consumer import RangeConsumer, librdkafka_settings
from spark_groups.spark.reading.librdkafka_reader import (
    BATCH_ROWS,
    RowBuffer,
    _existing,
    _Round,
    read_ranges,
)
from spark_groups.types import OffsetRange, TopicId
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.timeouts import Timeouts
from tests.secured import SecuredKafka
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

SETTINGS = RangeSettings(bootstrap_servers=("127.0.0.1:1",), group_id="g")


@pytest.fixture
def cache() -> Iterator[ConsumerCache[RangeConsumer]]:
    cache = ConsumerCache(RangeConsumer)
    yield cache
    cache.close()


@pytest.fixture
def settings(kafka: EmbeddedKafka, group_id: str) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,),
        group_id=group_id,
        timeouts=Timeouts(request_s=10.0),
    )


class _Behind(RangeConsumer):
    """A consumer whose first answers come from brokers that are not there or have not caught up."""

    behind: ClassVar[list[dict[str, TopicId] | Exception]] = []

    def topic_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        if not self.behind:
            return super().topic_ids(topics)
        answer = self.behind.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.broker
def test_broker_that_is_behind_is_asked_again(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    consumer = _Behind(settings)
    wanted = [OffsetRange(consumer.topic_ids([topic_name])[topic_name], topic_name, 0, 0, 3)]
    consumer.behind[:] = [{}, BrokerUnreachableError("gone"), {topic_name: uuid.uuid4()}]
    try:
        assert _existing(consumer, wanted) == wanted
        assert not consumer.behind
    finally:
        consumer.close()


class _Renewed(RangeConsumer):
    """A consumer whose topics are created again while it reads."""

    planned: ClassVar[dict[str, TopicId]] = {}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        planned, self.planned = self.planned, {}
        return planned or dict.fromkeys(topics, uuid.uuid4())


@pytest.mark.broker
def test_a_topic_recreated_while_it_is_read_is_reported(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 5)
    _Renewed.planned = topic_ids(settings, [topic_name])
    planned = [OffsetRange(_Renewed.planned[topic_name], topic_name, 0, 0, 5)]
    hasty = replace(settings, timeouts=Timeouts(request_s=4.0))
    batches = read_ranges(hasty, planned, cache=ConsumerCache(_Renewed))
    assert next(batches).num_rows == 5
    with pytest.raises(DataLossError, match="was deleted and created again"):
        next(batches)


@pytest.mark.broker
def test_offsets_that_are_there_after_all_are_read(
    kafka: EmbeddedKafka,
    topic_name: str,
    settings: RangeSettings,
    cache: ConsumerCache[RangeConsumer],
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 5)
    with cache.borrow(settings) as consumer:
        topic_id = consumer.topic_ids([topic_name])[topic_name]
        reading = _Round(consumer, [OffsetRange(topic_id, topic_name, 0, 1, 4)])
        # A leader that was behind said that offset 1 is none.
        (cursor,) = reading._cursors.values()
        reading._skip_lost(cursor)
        read = [row["offset"] for batch in reading.batches() for row in batch.to_pylist()]
    assert read == [1, 2, 3]


class _Fetcher:
    """A consumer, some of whose methods a subclass replaces."""

    def __init__(self, fetcher: Consumer) -> None:
        self._fetcher = fetcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


class _Leaderless(_Fetcher):
    """A fetcher for whose partition some answers are errors of brokers that are behind.

    Args:
        fetcher: The consumer that has the partition.
        answers: How many answers are errors.
        code: Their code.
    """

    def __init__(self, fetcher: Consumer, answers: int, code: int) -> None:
        super().__init__(fetcher)
        self.answers = answers
        self._code = code

    def get_watermark_offsets(self, *asked: Any, **how: Any) -> tuple[int, int]:
        if self.answers > 0:
            self.answers -= 1
            raise KafkaException(KafkaError(self._code))
        return self._fetcher.get_watermark_offsets(*asked, **how)


@pytest.mark.broker
@pytest.mark.parametrize("answers", [2, 1000])
# A broker that has just started does not know partitions that were added meanwhile.
@pytest.mark.parametrize(
    "code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION]
)
def test_offsets_are_asked_for_again_while_brokers_are_behind(
    kafka: EmbeddedKafka,
    topic_name: str,
    settings: RangeSettings,
    code: int,
    answers: int,
) -> None:
    is_over = answers > 100
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 5)
    consumer = RangeConsumer(
        replace(settings, timeouts=Timeouts(request_s=4.0 if is_over else 120.0))
    )
    try:
        topic_id = consumer.topic_ids([topic_name])[topic_name]
        reading = _Round(consumer, [OffsetRange(topic_id, topic_name, 0, 1, 4)])
        (cursor,) = reading._cursors.values()
        moving: Any = _Leaderless(consumer.fetcher, answers, code)
        consumer.fetcher = moving
        if is_over:
            with pytest.raises(BrokerUnreachableError, match=KafkaError(code).str()):
                reading._skip_lost(cursor)
            return
        reading._skip_lost(cursor)
        assert moving.answers == 0
        read = [row["offset"] for batch in reading.batches() for row in batch.to_pylist()]
        assert read == [1, 2, 3]
    finally:
        consumer.close()


class _Reporting(_Fetcher):
    """A fetcher that first reports that the partition does not exist, each time it is assigned.

    Args:
        fetcher: The consumer that has the partition.
        topic: The topic of the partition.
        reports: How often.
    """

    def __init__(self, fetcher: Consumer, topic: str, reports: int) -> None:
        super().__init__(fetcher)
        self._topic = topic
        self._reports = reports
        self._is_due = False

    def assign(self, positions: Any) -> None:
        self._is_due = self._reports > 0
        self._fetcher.assign(positions)

    def consume(self, *asked: Any) -> Any:
        if not self._is_due:
            return self._fetcher.consume(*asked)
        self._is_due, self._reports = False, self._reports - 1
        error = KafkaError(KafkaError._UNKNOWN_PARTITION)
        return [Message(topic=self._topic, partition=0, error=error)]


@pytest.mark.broker
@pytest.mark.parametrize(("reports", "is_over"), [(2, False), (1000, True)])
def test_a_partition_that_metadata_does_not_have_yet_is_read(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings, reports: int, is_over: bool
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 5)
    consumer = RangeConsumer(replace(settings, poll_timeout_s=2.0 if is_over else 60.0))
    try:
        topic_id = consumer.topic_ids([topic_name])[topic_name]
        reporting: Any = _Reporting(consumer.fetcher, topic_name, reports)
        consumer.fetcher = reporting
        batches = _Round(consumer, [OffsetRange(topic_id, topic_name, 0, 1, 4)]).batches()
        if is_over:
            with pytest.raises(BrokerUnreachableError, match="Unknown partition"):
                next(batches)
            return
        assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [1, 2, 3]
    finally:
        consumer.close()


@pytest.mark.broker
def test_a_partition_of_a_topic_that_was_deleted_is_lost(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    consumer = RangeConsumer(replace(settings, timeouts=Timeouts(request_s=4.0)))
    try:
        consumer.topic_ids([topic_name])
        reporting: Any = _Reporting(consumer.fetcher, topic_name, 1)
        consumer.fetcher = reporting
        planned = [OffsetRange(uuid.uuid4(), topic_name, 0, 1, 4)]
        with pytest.raises(DataLossError, match="Unknown partition"):
            next(_Round(consumer, planned).batches())
    finally:
        consumer.close()


def test_a_connection_that_librdkafka_gives_up_is_a_broker_that_does_not_answer() -> None:
    consumer = RangeConsumer(SETTINGS)
    try:
        given_up = KafkaError(KafkaError._DESTROY_BROKER)
        assert isinstance(consumer.failure(given_up, "describing t"), BrokerUnreachableError)
    finally:
        consumer.close()


@pytest.mark.broker
def test_time_that_spark_takes_over_a_batch_does_not_count(
    kafka: EmbeddedKafka,
    topic_name: str,
    settings: RangeSettings,
    cache: ConsumerCache[RangeConsumer],
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * BATCH_ROWS)
    impatient = replace(settings, poll_timeout_s=4.0)
    with cache.borrow(impatient) as consumer:
        topic_id = consumer.topic_ids([topic_name])[topic_name]
    planned = [OffsetRange(topic_id, topic_name, 0, 0, BATCH_ROWS + 5)]
    batches = read_ranges(impatient, planned, cache=cache)
    assert next(batches).num_rows == BATCH_ROWS
    time.sleep(impatient.poll_timeout_s)
    asked_s = time.monotonic()
    with pytest.raises(DataLossError):
        next(batches)
    assert time.monotonic() - asked_s > 0.9 * impatient.poll_timeout_s


@pytest.mark.broker
def test_buffer_is_empty_at_first() -> None:
    buffer = RowBuffer(include_headers=False)
    assert (len(buffer), buffer.size_bytes) == (0, 0)


def test_isolation_is_always_said_because_the_defaults_differ() -> None:
    assert librdkafka_settings(SETTINGS)["isolation.level"] == "read_uncommitted"
    committed = replace(SETTINGS, read_committed=True)
    assert librdkafka_settings(committed)["isolation.level"] == "read_committed"


def test_defaults_of_the_option_table_hold() -> None:
    found = librdkafka_settings(SETTINGS)
    for each in FETCH_TUNING:
        assert found.get(each.setting, "the system's") == each.default


def test_tuning_wins_over_the_defaults() -> None:
    tuned = replace(SETTINGS, tuning=(("fetch.wait.max.ms", "20"),), rack="r")
    assert librdkafka_settings(tuned)["fetch.wait.max.ms"] == "20"
    assert librdkafka_settings(tuned)["client.rack"] == "r"
    assert "client.rack" not in librdkafka_settings(SETTINGS)


def test_closed_consumer_leaves_no_client_behind() -> None:
    consumer = RangeConsumer(replace(SETTINGS, timeouts=Timeouts(request_s=0.2)))
    with pytest.raises(BrokerUnreachableError):
        consumer.topic_ids(["t"])
    assert consumer._admin is not None
    admin = weakref.ref(consumer._admin)
    consumer.close()
    wait_until(lambda: admin() is None, what="the end of the client that describes topics")


class _WaitsForOneBroker:
    """An admin client whose controller is down: it does not ask the other brokers."""

    def describe_topics(
        self, topics: TopicCollection, request_timeout: float
    ) -> dict[str, Future[TopicDescription]]:
        described: Future[TopicDescription] = Future()
        error = KafkaError(KafkaError._TIMED_OUT, f"nothing within {request_timeout} s")
        described.set_exception(KafkaException(error))
        return dict.fromkeys(topics.topic_names, described)


@pytest.mark.broker
def test_topics_are_described_by_another_broker_if_the_first_one_is_down(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    consumer = RangeConsumer(settings)
    consumer._admin = _WaitsForOneBroker()  # type: ignore[assignment]
    assert list(consumer.topic_ids([topic_name])) == [topic_name]
    consumer.close()


@pytest.mark.broker
def test_topics_that_do_not_exist_have_no_id(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    cache = ConsumerCache(RangeConsumer)
    settings = replace(SETTINGS, bootstrap_servers=(kafka.bootstrap_servers,))
    with cache.borrow(settings) as consumer:
        assert list(consumer.topic_ids([topic_name, f"{topic_name}-not"])) == [topic_name]
        consumer.look_up([topic_name])
    cache.close()


@pytest.mark.broker
@pytest.mark.parametrize("listener", ["LOGIN", "OTHERHOST"])
def test_refused_authentication_is_reported_at_once(secured: SecuredKafka, listener: str) -> None:
    settings = secured.login("SCRAM-SHA-512", password="wrong-word")
    if listener == "OTHERHOST":
        settings = secured.tls()
    consumer = RangeConsumer(
        RangeSettings(
            bootstrap_servers=(secured.kafka.listener(listener),),
            group_id="g",
            security=security_of(settings),
            timeouts=Timeouts(request_s=300),
        )
    )
    began_at = time.monotonic()
    with pytest.raises(AccessError, match="refuse this executor") as raised:
        consumer.topic_ids(["t"])
    assert time.monotonic() - began_at < 60
    assert "wrong-word" not in str(raised.value)
    consumer.close()
