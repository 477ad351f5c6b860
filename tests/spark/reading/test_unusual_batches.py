"""Batches of several compressed parts, or with bytes behind them, that a broker accepts.

Kafka's own consumer names their records.
"""

from __future__ import annotations

import logging
import re
import struct
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError, RecordsError
from spark_groups.spark.options.range_settings import (
    RangeSettings,
    ReaderChoice,
    UnreadableTimestamp,
)
from spark_groups.types import OffsetRange, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from tests.spark.reading.both_readers import table_of, topic_ids
from workshop.parts.blocks import CHECKED, frame, xxh32
from workshop.parts.brokers import Row, create_topic, produce, produce_batch
from workshop.parts.encoding import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_MAGIC,
    ZSTD,
    Batch,
    Record,
    compress,
    encode_records,
    plain,
    xerial,
)

pytestmark = pytest.mark.broker

RECORDS = tuple(Record(each, value=b"value %d" % each + bytes(20)) for each in range(6))
VALUES = [record.value for record in RECORDS]
BODY, HEAD, TAIL = (encode_records(each) for each in (RECORDS, RECORDS[:2], RECORDS[2:]))
CUT = len(HEAD) + 7
"""Within a record."""
SKIPPABLE = b"\x50\x2a\x4d\x18\x03\0\0\0abc"


def gz(body: bytes) -> bytes:
    return compress(GZIP, body)


def zstd(body: bytes, *, is_checked: bool = False) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=is_checked).compress(body)


def sized_frame(body: bytes, size: int) -> bytes:
    """Return an lz4 frame that states its size."""
    header = b"\x68\x40" + struct.pack("<Q", size)
    return frame(body, header + bytes((xxh32(header) >> 8 & 0xFF,)))


READ_BY_ALL = {
    "gzip, zeros": (GZIP, gz(BODY) + bytes(64)),
    "gzip, padding": (GZIP, gz(BODY) + b"padding" * 20),
    "gzip, half a header": (GZIP, gz(BODY) + gz(b"x")[:6]),
    "zstd, two": (ZSTD, zstd(HEAD) + zstd(TAIL)),
    "zstd, skippable": (ZSTD, SKIPPABLE + zstd(HEAD) + SKIPPABLE + zstd(TAIL) + SKIPPABLE),
    "snappy, two blocks": (SNAPPY, xerial(BODY, 60)),
    "snappy, an empty block": (SNAPPY, xerial(HEAD) + b"\0\0\0\x01\0" + xerial(TAIL)[16:]),
}
REFUSED_BY_LIBRDKAFKA = {
    "gzip, reserved flags": (GZIP, gz(BODY)[:3] + b"\xe0" + gz(BODY)[4:]),
    "zstd, half a magic number": (ZSTD, zstd(BODY) + zstd(b"x")[:3]),
    "zstd, half a skippable frame": (ZSTD, zstd(BODY) + SKIPPABLE[:-1]),
    "lz4, another frame": (LZ4, frame(BODY) + frame(b"other")),
    "lz4, zeros": (LZ4, frame(BODY) + bytes(8)),
    "lz4, padding": (LZ4, frame(BODY) + b"padding"),
    "lz4, a wrong checksum": (LZ4, frame(BODY, CHECKED)[:-1] + b"x"),
    "lz4, a wrong size": (LZ4, sized_frame(BODY, 5)),
    "snappy, two headers": (SNAPPY, xerial(HEAD) + xerial(b"") + xerial(TAIL)),
    "snappy, half a length": (SNAPPY, xerial(BODY) + bytes(3)),
    "snappy, another header": (SNAPPY, xerial(BODY) + XERIAL_MAGIC[:4] + bytes(12)),
}
SHORTENED_BY_LIBRDKAFKA = {
    "gzip, two": (GZIP, gz(HEAD) + gz(TAIL)),
    "gzip, three": (GZIP, gz(HEAD) + gz(b"") + gz(TAIL) + bytes(4)),
    "gzip, the last record apart": (
        GZIP,
        gz(encode_records(RECORDS[:5])) + gz(encode_records(RECORDS[5:])),
    ),
}
WITHIN_A_RECORD = (GZIP, gz(BODY[:CUT]) + gz(BODY[CUT:]))
# Librdkafka ends the process.
AN_EMPTY_MEMBER_FIRST = (GZIP, gz(b"") + gz(BODY))
# Librdkafka asks for the batch for ever; `lag` does not read a frame that does not end.
AN_INCOMPLETE_FRAME = (ZSTD, zstd(HEAD) + zstd(TAIL, is_checked=True)[:-4])


class Log:
    """A partition with one unusual batch of six records, and a usual one of two behind it."""

    def __init__(self, java: Any, kafka: EmbeddedKafka, topic: str) -> None:
        self.java = java
        self.servers = kafka.bootstrap_servers
        self.topic = topic
        create_topic(self.servers, topic)
        self.settings = RangeSettings(
            bootstrap_servers=(self.servers,), group_id=topic, poll_timeout_s=30.0
        )
        self.key = TopicIdPartition(topic_ids(self.settings, [topic])[topic], 0)

    def write(self, form: tuple[int, bytes]) -> None:
        codec, body = form
        for batch in (Batch(0, RECORDS, codec=codec).encode(body), plain(0, [b"7", b"8"]).encode()):
            assert produce_batch(self.servers, self.topic, 0, batch) == 0

    def by_java(self) -> list[bytes]:
        """Read all with Kafka's own consumer."""
        kafka, properties = self.java.org.apache.kafka, self.java.java.util.Properties()
        reading = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        properties.setProperty("bootstrap.servers", self.servers)
        properties.setProperty("key.deserializer", reading)
        properties.setProperty("value.deserializer", reading)
        partition = kafka.common.TopicPartition(self.topic, 0)
        partitions = self.java.java.util.List.of(partition)
        consumer = kafka.clients.consumer.KafkaConsumer(properties)
        values: list[bytes] = []
        try:
            consumer.assign(partitions)
            consumer.seekToBeginning(partitions)
            while consumer.position(partition) < 8:
                found = consumer.poll(self.java.java.time.Duration.ofSeconds(20)).iterator()
                assert found.hasNext(), "nothing came within 20 s"
                while found.hasNext():
                    values.append(bytes(found.next().value()))
        finally:
            consumer.close()
        return values

    def by(self, reader: ReaderChoice, begin: int = 0, until: int = 8, **changes: Any) -> list[Any]:
        wanted = OffsetRange(self.key.topic_id, self.topic, 0, begin, until)
        table = table_of(self.settings, [wanted], reader=reader, **changes)
        return table["value"].to_pylist()  # type: ignore[no-any-return]

    def first_records(self) -> list[int | None]:
        """Return the first record from each offset on, as `lag` finds it."""
        with Cluster(self.servers) as cluster:
            asked = [cluster.first_records({self.key: offset}) for offset in range(8)]
        found = [each.found.get(self.key) for each in asked]
        return [each.offset if each is not None else None for each in found]


@pytest.fixture
def log(java: Any, kafka: EmbeddedKafka, topic_name: str) -> Log:
    return Log(java, kafka, topic_name)


ALL = [*VALUES, b"7", b"8"]


@pytest.mark.parametrize("form", READ_BY_ALL.values(), ids=READ_BY_ALL)
def test_both_readers_return_what_kafkas_consumer_returns(
    log: Log, form: tuple[int, bytes]
) -> None:
    log.write(form)
    assert log.by_java() == ALL
    assert log.by(ReaderChoice.FAST) == ALL
    assert log.by(ReaderChoice.LIBRDKAFKA) == ALL
    assert log.first_records() == [*range(8)]


@pytest.mark.parametrize("form", REFUSED_BY_LIBRDKAFKA.values(), ids=REFUSED_BY_LIBRDKAFKA)
def test_what_librdkafka_refuses_is_an_error_that_names_the_other_reader(
    log: Log, form: tuple[int, bytes]
) -> None:
    log.write(form)
    assert log.by_java() == ALL
    assert log.by(ReaderChoice.FAST) == ALL
    with pytest.raises(RecordsError, match=r"offset 0 cannot be read by .* option reader to fast"):
        log.by(ReaderChoice.LIBRDKAFKA)
    assert log.first_records() == [*range(8)]


@pytest.mark.parametrize("form", SHORTENED_BY_LIBRDKAFKA.values(), ids=SHORTENED_BY_LIBRDKAFKA)
def test_records_that_librdkafka_leaves_out_are_an_error_not_silence(
    log: Log, form: tuple[int, bytes]
) -> None:
    log.write(form)
    assert log.by_java() == ALL
    assert log.by(ReaderChoice.FAST) == ALL
    for begin, until in ((0, 8), (0, 6), (1, 6), (5, 8), (5, 6)):
        assert log.by(ReaderChoice.FAST, begin, until) == ALL[begin:until]
        with pytest.raises(RecordsError, match=r"several parts.* option reader to fast"):
            log.by(ReaderChoice.LIBRDKAFKA, begin, until)
    # What the first member has is read.
    assert log.by(ReaderChoice.LIBRDKAFKA, 0, 2) == ALL[:2]
    assert log.by(ReaderChoice.LIBRDKAFKA, 6, 8) == ALL[6:]
    assert log.first_records() == [*range(8)]


def test_a_member_that_ends_within_a_record_stalls_librdkafka_and_the_error_says_what_helps(
    log: Log,
) -> None:
    log.write(WITHIN_A_RECORD)
    assert log.by_java() == ALL
    assert log.by(ReaderChoice.FAST) == ALL
    with pytest.raises(BrokerUnreachableError, match=r"leader returns records.*reader to fast"):
        log.by(ReaderChoice.LIBRDKAFKA, poll_timeout_s=4.0)
    assert log.first_records() == [*range(8)]


def test_a_batch_that_begins_with_an_empty_member_is_read(log: Log) -> None:
    log.write(AN_EMPTY_MEMBER_FIRST)
    assert log.by_java() == ALL
    assert log.by(ReaderChoice.FAST) == ALL
    assert log.first_records() == [*range(8)]


def test_what_there_is_of_an_incomplete_frame_is_read(log: Log) -> None:
    log.write(AN_INCOMPLETE_FRAME)
    assert log.by_java() == ALL
    assert log.by(ReaderChoice.FAST) == ALL


NANOSECONDS = 1_700_000_000_000_000_000


@pytest.mark.parametrize("reader", [ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA])
def test_timestamp_in_nanoseconds_is_named_or_read_as_null(
    kafka: EmbeddedKafka,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
    reader: ReaderChoice,
) -> None:
    unlimited = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    create_topic(kafka.bootstrap_servers, topic_name, 1, unlimited)
    rows = [
        Row(b"%d" % each, partition=0, timestamp_ms=NANOSECONDS + each if each % 2 else 1000)
        for each in range(6)
    ]
    produce(kafka.bootstrap_servers, topic_name, rows)
    settings = RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,), group_id=topic_name, poll_timeout_s=60.0
    )
    (topic_id,) = topic_ids(settings, [topic_name]).values()
    whole = [OffsetRange(topic_id, topic_name, 0, 0, 6)]
    named = re.escape(f"{topic_name}-0 at offset 1 has the timestamp {NANOSECONDS + 1} ms")
    with pytest.raises(RecordsError, match=f"{named}.*onUnreadableTimestamp"):
        table_of(settings, whole, reader=reader)
    with caplog.at_level(logging.WARNING):
        read = table_of(
            settings, whole, reader=reader, on_unreadable_timestamp=UnreadableTimestamp.NULL
        )
    assert read["value"].to_pylist() == [b"%d" % each for each in range(6)]
    times_us = read["timestamp"].cast(pa.int64()).to_pylist()
    assert times_us == [None if each % 2 else 1_000_000 for each in range(6)]
    (warning,) = [each.getMessage() for each in caplog.records]
    assert f"null for 3 records of {topic_name}-0" in warning
    assert f"at offset 1: {NANOSECONDS + 1} ms" in warning
