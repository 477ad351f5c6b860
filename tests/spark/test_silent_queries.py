"""A real query whose trigger is slower than its member may be silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]


def test_member_that_left_between_two_triggers_comes_back_and_reads_on(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"first")])
    options = {"maxIdleTime": "1s"}
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, options)
    with query.running(processingTime="6 seconds") as running:
        query.await_rows(1)
        wait_until(lambda: query.members() == 0, READ_S, "the member to leave")
        member = wait_until(query.member, what="a snapshot")
        assert member["left_because_idle"]
        produce(kafka.bootstrap_servers, topic_name, [Row(b"second")])
        query.await_rows(2)
        assert running.exception() is None
        back = wait_until(query.member, what="a snapshot")
        assert back["member_id"] != member["member_id"]
    assert query.values() == {b"first": 1, b"second": 1}
