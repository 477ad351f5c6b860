"""Streams whose rows are ranges of offsets."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.options.packed import RANGE_COLUMNS
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.rows import range_rows
from spark_groups.types import OffsetRange, topic_id_text
from tests.spark.queries import READ_S, GroupQuery
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import Row, create_topic, produce

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def test_rows_say_what_the_ranges_say() -> None:
    ranges = (OffsetRange(FIRST, "orders", 0, 5, 9), OffsetRange(SECOND, "bills", 3, 0, 2**40))
    assert range_rows(ranges).to_pylist() == [
        {
            "topic": "orders",
            "partition": 0,
            "fromOffset": 5,
            "untilOffset": 9,
            "topicId": topic_id_text(FIRST),
        },
        {
            "topic": "bills",
            "partition": 3,
            "fromOffset": 0,
            "untilOffset": 2**40,
            "topicId": topic_id_text(SECOND),
        },
    ]


def test_columns_are_those_of_the_rows() -> None:
    names = [each.split()[0] for each in RANGE_COLUMNS.split(", ")]
    assert range_rows(()).schema.names == names
    assert range_rows(()).num_rows == 0


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_each_batch_emits_its_plan_and_is_committed(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"v", partition=i % 2) for i in range(30)])
    options = {"emit": "ranges", "maxOffsetsPerTrigger": "20", "minPartitions": "8"}
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, options)
    source = query.source()
    assert source.schema == StructType.fromDDL(RANGE_COLUMNS)
    found: list[Any] = []

    def take(batch: DataFrame, _: int) -> None:
        found.append(sorted(batch.collect()))

    running = spark_groups.start(
        source.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(availableNow=True)
    )
    assert running.awaitTermination(READ_S)
    settings = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id=group_id)
    topic_id = topic_id_text(topic_ids(settings, [topic_name])[topic_name])
    assert [each for each in found if each] == [
        [(topic_name, 0, 0, 10, topic_id), (topic_name, 1, 0, 10, topic_id)],
        [(topic_name, 0, 10, 15, topic_id), (topic_name, 1, 10, 15, topic_id)],
    ]
    assert query.committed() == {0: 15, 1: 15}
