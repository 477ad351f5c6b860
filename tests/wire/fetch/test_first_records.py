"""First records from real brokers: of idle, bursty, transactional and compacted topics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigOrigin
from spark_groups.wire.connection import Connection
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.fetch.first_unread import FirstRecord
from spark_groups.wire.schemas.wire_messages import FETCH
from tests.wire.coordinator_connection_setup import topic_id
from tests.wire.fetch.broker import TOPIC_ID, Broker, answered
from tests.wire.listener import listening
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.encoding import ZSTD, Batch, Record, compress, encode_records
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

BEGIN_MS = 1_700_000_000_000

pytestmark = pytest.mark.broker


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as opened:
        yield opened


def search(
    cluster: Cluster, topic: str, offsets: Mapping[int, int], *, read_committed: bool = False
) -> FirstRecords:
    identity = topic_id(cluster, topic)
    return cluster.first_records(
        {TopicIdPartition(identity, index): offset for index, offset in offsets.items()},
        read_committed=read_committed,
    )


def first(cluster: Cluster, topic: str, offset: int, *, read_committed: bool = False) -> object:
    """Return offset and time of the first record of partition 0, None if there is none."""
    answer = search(cluster, topic, {0: offset}, read_committed=read_committed)
    assert not answer.unknown, answer.unknown
    (found,) = answer.found.values()
    return None if found is None else (found.offset, found.timestamp_ms - BEGIN_MS)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_record_of_a_batch_has_its_own_time(
    kafka: EmbeddedKafka, cluster: Cluster, topic_name: str, codec: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, config={"retention.ms": "-1"})
    rows = [Row(b"v" * 500, partition=0, timestamp_ms=BEGIN_MS + i * 1000) for i in range(200)]
    batched = {"linger.ms": 500, "compression.type": codec}
    produce(kafka.bootstrap_servers, topic_name, rows, batched)
    for offset in (0, 1, 117, 199):
        assert first(cluster, topic_name, offset) == (offset, offset * 1000)
    assert first(cluster, topic_name, 200) is None


def test_one_search_reads_many_partitions_in_few_requests(
    kafka: EmbeddedKafka, cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 120
    create_topic(kafka.bootstrap_servers, topic_name, count, config={"retention.ms": "-1"})
    rows = [
        Row(b"v" * 30_000, partition=each, timestamp_ms=BEGIN_MS + each) for each in range(count)
    ]
    produce(kafka.bootstrap_servers, topic_name, [*rows[:40], Row(b"", partition=60)])
    sent = []
    send = Connection.send

    def counted(self, message, values, timeout_s):
        sent.append(message)
        return send(self, message, values, timeout_s)

    monkeypatch.setattr(Connection, "send", counted)
    answer = search(cluster, topic_name, dict.fromkeys(range(count), 0))
    assert not answer.unknown
    times = {
        each.partition: found and found.timestamp_ms - BEGIN_MS
        for each, found in answer.found.items()
    }
    assert {key: value for key, value in times.items() if value is not None and key != 60} == {
        each: each for each in range(40)
    }
    assert times[60] is not None
    assert sum(value is None for value in times.values()) == count - 41
    # Each large batch needs a request of its own, the empty partitions share them.
    assert sent.count(FETCH) <= 40 + count // 50 + 2


def test_markers_and_aborted_records_are_skipped_and_open_ones_wait(
    kafka: EmbeddedKafka, cluster: Cluster, topic_name: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic_name})
    producer.init_transactions(LONG_S)

    def write(*deltas_ms: int) -> None:
        producer.begin_transaction()
        for each in deltas_ms:
            producer.produce(topic_name, b"x", partition=0, timestamp=BEGIN_MS + each)
        assert producer.flush(LONG_S) == 0

    write(1, 2)  # offsets 0 and 1, and the marker at 2
    producer.commit_transaction(LONG_S)
    write(5_000, 6_000)  # 3 and 4, and the marker at 5
    producer.abort_transaction(LONG_S)
    write(90_000)  # 6
    assert first(cluster, topic_name, 2, read_committed=True) is None
    producer.commit_transaction(LONG_S)  # 7
    # A response to the commit may precede the marker.
    wait_until(
        lambda: first(cluster, topic_name, 3, read_committed=True) == (6, 90_000),
        what="the marker of the last transaction",
    )
    assert first(cluster, topic_name, 2, read_committed=True) == (6, 90_000)
    assert first(cluster, topic_name, 2) == (3, 5_000)
    assert first(cluster, topic_name, 5) == (6, 90_000)
    assert first(cluster, topic_name, 7) is None
    assert first(cluster, topic_name, 7, read_committed=True) is None


def test_with_log_append_time_the_time_is_that_of_the_broker(
    kafka: EmbeddedKafka, cluster: Cluster, topic_name: str
) -> None:
    create_topic(
        kafka.bootstrap_servers, topic_name, config={"message.timestamp.type": "LogAppendTime"}
    )
    before_ms = time.time_ns() // 1_000_000
    produce(kafka.bootstrap_servers, topic_name, [Row(b"x", partition=0, timestamp_ms=BEGIN_MS)])
    after_ms = time.time_ns() // 1_000_000
    ((found),) = search(cluster, topic_name, {0: 0}).found.values()
    assert isinstance(found, FirstRecord)
    assert before_ms <= found.timestamp_ms <= after_ms


def test_partitions_without_an_answer_are_unknown_and_the_others_are_read(
    kafka: EmbeddedKafka, cluster: Cluster, topic_name: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"x", partition=0)])
    answer = search(cluster, topic_name, {0: 0, 1: 99, 7: 0})
    assert [each.partition for each in answer.found] == [0]
    assert {each.partition: reason for each, reason in answer.unknown.items()} == {
        1: "OFFSET_OUT_OF_RANGE",
        7: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    late = cluster.first_records(dict.fromkeys(answer.found, 0), timeout_s=0.0)
    assert set(late.unknown.values()) == {"its leader did not answer in time"}


def test_a_walk_over_many_records_ends_at_the_deadline() -> None:
    many = encode_records((Record(),)) * 8_000_000
    batch = Batch(last_offset_delta=9, codec=ZSTD, count=8_000_000).encode(compress(ZSTD, many))
    broker = Broker(1, lambda index, offset: answered(records=batch if index else b""))
    walked, other = (TopicIdPartition(TOPIC_ID, index) for index in (1, 0))
    with (
        listening(broker, at_once=True) as broker.port,
        Cluster(f"127.0.0.1:{broker.port}", request_timeout_s=LONG_S) as cluster,
    ):
        began_s = time.monotonic()
        answer = cluster.first_records({walked: 9, other: 100}, timeout_s=2.0)
        took_s = time.monotonic() - began_s
    assert (answer.found, list(answer.unknown)) == ({other: None}, [walked])
    assert answer.unknown[walked] == "its records could not be searched in time"
    assert took_s < SOON_S


@pytest.mark.long
def test_behind_a_hole_of_compaction_the_next_record_is_the_first(topic_name: str) -> None:
    with EmbeddedKafka(server_properties={"log.cleaner.backoff.ms": "100"}) as kafka:
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
        rows = [
            Row(b"%d" % i, key=b"%d" % (i % 10), timestamp_ms=BEGIN_MS + i * 1000)
            for i in range(1000)
        ]
        produce(servers, topic_name, rows)
        with Cluster(servers) as cluster:

            def compacted() -> bool:
                # Only a segment that is closed is compacted: a later record closes it.
                produce(servers, topic_name, [Row(b"x", key=b"other")])
                return first(cluster, topic_name, 0) == (990, 990_000)

            wait_until(compacted, what="compaction")
            assert first(cluster, topic_name, 500) == (990, 990_000)
            assert first(cluster, topic_name, 995) == (995, 995_000)


def test_settings_of_several_topics_are_one_request(
    kafka: EmbeddedKafka, cluster: Cluster, topic_name: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, config={"retention.ms": "1234567"})
    keys = ("retention.ms", "retention.bytes")
    found, refused = cluster.topic_configurations([topic_name, "not-there"], keys)
    assert {key: each.value for key, each in found[topic_name].items()} == {
        "retention.ms": "1234567",
        "retention.bytes": "-1",
    }
    assert found[topic_name]["retention.ms"].origin is ConfigOrigin.TOPIC
    assert refused == {"not-there": "UNKNOWN_TOPIC_OR_PARTITION"}
