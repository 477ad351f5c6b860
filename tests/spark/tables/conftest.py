"""What tests of queries that write tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from tests.iceberg_rest import running_rest_catalog
from tests.spark.tables.write_setup import PARTITIONS, ROWS, TableQuery
from workshop.parts.brokers import create_topic


@pytest.fixture(scope="module")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a REST catalog of Iceberg."""
    with running_rest_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(scope="module")
def delta_spark(spark: SparkSession) -> SparkSession:
    """A session that reads Delta tables; Iceberg has no runtime for this version of Spark."""
    if not pyspark.__version__.startswith("4.2."):
        pytest.skip("delta-spark is published for Spark 4.2")
    session = spark.newSession()
    # Else it asks for a catalog that only a new application can have.
    session.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    session.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


@pytest.fixture
def query_of(
    spark: SparkSession, kafka: EmbeddedKafka, group_id: str, topic_name: str, tmp_path: Path
) -> Callable[..., Any]:
    """Return a query of a class on a topic with rows, with `emit` and more options."""

    def made(kind: type[TableQuery], emit: str, place: object = None, **more: str) -> TableQuery:
        create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
        options = {"emit": emit, "maxOffsetsPerTrigger": "60", **more}
        places = {} if place is None else {"place": place}
        query = kind(spark, kafka, group_id, topic_name, tmp_path, options, **places)
        query.produce(0, ROWS)
        return query

    return made
