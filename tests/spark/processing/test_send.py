"""Batches that are sent on as they are: what is written, and what is left out and told."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.options.packed import columns
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.letters import Letter
from spark_groups.spark.processing.record import Record
from spark_groups.spark.processing.send import send_records
from tests.brokers import create_topic
from tests.spark.processing.topics import records_in

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]


def test_each_record_goes_where_its_route_says(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    connection = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id="none")
    rows = [(None, b"%d" % each, "from", each % 2, each, None, 0, None) for each in range(6)]
    schema = columns(include_headers=True)
    batch = spark.createDataFrame(rows, schema).selectExpr(
        "* except (timestamp)", "timestamp_millis(5) AS timestamp"
    )

    def but_one(record: Record) -> Letter | None:
        if record.offset == 3:
            return None
        return Letter(topic_name, record.key, record.value, record.headers, record.partition)

    send_records(batch, but_one, connection)
    found = records_in(kafka.bootstrap_servers, topic_name)
    # Two tasks wrote them, each in its order.
    assert sorted((each.partition, each.value or b"") for each in found) == [
        *((0, b"0"), (0, b"2"), (0, b"4"), (1, b"1"), (1, b"5"))
    ]
    assert [each for each in caplog.messages if "skipped" in each] == [
        "1 of from-1 skipped (offset 3): its headers do not say where it came from"
    ]
