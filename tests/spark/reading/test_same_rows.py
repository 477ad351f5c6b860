"""Both readers return the same rows for any records in any storage format."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.member.messages import ListOffsetsRequest
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.types import LATEST_TIMESTAMP, OffsetRange, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.security.security_settings import security_of
from tests.secured import SecuredKafka
from tests.spark.reading.both_readers import rows_of_all_sorts, same_rows, table_of, topic_ids
from workshop.parts.brokers import ANSWER_S, Row, create_topic, produce, stamp
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TINY_FETCHES = (("max.partition.fetch.bytes", "1"),)


@pytest.fixture
def settings(kafka: EmbeddedKafka, group_id: str) -> RangeSettings:
    return RangeSettings(
        bootstrap_servers=(kafka.bootstrap_servers,), group_id=group_id, poll_timeout_s=30.0
    )


def whole(settings: RangeSettings, topic: str, *ends: int) -> list[OffsetRange]:
    topic_id = topic_ids(settings, [topic])[topic]
    return [OffsetRange(topic_id, topic, index, 0, end) for index, end in enumerate(ends)]


@pytest.mark.parametrize("codec", CODECS)
def test_all_sorts_of_records_in_all_codecs(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings, codec: str
) -> None:
    chance = random.Random(codec)
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    config = {"compression.type": codec, "batch.size": 20_000}
    produce(kafka.bootstrap_servers, topic_name, rows_of_all_sorts(chance, 3000), config)
    everything = same_rows(settings, whole(settings, topic_name, 1500, 1500))
    assert everything.num_rows == 3000
    assert 0 < everything["value"].null_count < 1000
    assert 0 < everything["headers"].null_count < 3000


@pytest.mark.parametrize("version", ["4.0.0"])
def test_all_sorts_of_records_of_the_oldest_broker(
    kafka_version: Callable[[str], EmbeddedKafka], topic_name: str, group_id: str, version: str
) -> None:
    servers = kafka_version(version).bootstrap_servers
    settings = RangeSettings(bootstrap_servers=(servers,), group_id=group_id, poll_timeout_s=30.0)
    create_topic(servers, topic_name, partitions=2)
    produce(servers, topic_name, rows_of_all_sorts(random.Random(4), 3000))
    assert same_rows(settings, whole(settings, topic_name, 1500, 1500)).num_rows == 3000


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_the_broker_compresses_and_stamps(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings, codec: str
) -> None:
    stored = "uncompressed" if codec == "none" else codec
    config = {"compression.type": stored, "message.timestamp.type": "LogAppendTime"}
    create_topic(kafka.bootstrap_servers, topic_name, 2, config)
    produce(
        kafka.bootstrap_servers,
        topic_name,
        rows_of_all_sorts(random.Random(3), 400),
        {"compression.type": "gzip"},
    )
    everything = same_rows(settings, whole(settings, topic_name, 200, 200))
    assert everything["timestampType"].unique().to_pylist() == [1]
    assert everything.num_rows == 400


def test_records_that_are_stamped_by_the_broker_between_others(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    chance = random.Random(8)
    for codec, kind in (("lz4", "CreateTime"), ("zstd", "LogAppendTime"), ("none", "CreateTime")):
        stamp(kafka.bootstrap_servers, topic_name, kind)
        config = {"compression.type": codec, "batch.size": 20_000}
        produce(kafka.bootstrap_servers, topic_name, rows_of_all_sorts(chance, 400), config)
    ends = [stable_end(settings, topic_name, each) for each in range(2)]
    everything = same_rows(settings, whole(settings, topic_name, *ends)).to_pylist()
    stamped = [each for each in everything if each["timestampType"] == 1]
    assert len(stamped) >= 400
    assert len(everything) - len(stamped) >= 800
    # A producer's own times are from 1970 and from the year 2004.
    assert min(each["timestamp"] for each in stamped).year > 2004


@pytest.mark.long
def test_any_part_of_a_partition_in_any_steps(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    chance = random.Random(11)
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    for codec in CODECS:
        config = {"compression.type": codec, "batch.size": 3000}
        produce(kafka.bootstrap_servers, topic_name, rows_of_all_sorts(chance, 400), config)
    everything = same_rows(settings, whole(settings, topic_name, 1000, 1000))
    topic_id = topic_ids(settings, [topic_name])[topic_name]
    for _ in range(60):
        cuts = [sorted(chance.sample(range(1001), 2)) for _ in range(2)]
        ranges = [
            OffsetRange(topic_id, topic_name, index, first, until)
            for index, (first, until) in enumerate(cuts)
        ]
        changes = {"tuning": chance.choice(((), TINY_FETCHES))}
        found = table_of(settings, ranges, reader=ReaderChoice.FAST, **changes)
        parts = [
            everything.slice(1000 * index + first, until - first)
            for index, (first, until) in enumerate(cuts)
        ]
        assert found.slice(0, len(parts[0])).equals(parts[0])
        assert found.slice(len(parts[0])).equals(parts[1])


def test_large_records_through_little_memory(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2, {"max.message.bytes": "4000000"})
    large = [
        Row(random.Random(index).randbytes(1_000_000 + 50_000 * index), partition=index % 2)
        for index in range(30)
    ]
    for codec in ("none", "zstd"):
        config = {"message.max.bytes": 4_000_000, "compression.type": codec}
        produce(kafka.bootstrap_servers, topic_name, large, config)
    ranges = whole(settings, topic_name, 30, 30)
    assert same_rows(settings, ranges, memory_bytes=16 * 2**20, tuning=TINY_FETCHES).num_rows == 60


@pytest.mark.parametrize("read_committed", [False, True])
def test_transactions_that_are_committed_aborted_and_between_each_other(
    kafka: EmbeddedKafka, topic_name: str, settings: RangeSettings, read_committed: bool
) -> None:
    chance = random.Random(5)
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, partitions=2)
    plain = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 0})
    producers = []
    for _ in range(3):
        config = {"transactional.id": uuid.uuid4().hex, "log_level": 0, "linger.ms": 0}
        producers.append(Producer({"bootstrap.servers": servers, **config}))
        producers[-1].init_transactions(ANSWER_S)
    running: set[int] = set()
    for step in range(60):
        index = chance.randrange(3)
        if index not in running:
            producers[index].begin_transaction()
            running.add(index)
        for _ in range(chance.randrange(1, 6)):
            producers[index].produce(topic_name, b"%d" % step, partition=chance.randrange(2))
        producers[index].flush(ANSWER_S)
        if chance.random() < 0.5:
            end = chance.choice(
                (producers[index].commit_transaction, producers[index].abort_transaction)
            )
            end(ANSWER_S)
            running.discard(index)
        plain.produce(topic_name, b"plain", partition=step % 2)
        plain.flush(ANSWER_S)
    for index in running:
        producers[index].abort_transaction(ANSWER_S)
    ends = [stable_end(settings, topic_name, each) for each in range(2)]
    changes = {"read_committed": read_committed}
    everything = same_rows(settings, whole(settings, topic_name, *ends), **changes)
    assert everything["value"].to_pylist().count(b"plain") == 60
    topic_id = topic_ids(settings, [topic_name])[topic_name]
    for _ in range(25):
        first, until = sorted(chance.sample(range(ends[0] + 1), 2))
        part = [OffsetRange(topic_id, topic_name, 0, first, until)]
        expected = [
            row
            for row in everything.to_pylist()
            if row["partition"] == 0 and first <= row["offset"] < until
        ]
        found = table_of(settings, part, reader=ReaderChoice.FAST, tuning=TINY_FETCHES, **changes)
        assert found.to_pylist() == expected


def stable_end(settings: RangeSettings, topic: str, index: int) -> int:
    """Return the end of a partition, once the markers of all transactions stand in it."""
    key = TopicIdPartition(topic_ids(settings, [topic])[topic], index)

    def end() -> int | None:
        with Cluster(settings.bootstrap_servers) as cluster:
            last, stable = (
                cluster.list_offsets(
                    ListOffsetsRequest(
                        partitions=frozenset({key}),
                        timestamp_ms=LATEST_TIMESTAMP,
                        read_committed=read_committed,
                    )
                )
                .answers[key]
                .offset
                for read_committed in (False, True)
            )
        return stable if stable == last else None

    return wait_until(end, what=f"the end of all transactions in {topic}-{index}")


@pytest.mark.parametrize("how", ["TLS", "SCRAM-SHA-512", "JKS"])
def test_over_tls_with_and_without_a_login(
    secured: SecuredKafka, topic_name: str, group_id: str, how: str, tmp_path: Path
) -> None:
    create_topic(secured.kafka.bootstrap_servers, topic_name, 2)
    produce(
        secured.kafka.bootstrap_servers, topic_name, rows_of_all_sorts(random.Random(2), 5000, 3000)
    )
    listener, given, user = "TLS", secured.tls(), None
    if how == "JKS":
        listener, given, user = "MUTUAL", secured.java_stores(tmp_path), "CN=carol"
    elif how != "TLS":
        listener, given, user = "LOGIN", secured.login(how), "alice"
    if user is not None:
        secured.allow(user, "TOPIC", topic_name, "READ")
        secured.allow(user, "GROUP", group_id, "READ")
    settings = RangeSettings(
        bootstrap_servers=(secured.kafka.listener(listener),),
        group_id=group_id,
        security=security_of(given),
    )
    assert same_rows(settings, whole(settings, topic_name, 2500, 2500)).num_rows == 5000
