"""Writing records on a real broker: acknowledged, or an error that says why."""

from __future__ import annotations

import pytest

from spark_groups.errors import DeliveryError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing import record_writer
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record_writer import WRITERS, RecordWriter
from tests.brokers import create_topic
from tests.spark.processing.topics import records_in

pytestmark = pytest.mark.broker


def settings(kafka: EmbeddedKafka) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,), group_id="none", request_timeout_s=20.0
    )


def write_all(kafka: EmbeddedKafka, *letters: Letter) -> RecordWriter:
    """Write letters as a task does, and return the writer that was lent."""
    with WRITERS.borrow(settings(kafka)) as writer:
        for each in letters:
            writer.write(each)
        writer.await_delivery()
    return writer


def test_everything_is_there_after_the_wait(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 3)
    headers = (("h", b"1"), ("h", None))
    placed = Letter(topic_name, None, None, headers, partition=2)
    # Kafka's own producers send this key to partition 0 of 3: its murmur2 is -973932308.
    first = write_all(kafka, placed, Letter(topic_name, b"21", b"v", ()))
    found = records_in(kafka.bootstrap_servers, topic_name)
    assert [(each.partition, each.key, each.value, each.headers) for each in found] == [
        (0, b"21", b"v", ()),
        (2, None, None, headers),
    ]
    assert write_all(kafka, placed) is first


def test_what_the_broker_refuses_is_an_error_and_the_writer_is_not_kept(
    kafka: EmbeddedKafka, topic_name: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1, {"max.message.bytes": "1000"})
    small = Letter(topic_name, None, b"x", ())
    first = write_all(kafka, small)
    with pytest.raises(DeliveryError, match=f"the batch must not end: {topic_name}: .*too large"):
        write_all(kafka, Letter(topic_name, None, b"x" * 2_000, ()))
    assert write_all(kafka, small) is not first
    assert [each.value for each in records_in(kafka.bootstrap_servers, topic_name)] == [b"x"] * 2


def test_partition_that_is_not_there_is_an_error(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with pytest.raises(DeliveryError, match=topic_name):
        write_all(kafka, Letter(topic_name, None, b"x", (), partition=7))


def test_only_so_much_waits_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "WAITING_BYTES_MAX", 100)
    nowhere = RangeSettings(
        bootstrap_servers=("localhost:1",), group_id="none", request_timeout_s=0.2
    )
    writer = RecordWriter(nowhere)
    writer.write(Letter("t", b"key", b"x" * 90, ()))
    with pytest.raises(DeliveryError, match="and 1 more"):
        writer.write(Letter("t", b"key", b"x" * 90, ()))
    writer.close()
