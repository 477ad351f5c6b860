"""A real query, scraped and probed: beside Kafka's own figures, hanging, ended, run again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_groups
from spark_groups import figures
from spark_groups.broker.embedded import EmbeddedKafka
from tests.monitoring.scraping import free_port, get, health, scrape
from tests.runtime.members import fill
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import ANSWER_S, create_topic
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PARTITIONS = 2
WEEK_S = 7 * 24 * 3600


def is_refused(port: int) -> bool:
    try:
        get(port, "/live")
    except OSError:
        return True
    return False


def is_served(port: int) -> bool:
    return not is_refused(port)


def log_ends(kafka: EmbeddedKafka, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends"})
    try:
        return {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), ANSWER_S)[1]
            for each in range(PARTITIONS)
        }
    finally:
        consumer.close()


class Hanging:
    """A function for foreachBatch that hangs in its second batch with rows until it is released."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.batches = 0

    def __call__(self, batch: DataFrame, _: int) -> None:
        if batch.count() == 0:
            return
        self.batches += 1
        if self.batches == 2:
            assert self.let_go.wait(READ_S)


@pytest.fixture
def hanging(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> Iterator[tuple[GroupQuery, StreamingQuery, int]]:
    """A query whose second batch hangs, and the port it is monitored on."""
    retention = {"retention.ms": str(WEEK_S * 1000)}
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS, retention)
    fill(kafka.bootstrap_servers, topic_name, PARTITIONS, 10)
    port, hang = free_port(), Hanging()
    options = {
        "metricsPort": str(port),
        "maxOffsetsPerTrigger": "6",
        "maxBatchTime": "60s",
    }
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, options)
    running = spark_groups.start(
        query.source()
        .writeStream.option("checkpointLocation", str(query.checkpoint))
        .foreachBatch(hang)
    )
    try:
        wait_until(lambda: hang.batches == 2, READ_S, "the batch that hangs")
        yield query, running, port
    finally:
        hang.let_go.set()
        running.stop()


def test_scrape_matches_kafka_and_a_hang_is_reported_before_the_member_leaves(
    hanging: tuple[GroupQuery, StreamingQuery, int], kafka: EmbeddedKafka
) -> None:
    query, running, port = hanging
    wait_until(
        lambda: sum(scrape(port).by_partition("committed_offset").values()) == 6,
        READ_S,
        "the commit of the first batch",
    )
    found = scrape(port)
    assert found.value("live", group=query.group_id) == 1
    assert health(port, "/live")[0] == health(port, "/ready")[0] == 200
    committed = query.committed()
    assert found.by_partition("committed_offset") == committed
    ends = log_ends(kafka, query.topic)
    assert ends == dict.fromkeys(range(PARTITIONS), 10)
    assert found.by_partition("lag") == {each: ends[each] - committed[each] for each in ends}
    assert found.value("lag_sum") == 14
    timed = wait_until(
        lambda: (again := scrape(port)).value("deletion_seconds_min") and again,
        READ_S,
        "the ages of unread records",
    )
    behind_s, left_s = (timed.by_partition(f"{each}_seconds") for each in ("behind", "deletion"))
    assert behind_s.keys() == left_s.keys() == ends.keys()
    assert min(behind_s.values()) > 0
    assert timed.value("behind_seconds_max") == max(behind_s.values())
    assert {each: round(behind_s[each] + left_s[each]) for each in ends} == dict.fromkeys(
        ends, WEEK_S
    )
    assert found.value("offsets_finished_total") == 6
    assert (found.value("commit_total") or 0) > 0
    assert found.value("commit_failed_total") == 0
    (said,) = figures(running)
    assert said["group"] == query.group_id
    assert said["tally"]["counts"]["offsets_finished"] == 6
    wait_until(lambda: health(port, "/live")[0] == 503, READ_S, "the end of good health")
    found = scrape(port)
    assert found.value("condition", condition="STUCK") == 1
    assert 30 <= (found.value("batch_seconds") or 0) < 60
    # The coordinator has noticed nothing: there is time to act.
    assert found.value("assigned_partitions") == PARTITIONS
    assert query.members() == 1
    assert "maxBatchTime" in health(port)[1]["reasons"][0]


def test_endpoint_ends_with_its_query_and_its_port_is_free_for_the_next_run(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    fill(kafka.bootstrap_servers, topic_name, PARTITIONS, 5)
    port = free_port()
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, {"metricsPort": str(port)})
    members: list[Any] = []
    for rows in (10, 20):
        with query.running() as running:
            query.await_rows(rows)
            assert is_served(port)
            member = wait_until(query.member, what="a snapshot")
            found = scrape(port)
            assert found.value("member_info", member_id=member["member_id"]) == 1
            assert running.exception() is None
            members.append(member["member_id"])
        fill(kafka.bootstrap_servers, topic_name, PARTITIONS, 5)
    assert len(set(members)) == 2
    wait_until(lambda: is_refused(port), READ_S, "the end of the endpoint")


def test_port_of_somebody_else_fails_the_query_with_its_name(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, {"metricsPort": str(port)})
        with query.running() as running:
            failure = wait_until(running.exception, READ_S, "the query to fail")
    assert f"metricsPort {port}" in str(failure)
