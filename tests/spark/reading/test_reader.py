"""Both readers on a real broker: exactly the ranges, for any log."""

from __future__ import annotations

import gc
import logging
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError, DataLossError
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading import reader as readers
from spark_groups.spark.reading.librdkafka_reader import BATCH_BYTES, BATCH_ROWS
from spark_groups.spark.reading.reader import _reader, check_address_space, read_ranges
from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS
from spark_groups.types import OffsetRange
from spark_groups.wire.timeouts import Timeouts
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import ANSWER_S, Row, admin, create_topic, delete_topic, produce
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = pytest.mark.broker


@pytest.fixture(params=[ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA], ids=lambda each: each.value)
def settings(kafka: EmbeddedKafka, group_id: str, request: pytest.FixtureRequest) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,),
        group_id=group_id,
        poll_timeout_s=LONG_S,
        timeouts=Timeouts(request_s=10.0),
        reader=request.param,
    )


def test_process_with_too_little_address_space_reads_nothing() -> None:
    check_address_space(resource.RLIM_INFINITY)
    check_address_space(1 << 30)
    # Only another process can be limited, and have an end.
    code = (
        "import resource; from spark_groups.spark.reading import reader;"
        "resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20));"
        "next(reader.read_ranges(None, ()))"
    )
    arguments = [sys.executable, "-c", code]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "OptionsError: a Python worker may use 600 MiB of address space" in ended.stderr
    assert "set spark.executor.pyspark.memory to 1g or more" in ended.stderr


Rows = list[dict[str, object]]
Read = Callable[..., Rows]


@pytest.fixture
def read(settings: RangeSettings) -> Read:
    """Read (topic, topic partition, from, until) with settings changed as asked."""

    def read_them(*ranges: tuple[str, int, int, int], **changes: object) -> Rows:
        changed = replace(settings, **changes)  # type: ignore[arg-type]
        ids = topic_ids(changed, {topic for topic, _, _, _ in ranges})
        planned = [OffsetRange(ids[each[0]], *each) for each in ranges]
        return rows_of(read_ranges(changed, planned))

    return read_them


def rows_of(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_a_worker_imported_is_not_looked_through_after_each_task() -> None:
    gc.unfreeze()
    _reader.cache_clear()
    _reader(ReaderChoice.FAST)
    assert gc.get_freeze_count() > 10_000
    assert gc.isenabled()


def test_what_the_first_rows_loaded_is_not_looked_through_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[object] = []

    def load_and_read(*_: object) -> Iterator[pa.RecordBatch]:
        loaded.append([])
        yield from ()

    monkeypatch.setattr(readers, "_reader", lambda _: SimpleNamespace(read_ranges=load_and_read))
    readers._freeze_first_rows.cache_clear()
    for _ in range(2):
        assert not [*read_ranges(RangeSettings(bootstrap_servers=("none:1",), group_id="rows"), [])]
    first, second = loaded
    tracked = {id(each) for each in gc.get_objects()}
    assert id(first) not in tracked
    assert id(second) in tracked, "only after the first rows: frozen objects are never freed"


def offsets(rows: Rows, topic_partition: int = 0) -> list[object]:
    return [row["offset"] for row in rows if row["partition"] == topic_partition]


def log_end(kafka: EmbeddedKafka, topic: str, topic_partition: int = 0) -> int:
    asked = TopicPartition(topic, topic_partition)
    client = admin(kafka.bootstrap_servers)
    answer = client.list_offsets({asked: OffsetSpec.latest()})
    return answer[asked].result(ANSWER_S).offset


def test_ranges_are_read_exactly(kafka: EmbeddedKafka, topic_name: str, read: Read) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=3)
    rows = [Row(b"%d" % i, partition=i % 3) for i in range(300)]
    produce(kafka.bootstrap_servers, topic_name, rows)
    found = read((topic_name, 0, 0, 100), (topic_name, 1, 10, 11), (topic_name, 2, 40, 90))
    assert offsets(found, 0) == list(range(100))
    assert offsets(found, 1) == [10]
    assert offsets(found, 2) == list(range(40, 90))
    assert {row["value"] for row in found if row["partition"] == 1} == {b"31"}
    assert {row["topic"] for row in found} == {topic_name}


def test_pieces_of_one_partition_and_empty_ranges(
    kafka: EmbeddedKafka, topic_name: str, read: Read
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    produce(kafka.bootstrap_servers, topic_name, (Row(b"x", partition=0) for _ in range(50)))
    found = read(
        (topic_name, 0, 30, 40),
        (topic_name, 0, 0, 10),
        (topic_name, 0, 20, 20),
        (topic_name, 1, 0, 0),
        (topic_name, 0, 10, 15),
    )
    assert sorted(map(int, offsets(found))) == [*range(15), *range(30, 40)]
    assert read((topic_name, 1, 0, 0)) == []


def test_two_topics_in_one_task(kafka: EmbeddedKafka, topic_name: str, read: Read) -> None:
    other = f"{topic_name}-2"
    for name in (topic_name, other):
        create_topic(kafka.bootstrap_servers, name)
        produce(kafka.bootstrap_servers, name, [name.encode()] * 5)
    found = read((topic_name, 0, 0, 5), (other, 0, 2, 5))
    assert [row["value"] for row in found if row["topic"] == other] == [other.encode()] * 3
    assert len([row for row in found if row["topic"] == topic_name]) == 5


def test_nulls_empty_values_headers_and_timestamps(
    kafka: EmbeddedKafka, topic_name: str, read: Read
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    headers = (("a", b"1"), ("a", None), ("", b""))
    time_ms = 1_577_836_800_123
    produce(
        kafka.bootstrap_servers,
        topic_name,
        [
            Row(None, key=b"k", timestamp_ms=time_ms),
            Row(b"", key=b"", timestamp_ms=time_ms, headers=headers),
            Row(b"\xff\x00", key=None, timestamp_ms=1),
        ],
    )
    found = read((topic_name, 0, 0, 3), include_headers=True)
    assert [(row["key"], row["value"]) for row in found] == [
        (b"k", None),
        (b"", b""),
        (None, b"\xff\x00"),
    ]
    assert [row["headers"] for row in found] == [
        None,
        [{"key": key, "value": value} for key, value in headers],
        None,
    ]
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    expected = [epoch + timedelta(milliseconds=ms) for ms in (time_ms, time_ms, 1)]
    assert [row["timestamp"] for row in found] == expected
    assert [row["timestampType"] for row in found] == [0, 0, 0]
    assert "headers" not in read((topic_name, 0, 0, 1))[0]


def test_log_append_time_is_type_one(kafka: EmbeddedKafka, topic_name: str, read: Read) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    create_topic(kafka.bootstrap_servers, topic_name, config=config)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"x", timestamp_ms=5)])
    (row,) = read((topic_name, 0, 0, 1))
    assert row["timestampType"] == 1
    assert row["timestamp"] > datetime(2020, 1, 1, tzinfo=timezone.utc)  # type: ignore[operator]


def test_schema_is_that_of_the_kafka_source(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"])
    for include_headers, schema in ((False, ROW_SCHEMA), (True, ROW_SCHEMA_WITH_HEADERS)):
        changed = replace(settings, include_headers=include_headers)
        topic_id = topic_ids(changed, [topic_name])[topic_name]
        ranges = [OffsetRange(topic_id, topic_name, 0, 0, 1)]
        batches = list(read_ranges(changed, ranges))
        assert [batch.schema for batch in batches] == [schema]


def test_batches_are_bounded_and_garbage_is_collected_again(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2, {"max.message.bytes": "3000000"})
    small = BATCH_ROWS * 2 + 7
    produce(kafka.bootstrap_servers, topic_name, (Row(b"x", partition=0) for _ in range(small)))
    large = [Row(bytes(1_000_000), partition=1) for _ in range(40)]
    produce(kafka.bootstrap_servers, topic_name, large, {"message.max.bytes": 3_000_000})
    topic_id = topic_ids(settings, [topic_name])[topic_name]
    many = [OffsetRange(topic_id, topic_name, 0, 0, small)]
    sizes = [batch.num_rows for batch in read_ranges(settings, many)]
    assert sum(sizes) == small
    assert max(sizes) <= BATCH_ROWS + 2_000
    heavy = [OffsetRange(topic_id, topic_name, 1, 0, 40)]
    batches = list(read_ranges(settings, heavy))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) < 3 * BATCH_BYTES
    assert gc.isenabled()


# Ranges with fewer rows than offsets


def transactional(kafka: EmbeddedKafka) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": uuid.uuid4().hex,
            "log_level": 0,
        }
    )
    producer.init_transactions(ANSWER_S)
    return producer


def write_transaction(
    producer: Producer, topic: str, values: Iterable[bytes], commit: bool
) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(ANSWER_S)
    if commit:
        producer.commit_transaction(ANSWER_S)
    else:
        producer.abort_transaction(ANSWER_S)


def test_control_record_at_the_end(kafka: EmbeddedKafka, topic_name: str, read: Read) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    producer = transactional(kafka)
    write_transaction(producer, topic_name, [b"a", b"b"], commit=True)
    # A commit is answered before its marker stands in the log.
    wait_until(lambda: log_end(kafka, topic_name) == 3, what="the marker of the transaction")
    for read_committed in (False, True):
        found = read((topic_name, 0, 0, 3), read_committed=read_committed)
        assert [row["value"] for row in found] == [b"a", b"b"]
        assert read((topic_name, 0, 2, 3), read_committed=read_committed) == []


def test_aborted_transaction(kafka: EmbeddedKafka, topic_name: str, read: Read) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    producer = transactional(kafka)
    write_transaction(producer, topic_name, [b"a"] * 3, commit=True)
    write_transaction(producer, topic_name, [b"gone"] * 5, commit=False)
    end = 10
    wait_until(lambda: log_end(kafka, topic_name) == end, what="the markers of both transactions")
    assert offsets(read((topic_name, 0, 0, end), read_committed=True)) == [0, 1, 2]
    assert read((topic_name, 0, 4, end), read_committed=True) == []
    assert len(read((topic_name, 0, 0, end))) == 8
    write_transaction(producer, topic_name, [b"b"], commit=True)
    assert offsets(read((topic_name, 0, 0, end + 2), read_committed=True)) == [0, 1, 2, 10]
    assert offsets(read((topic_name, 0, 0, end), read_committed=True)) == [0, 1, 2]


def test_open_transaction_behind_the_range(
    kafka: EmbeddedKafka, topic_name: str, read: Read
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    producer = transactional(kafka)
    write_transaction(producer, topic_name, [b"a"], commit=True)
    producer.begin_transaction()
    producer.produce(topic_name, b"open", partition=0)
    producer.flush(ANSWER_S)
    # The last stable offset is 2: the marker of the first transaction stands before it.
    assert offsets(read((topic_name, 0, 0, 2), read_committed=True)) == [0]
    producer.abort_transaction(ANSWER_S)


@pytest.mark.long
def test_compacted_topic_with_gaps_at_the_end(topic_name: str, settings: RangeSettings) -> None:
    properties = {"log.cleaner.backoff.ms": "100"}
    with EmbeddedKafka(server_properties=properties) as kafka:
        servers = kafka.bootstrap_servers
        create_topic(
            servers,
            topic_name,
            config={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "100",
            },
        )
        settings = replace(settings, bootstrap_servers=(servers,))
        topic_id = topic_ids(settings, [topic_name])[topic_name]

        def read(first: int, until: int) -> list[object]:
            ranges = [OffsetRange(topic_id, topic_name, 0, first, until)]
            return offsets(rows_of(read_ranges(settings, ranges)))

        produce(servers, topic_name, [Row(b"%d" % i, key=b"%d" % (i % 10)) for i in range(1000)])

        def compacted() -> bool:
            # Only a segment that is closed is compacted: a later record closes it.
            produce(servers, topic_name, [Row(b"x", key=b"other")])
            return len(read(0, 1000)) < 100

        wait_until(compacted, what="compaction")
        kept = read(0, 1000)
        assert kept == list(range(990, 1000))
        assert read(0, 990) == []
        assert read(500, 995) == list(range(990, 995))


# Missing offsets


def delete_before(kafka: EmbeddedKafka, topic: str, offset: int) -> None:
    asked = TopicPartition(topic, 0, offset)
    client = admin(kafka.bootstrap_servers)
    client.delete_records([asked])[asked].result(ANSWER_S)


def test_offsets_that_retention_took_fail_the_task(
    kafka: EmbeddedKafka, topic_name: str, read: Read
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 20)
    delete_before(kafka, topic_name, 8)
    with pytest.raises(DataLossError) as caught:
        read((topic_name, 0, 5, 15))
    text = str(caught.value)
    assert f"{topic_name}-0 from offset 5 until 15" in text
    assert "from 8 until 20" in text
    assert "failOnDataLoss" in text


def test_without_fail_on_data_loss_the_rest_is_read(
    kafka: EmbeddedKafka, topic_name: str, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    produce(kafka.bootstrap_servers, topic_name, (Row(b"x", partition=i % 2) for i in range(40)))
    delete_before(kafka, topic_name, 8)
    with caplog.at_level(logging.WARNING, "spark_groups"):
        found = read((topic_name, 0, 5, 15), (topic_name, 1, 0, 20), fail_on_data_loss=False)
    assert offsets(found, 0) == list(range(8, 15))
    assert offsets(found, 1) == list(range(20))
    assert "failOnDataLoss is false" in caplog.text
    assert read((topic_name, 0, 2, 6), fail_on_data_loss=False) == []


def test_offsets_beyond_the_end_are_lost_too(
    kafka: EmbeddedKafka, topic_name: str, read: Read
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 5)
    with pytest.raises(DataLossError, match="from 0 until 5"):
        read((topic_name, 0, 50, 60))
    assert read((topic_name, 0, 50, 60), fail_on_data_loss=False) == []


def test_a_range_whose_end_was_cut_off_is_lost_from_there(
    kafka: EmbeddedKafka, topic_name: str, read: Read
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    produce(kafka.bootstrap_servers, topic_name, (Row(b"x", partition=i % 2) for i in range(10)))
    with pytest.raises(DataLossError, match=r"from offset 5 until 9 .* from 0 until 5"):
        read((topic_name, 0, 0, 9), poll_timeout_s=4.0)
    pieces = ((topic_name, 0, 2, 9), (topic_name, 1, 0, 5))
    found = read(*pieces, poll_timeout_s=4.0, fail_on_data_loss=False)
    assert (offsets(found, 0), offsets(found, 1)) == ([2, 3, 4], [0, 1, 2, 3, 4])


def test_topic_that_was_created_again_is_another_topic(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    settings = replace(settings, timeouts=Timeouts(request_s=4.0))
    old_id = topic_ids(settings, [topic_name])[topic_name]
    planned = [OffsetRange(old_id, topic_name, 0, 0, 3)]
    delete_topic(kafka.bootstrap_servers, topic_name)
    with pytest.raises(DataLossError, match=f"the topic {topic_name} .* was deleted: 3 offsets"):
        list(read_ranges(settings, planned))
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"new"] * 5)
    with pytest.raises(DataLossError, match="was deleted and created again"):
        list(read_ranges(settings, planned))
    forgiving = replace(settings, fail_on_data_loss=False)
    assert list(read_ranges(forgiving, planned)) == []


# What does not answer


def test_broker_that_is_not_there_is_named_in_time(
    settings: RangeSettings, unused_address: str
) -> None:
    nowhere = replace(
        settings, bootstrap_servers=(unused_address,), timeouts=Timeouts(request_s=1.0)
    )
    began_s = time.monotonic()
    with pytest.raises(BrokerUnreachableError, match=unused_address):
        list(read_ranges(nowhere, [OffsetRange(uuid.uuid4(), "t", 0, 0, 5)]))
    assert time.monotonic() - began_s < SOON_S


@pytest.fixture
def unused_address() -> str:
    # Port 1 is reserved: nothing listens there, and nothing else will take it meanwhile.
    return "127.0.0.1:1"
