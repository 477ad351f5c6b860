"""The same bytes through librdkafka and through this decoder: record batches that are equal.

Librdkafka's mock broker keeps batches as they are produced, and so gives both the same.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from spark_groups.records.arrow_batches import RangeCursor, RecordDecoder
from spark_groups.spark.reading.librdkafka_reader import RowBuffer
from spark_groups.spark.reading.rows import ROW_SCHEMA_WITH_HEADERS
from tests.records.decoding import END, TP, random_batches
from tests.records.encoding import CREATE_TIME, Batch

PRODUCE, VERSION = 0, 7
NOT_TEXT = b"\xff\xfe"
WAIT_S = 10


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def produce(address: tuple[str, int], batch: bytes) -> None:
    """Send a batch as it is, in a request written after the protocol guide."""
    body = (
        struct.pack(">hhi", PRODUCE, VERSION, 1) + text("test") + struct.pack(">hhi", -1, -1, 9000)
    )
    body += struct.pack(">i", 1) + text(TP.topic)
    body += struct.pack(">iii", 1, TP.partition, len(batch)) + batch
    with socket.create_connection(address, timeout=WAIT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(TP.topic) + 4 + 4)
    assert error == 0


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    quiet = {"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": "mock"}
    owner = Producer(quiet)
    # Asking for a topic makes it.
    (broker,) = owner.list_topics(TP.topic, timeout=WAIT_S).brokers.values()
    yield broker.host, broker.port
    # The mock broker lives as long as its owner.
    owner.flush(0)


def read(address: tuple[str, int], count: int) -> pa.RecordBatch:
    """Return so many rows as the reader on librdkafka has them."""
    host, port = address
    consumer = Consumer({"bootstrap.servers": f"{host}:{port}", "group.id": "test", "log_level": 0})
    buffer = RowBuffer(include_headers=True)
    try:
        consumer.assign([Position(TP.topic, TP.partition, 0)])
        while len(buffer) < count:
            messages = consumer.consume(count - len(buffer), timeout=WAIT_S)
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


def test_record_batches_are_equal(address: tuple[str, int]) -> None:
    chance = random.Random(5)
    sent = [batch for batch in random_batches(chance, 120) if batch.records]
    assert {batch.codec for batch in sent} == {0, 1, 2, 3, 4}
    log, offset = bytearray(), 0
    for batch in sent:
        octets = numbered(batch, offset).encode()
        produce(address, octets)
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
