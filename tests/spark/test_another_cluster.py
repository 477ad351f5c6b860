"""Real queries whose address is switched to another cluster with the same topics."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.wire.schemas.wire_messages import API_VERSIONS_V4
from tests.runtime.members import committed
from tests.runtime.proxy import Switched
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def connections(switched: Switched, since: float) -> int:
    return sum(key == API_VERSIONS_V4.api_key and at > since for at, key in switched.proxy.seen)


@pytest.mark.parametrize("reader", ["fast", "librdkafka"])
def test_a_query_has_no_row_of_another_cluster(
    spark: SparkSession, switched: Switched, topic_name: str, tmp_path: Path, reader: str
) -> None:
    def add(kafka: EmbeddedKafka, value: str, count: int) -> None:
        produce(kafka.bootstrap_servers, topic_name, [f"{value}{i}".encode() for i in range(count)])

    one, other = switched.one, switched.other
    for kafka in (one, other):
        create_topic(kafka.bootstrap_servers, topic_name)
    add(one, "a", 10)
    add(other, "b", 30)
    group_id = f"g-{topic_name}"
    options = {
        "kafka.bootstrap.servers": switched.proxy.address,
        "failOnDataLoss": "false",
        "reader": reader,
    }
    query = GroupQuery(spark, one, group_id, topic_name, tmp_path, options)
    with query.running(processingTime="200 milliseconds") as running:
        query.await_rows(10)
        switched.lead_to(other)
        add(one, "c", 5)
        since = time.monotonic()
        wait_until(lambda: connections(switched, since) >= 10, READ_S, "connections elsewhere")
        switched.lead_to(one)
        query.await_rows(15)
        assert running.isActive
    assert set(query.values().values()) == {1}
    assert not any(value.startswith(b"b") for value in query.values())
    assert committed(other.bootstrap_servers, group_id) == {}
    switched.lead_to(other)
    ids = switched.cluster_id(other), switched.cluster_id(one)
    with pytest.raises(StreamingQueryException, match=f"cluster {ids[0]}, not to {ids[1]}"):
        query.run_available()
    assert len(query.rows()) == 15
    assert committed(other.bootstrap_servers, group_id) == {}
