"""The same bytes through librdkafka and through this decoder: record batches that are equal.

Librdkafka's mock broker keeps batches as they are produced, and so gives both the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from spark_groups.records.arrow_batches import RecordDecoder
from spark_groups.spark.reading.librdkafka_reader import RowBuffer
from spark_groups.spark.reading.rows import ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import RangeCursor
from workshop.parts.brokers import ANSWER_S, produce_batch
from workshop.parts.decoding import END, TP, random_batches
from workshop.parts.encoding import CREATE_TIME, Batch

NOT_TEXT = b"\xff\xfe"


@pytest.fixture
def address() -> Iterator[str]:
    quiet = {"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": "mock"}
    owner = Producer(quiet)
    # Asking for a topic makes it.
    (broker,) = owner.list_topics(TP.topic, timeout=ANSWER_S).brokers.values()
    yield f"{broker.host}:{broker.port}"
    # The mock broker lives as long as its owner.
    owner.flush(0)


def read(address: str, count: int) -> pa.RecordBatch:
    """Return so many rows as the reader on librdkafka has them."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "log_level": 0})
    buffer = RowBuffer(include_headers=True)
    try:
        consumer.assign([Position(TP.topic, TP.partition, 0)])
        while len(buffer) < count:
            messages = consumer.consume(count - len(buffer), timeout=ANSWER_S)
            assert messages
            assert not any(message.error() for message in messages)
            buffer.add(TP.topic, TP.partition, messages, 0)
    finally:
        consumer.close()
    return buffer.take()


def numbered(batch: Batch, base_offset: int) -> Batch:
    """Return a batch as a producer sends it: offsets without gaps, and headers that are text.

    Librdkafka's Python client raises for keys of headers that are not.
    """
    records = tuple(
        replace(
            record,
            offset_delta=number,
            headers=tuple(each for each in record.headers if each[0] != NOT_TEXT),
        )
        for number, record in enumerate(batch.records)
    )
    return replace(batch, base_offset=base_offset, records=records, last_offset_delta=None)


def test_record_batches_are_equal(address: str) -> None:
    chance = random.Random(5)
    sent = [batch for batch in random_batches(chance, 120) if batch.records]
    assert {batch.codec for batch in sent} == {0, 1, 2, 3, 4}
    log, offset = bytearray(), 0
    for batch in sent:
        octets = numbered(batch, offset).encode()
        assert produce_batch(address, TP.topic, TP.partition, octets) == 0
        log += octets
        offset += len(batch.records)
    decoder = RecordDecoder(ROW_SCHEMA_WITH_HEADERS)
    assert not list(decoder.decode(log, RangeCursor(TP, 0, END)))
    found, expected = decoder.take(), read(address, offset)
    assert found is not None
    assert found.schema == expected.schema
    assert len(found) == len(expected) == offset > 500
    for name in ROW_SCHEMA_WITH_HEADERS.names:
        assert found[name].equals(expected[name]), name
    assert {CREATE_TIME, 1} == set(found["timestampType"].to_pylist())
