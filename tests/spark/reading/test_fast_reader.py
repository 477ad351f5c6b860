"""The fast reader's connections and memory: kept, bounded, given back."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError, SparkGroupsError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.compiled import prepare
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.types import OffsetRange
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import ANSWER_S, Row, create_topic, produce

prepare()

from spark_groups.spark.reading.fast_reader import FastConsumer, read_ranges  # noqa: E402

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(kafka: EmbeddedKafka, group_id: str) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,), group_id=group_id, poll_timeout_s=120.0
    )


@pytest.fixture
def cache() -> Iterator[ConsumerCache[FastConsumer]]:
    cache = ConsumerCache(FastConsumer)
    yield cache
    cache.close()


def written(settings: RangeSettings, topic: str, *rows: Row) -> list[OffsetRange]:
    """Write rows to the first partition of a new topic, and return the range of them."""
    servers = settings.bootstrap_servers[0]
    create_topic(servers, topic, config={"max.message.bytes": "100000000"})
    produce(servers, topic, rows, {"message.max.bytes": 100_000_000})
    return [OffsetRange(topic_ids(settings, [topic])[topic], topic, 0, 0, len(rows))]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts what Linux shows in /proc")
def test_a_thousand_batches_leave_neither_connections_nor_memory_behind(
    settings: RangeSettings, cache: ConsumerCache[FastConsumer], topic_name: str
) -> None:
    (whole,) = written(settings, topic_name, *(Row(b"x" * 1000) for _ in range(2000)))

    def read(batches: int) -> None:
        for number in range(batches):
            part = replace(whole, from_offset=number, until_offset=number + 500)
            rows = sum(batch.num_rows for batch in read_ranges(settings, [part], cache=cache))
            assert rows == 500

    read(100)
    files, bytes_before, arrow_before = open_files(), resident_bytes(), pa.total_allocated_bytes()
    read(1000)
    assert open_files() == files
    assert pa.total_allocated_bytes() <= arrow_before
    assert resident_bytes() - bytes_before < 16 * 2**20


def test_a_task_that_ends_early_gives_its_connections_back(
    settings: RangeSettings, cache: ConsumerCache[FastConsumer], topic_name: str
) -> None:
    whole = written(settings, topic_name, *(Row(b"x" * 1000) for _ in range(30_000)))
    batches = read_ranges(settings, whole, cache=cache)
    next(batches)
    batches.close()
    assert not cache._idle
    rows = sum(batch.num_rows for batch in read_ranges(settings, whole, cache=cache))
    assert rows == 30_000
    assert list(cache._idle) == [settings]


def test_a_record_that_does_not_fit_the_memory_names_the_option(
    settings: RangeSettings, cache: ConsumerCache[FastConsumer], topic_name: str
) -> None:
    whole = written(settings, topic_name, Row(b"x"), Row(bytes(6_000_000)))
    little = replace(settings, memory_bytes=16 * 2**20)
    with pytest.raises(SparkGroupsError, match=r"raise maxMemoryPerTask, which is 16777216"):
        list(read_ranges(little, whole, cache=cache))
    (first, second) = (
        value
        for batch in read_ranges(settings, whole, cache=cache)
        for value in batch["value"].to_pylist()
    )
    assert (first, len(second)) == (b"x", 6_000_000)


def test_records_that_never_come_are_named_in_time(
    settings: RangeSettings, cache: ConsumerCache[FastConsumer], topic_name: str
) -> None:
    (five,) = written(settings, topic_name, *[Row(b"x")] * 5)
    producer = Producer(
        {
            "bootstrap.servers": settings.bootstrap_servers[0],
            "transactional.id": topic_name,
            "log_level": 0,
        }
    )
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    producer.produce(topic_name, b"open")
    producer.flush(ANSWER_S)
    impatient = replace(settings, poll_timeout_s=4.0, read_committed=True)
    with pytest.raises(BrokerUnreachableError) as caught:
        list(read_ranges(impatient, [replace(five, until_offset=6)], cache=cache))
    producer.abort_transaction(ANSWER_S)
    assert f"{topic_name}-0 from offset 5 until 6" in str(caught.value)
    assert "kafkaConsumer.pollTimeoutMs" in str(caught.value)
    assert settings.bootstrap_servers[0] in str(caught.value)


READ = """
import pickle, resource, sys
from spark_groups.spark.reading.compiled import prepare
prepare()
from spark_groups.spark.reading.fast_reader import read_ranges
settings, ranges = pickle.loads(bytes.fromhex(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(batch.num_rows for batch in read_ranges(settings, ranges))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


OTHER_RECORDS = [
    *((size, "none") for size in (100, 10_000, 1_000_000)),
    *((size, "zstd") for size in (100, 10_000, 12_000_000)),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "codec"),
    [
        (1_000_000, "zstd"),
        (12_000_000, "none"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHER_RECORDS),
    ],
)
def test_memory_of_a_task_is_bounded_at_any_size_of_records(
    settings: RangeSettings, topic_name: str, size: int, codec: str
) -> None:
    total = min(200_000_000, 300_000 * size)
    servers = settings.bootstrap_servers[0]
    create_topic(servers, topic_name, 4, {"max.message.bytes": "100000000"})
    rows = (Row(bytes(size), partition=index % 4) for index in range(total // size))
    config = {"message.max.bytes": 100_000_000, "compression.type": codec, "linger.ms": 50}
    produce(servers, topic_name, rows, config)
    topic_id = topic_ids(settings, [topic_name])[topic_name]
    counts = [len(range(index, total // size, 4)) for index in range(4)]
    whole = [OffsetRange(topic_id, topic_name, index, 0, counts[index]) for index in range(4)]
    memory_bytes = 64 * 2**20
    asked = pickle.dumps((replace(settings, memory_bytes=memory_bytes), whole)).hex()
    answer = subprocess.run(
        [sys.executable, "-c", READ, asked], capture_output=True, text=True, check=True, timeout=800
    )
    count, grown_kb = map(int, answer.stdout.split())
    assert count == sum(counts)
    assert grown_kb * 1024 < memory_bytes
