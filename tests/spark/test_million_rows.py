"""A million rows in one AvailableNow run, counted and checksummed against the produced rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed
from tests.spark.queries import GroupQuery
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 1_000_000
PARTITIONS = 8


def rows() -> Iterator[Row]:
    for number in range(ROWS):
        value = b"%0100d" % number
        yield Row(value, key=b"%d" % (number % 1000), partition=number % PARTITIONS)


def test_a_million_rows_arrive_once_and_unchanged(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=PARTITIONS)
    produce(kafka.bootstrap_servers, topic_name, rows(), {"linger.ms": 20})
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path)
    query.options["startingOffsets"] = "earliest"
    written = tmp_path / "written"
    running = spark_groups.start(
        query.source()
        .writeStream.format("parquet")
        .option("path", str(written))
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(availableNow=True)
    )
    assert running.awaitTermination(180)

    checks = (
        "partition",
        "count(*) AS rows",
        "count(DISTINCT offset) AS offsets",
        "sum(crc32(value)) AS value_checksum",
        "sum(crc32(key)) AS key_checksum",
    )
    actual = spark.read.parquet(str(written)).groupBy("partition").agg(*_expressions(checks[1:]))
    sums: dict[int, list[int]] = {each: [0, 0, 0] for each in range(PARTITIONS)}
    for row in rows():
        assert row.partition is not None
        assert row.key is not None
        assert row.value is not None
        of_one = sums[row.partition]
        of_one[0] += 1
        of_one[1] += zlib.crc32(row.value)
        of_one[2] += zlib.crc32(row.key)
    expected = spark.createDataFrame(
        [(each, n, n, values, keys) for each, (n, values, keys) in sums.items()],
        "partition int, rows long, offsets long, value_checksum long, key_checksum long",
    )
    assert_df_equality(
        actual, expected, ignore_row_order=True, ignore_nullable=True, ignore_column_order=True
    )
    assert committed(kafka.bootstrap_servers, group_id) == {
        (topic_name, each): ROWS // PARTITIONS for each in range(PARTITIONS)
    }


def _expressions(texts: tuple[str, ...]) -> list[object]:
    from pyspark.sql.functions import expr

    return [expr(each) for each in texts]
