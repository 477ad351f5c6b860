"""A limit in bytes on a real broker: the driver samples records and limits offsets."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group import trigger
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.types import BatchPlan
from tests.runtime.members import queries
from workshop.parts.brokers import ANSWER_S, Row, create_topic, produce

pytestmark = pytest.mark.broker

KB = 1024
LIMIT = PlanLimit(max_bytes=1000 * KB)
BATCHED = {"linger.ms": 200}


def offsets(plan: BatchPlan) -> int:
    return sum(map(len, plan.ranges))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_topics_of_small_and_of_large_records_are_limited_alike(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, codec: str
) -> None:
    servers = kafka.bootstrap_servers
    for kind, size, count in (("small", KB, 3_000), ("large", 100 * KB, 40)):
        topic = f"{topic_name}-{kind}"
        create_topic(servers, topic, 2)
        rows = [Row(b"v" * size, partition=each % 2) for each in range(count)]
        produce(servers, topic, rows, {**BATCHED, "compression.type": codec})
        with queries(servers, f"{group_id}-{kind}", topic) as start:
            read = offsets(start().plan_rows(LIMIT))
        # Each of two partitions gets whole records, and a record is a little more than its value.
        assert 800 * KB <= read * size <= 1000 * KB


def test_the_smaller_of_both_limits_counts(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v" * 10 * KB)] * 200, BATCHED)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        assert offsets(query.plan_rows(PlanLimit(max_offsets=7, max_bytes=1000 * KB))) == 7
        assert 80 <= offsets(query.plan_rows(PlanLimit(max_offsets=190, max_bytes=1000 * KB))) < 110


def test_records_that_grow_do_not_break_the_limit_and_available_now_reads_them_all(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    sizes = [KB] * 1_000 + [100 * KB] * 30
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v" * size) for size in sizes], BATCHED)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        query.driver.prepare_available_now()
        batches = []
        while (plan := query.run(LIMIT)) is not None:
            batches += [sum(sizes[each.from_offset : each.until_offset]) for each in plan.ranges]
        assert sum(batches) == sum(sizes)
        assert max(batches) <= 2 * 1000 * KB
        assert len(batches) <= 3 * sum(sizes) // (1000 * KB)


def test_markers_and_records_of_aborted_transactions_do_not_stop_a_batch(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name}
    )
    producer.init_transactions(ANSWER_S)
    for each in range(6):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(topic_name, b"v" * 10 * KB, partition=0)
        if each % 2:
            producer.commit_transaction(ANSWER_S)
        else:
            assert producer.flush(ANSWER_S) == 0
            producer.abort_transaction(ANSWER_S)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        read = [offsets(query.plan_rows(PlanLimit(max_bytes=300 * KB)))]
        while sum(read) < 6 * 21:
            read.append(offsets(query.plan_rows(PlanLimit(max_bytes=300 * KB))))
        assert sum(read) == 6 * 21
        assert 4 <= len(read) <= 8


def test_a_batch_passes_all_that_retention_has_deleted(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v" * KB)] * 5_000, BATCHED)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        read = offsets(query.plan_rows(PlanLimit(max_bytes=100 * KB)))
        assert 80 <= read <= 100
        client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        cut = TopicPartition(topic_name, 0, 4_000)
        client.delete_records([cut])[cut].result(ANSWER_S)
        end = read + offsets(query.plan_rows(PlanLimit(max_bytes=100 * KB)))
        assert 4_080 <= end <= 4_100


def test_a_batch_without_samples_is_small_and_the_reason_is_logged(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, monkeypatch, caplog
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v")] * 100)
    monkeypatch.setattr(trigger, "SAMPLING_S", 0.0)
    with (
        caplog.at_level(logging.WARNING),
        queries(kafka.bootstrap_servers, group_id, topic_name) as start,
    ):
        query = start()
        assert offsets(query.plan_rows(PlanLimit(max_bytes=5 * KB * KB))) == 5
        assert offsets(query.plan_rows(PlanLimit(max_bytes=5 * KB * KB))) == 5
    (line,) = [each for each in caplog.messages if "could not be sampled" in each]
    assert ": 1 partitions could not be sampled, so the size of this batch may be" in line
