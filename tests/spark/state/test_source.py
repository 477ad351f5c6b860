"""`format("kafka-group-state")` on a real Spark and a real broker."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.state.rows import StateRow
from tests.brokers import Row, create_topic, produce
from tests.runtime.members import queries
from tests.spark.source.test_backlog import read_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def load(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("kafka-group-state").options(**options).load()


def test_groups_are_shown_as_they_stand(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"x", partition=1)] * 5)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        read_all(start(), kafka.bootstrap_servers, group_id, {0: 0, 1: 5})
        produce(kafka.bootstrap_servers, topic_name, [Row(b"x", partition=1)] * 2)
        state = load(spark, **servers, **{"kafka.group.id": group_id})
        rows = state.orderBy("partition").collect()
    assert tuple(state.columns) == StateRow._fields
    assert [(row.topic, row.partition, row.group_state) for row in rows] == [
        (topic_name, 0, "Stable"),
        (topic_name, 1, "Stable"),
    ]
    assert [(row.committed_offset, row.log_end_offset, row.lag) for row in rows] == [
        (0, 0, 0),
        (5, 7, 2),
    ]
    assert len({row.member_id for row in rows} - {None}) == 1
    assert rows[0].member_epoch == rows[0].group_epoch == rows[0].assignment_epoch
    assert rows[0].moves_to is None
    everything = load(spark, **servers).where(f"group_id = '{group_id}'").collect()
    assert [(row.group_state, row.member_id) for row in everything] == [("Empty", None)] * 2


def test_what_is_wrong_is_said_at_load_or_when_it_is_read(
    spark: SparkSession, kafka: EmbeddedKafka
) -> None:
    spark_groups.register(spark)
    with pytest.raises(AnalysisException, match="subscribe is not an option of this source"):
        load(spark, **{"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights"})
    nobody = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": "no-one"}
    with pytest.raises(PySparkException, match="there is no group 'no-one'"):
        load(spark, **nobody).collect()
    unreachable = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        load(spark, **unreachable).collect()
