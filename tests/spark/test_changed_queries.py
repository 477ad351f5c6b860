"""A query that keeps state, restarted from its checkpoint as another query than it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed
from tests.spark.queries import READ_S
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

PARTITIONS = 2
NUMBER = "CAST(CAST(value AS STRING) AS INT)"
BROKEN = "the sink is broken"


@dataclass
class Counting:
    """Rows of some topics, counted by a key in runs that have one checkpoint.

    Args:
        spark: The session.
        servers: The broker.
        directory: Where the checkpoint lies.
        counts: The last count of each key, like a table.
        is_broken: Whether the sink takes nothing.
    """

    spark: SparkSession
    servers: str
    directory: Path
    counts: dict[Any, int] = field(default_factory=dict)
    is_broken: bool = False

    def load(self, group_id: str, topics: str) -> DataFrame:
        return (
            self.spark.readStream.format("kafka-group")
            .option("kafka.bootstrap.servers", self.servers)
            .option("kafka.group.id", group_id)
            .option("subscribe", topics)
            .option("startingOffsets", "earliest")
            .load()
        )

    def run(self, rows: DataFrame, key: str = f"{NUMBER} % 3") -> dict[Any, int]:
        """Count what there is, and return all counts."""

        def write(batch: DataFrame, _: int) -> None:
            if self.is_broken:
                raise ValueError(BROKEN)
            self.counts |= {row["key"]: row["count"] for row in batch.collect()}

        query = spark_groups.start(
            rows.selectExpr(f"{key} AS key")
            .groupBy("key")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(write)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
        )
        try:
            assert query.awaitTermination(READ_S), "AvailableNow did not end"
        finally:
            query.stop()
        return dict(self.counts)

    def break_off(self, rows: DataFrame, key: str = f"{NUMBER} % 3") -> None:
        """Begin a batch that is not finished: it is planned, and nothing of it is committed."""
        self.is_broken = True
        with pytest.raises(StreamingQueryException, match=BROKEN):
            self.run(rows, key)
        self.is_broken = False

    def produce(self, topic: str, first: int, until: int) -> None:
        rows = (Row(b"%d" % i, partition=i % PARTITIONS) for i in range(first, until))
        produce(self.servers, topic, rows)

    def committed(self, group_id: str, topic: str) -> int:
        """Return how many rows of a topic a group has committed."""
        found = committed(self.servers, group_id)
        return sum(offset for key, offset in found.items() if key[0] == topic)


@pytest.fixture
def counting(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Counting]:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    yield Counting(spark, kafka.bootstrap_servers, tmp_path)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))


@pytest.fixture
def topic(kafka: EmbeddedKafka, topic_name: str) -> str:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    return topic_name


@pytest.fixture
def other_topic(kafka: EmbeddedKafka, topic_name: str) -> str:
    create_topic(kafka.bootstrap_servers, f"{topic_name}-other", PARTITIONS)
    return f"{topic_name}-other"


def test_a_query_with_an_added_filter_keeps_state_and_offsets(
    counting: Counting, topic: str, group_id: str
) -> None:
    rows = counting.load(group_id, topic)
    counting.produce(topic, 0, 30)
    assert counting.run(rows) == {0: 10, 1: 10, 2: 10}
    counting.produce(topic, 30, 60)
    counting.break_off(rows)
    assert counting.committed(group_id, topic) == 30
    # The batch that was broken off is counted by the plan of today, as Spark counts it.
    assert counting.run(rows.where(f"{NUMBER} % 2 = 0")) == {0: 15, 1: 15, 2: 15}
    assert counting.committed(group_id, topic) == 60


def test_other_shuffle_partitions_change_nothing(
    counting: Counting, topic: str, group_id: str
) -> None:
    rows = counting.load(group_id, topic)
    counting.produce(topic, 0, 30)
    counting.run(rows)
    counting.produce(topic, 30, 60)
    counting.break_off(rows)
    # Spark takes the number that stands in the checkpoint.
    counting.spark.conf.set("spark.sql.shuffle.partitions", "5")
    assert counting.run(rows) == {0: 20, 1: 20, 2: 20}
    assert counting.committed(group_id, topic) == 60


def test_another_key_is_refused_by_spark_and_costs_nothing(
    counting: Counting, topic: str, group_id: str
) -> None:
    rows = counting.load(group_id, topic)
    counting.produce(topic, 0, 30)
    counting.run(rows)
    counting.produce(topic, 30, 60)
    with pytest.raises(StreamingQueryException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        counting.run(rows, key=f"CAST({NUMBER} % 3 AS STRING)")
    assert counting.committed(group_id, topic) == 30
    assert counting.run(rows) == {0: 20, 1: 20, 2: 20}
    assert counting.committed(group_id, topic) == 60


def test_another_source_is_refused_by_spark_and_costs_nothing(
    counting: Counting, topic: str, other_topic: str, group_id: str
) -> None:
    rows = counting.load(group_id, topic)
    counting.produce(topic, 0, 30)
    counting.run(rows)
    counting.produce(topic, 30, 60)
    counting.produce(other_topic, 0, 30)
    two = rows.union(counting.load(f"{group_id}-other", other_topic))
    with pytest.raises(StreamingQueryException, match=r"There are \[1\] sources in the checkpoint"):
        counting.run(two)
    assert counting.run(rows) == {0: 20, 1: 20, 2: 20}
    assert counting.committed(group_id, topic) == 60
    assert counting.committed(f"{group_id}-other", other_topic) == 0


def test_streams_in_another_order_continue_after_a_finished_batch(
    counting: Counting, topic: str, other_topic: str, group_id: str
) -> None:
    one, other = (counting.load(group_id, each) for each in (topic, other_topic))
    counting.produce(topic, 0, 30)
    counting.produce(other_topic, 0, 20)
    assert counting.run(one.union(other), "topic") == {topic: 30, other_topic: 20}
    counting.produce(topic, 30, 60)
    counting.produce(other_topic, 20, 40)
    # Where a stream stands is for the group to say, and not for its place in the checkpoint.
    assert counting.run(other.union(one), "topic") == {topic: 60, other_topic: 40}


@pytest.mark.parametrize("other_group", ["", "-other"], ids=["one group", "two groups"])
def test_streams_in_another_order_do_not_run_a_batch_again(
    counting: Counting, topic: str, other_topic: str, group_id: str, other_group: str
) -> None:
    one = counting.load(group_id, topic)
    other = counting.load(group_id + other_group, other_topic)
    counting.produce(topic, 0, 30)
    counting.produce(other_topic, 0, 20)
    counting.break_off(one.union(other), "topic")
    with pytest.raises(StreamingQueryException, match="checkpoint"):
        counting.run(other.union(one), "topic")
    assert counting.run(one.union(other), "topic") == {topic: 30, other_topic: 20}
    assert counting.committed(group_id, topic) == 30
    assert counting.committed(group_id + other_group, other_topic) == 20


def test_topics_that_are_added_are_read_with_the_batch_that_was_broken_off(
    counting: Counting, topic: str, other_topic: str, group_id: str
) -> None:
    rows = counting.load(group_id, topic)
    counting.produce(topic, 0, 30)
    counting.produce(other_topic, 0, 20)
    counting.run(rows, "topic")
    counting.produce(topic, 30, 60)
    counting.break_off(rows, "topic")
    both = counting.load(group_id, f"{topic},{other_topic}")
    assert counting.run(both, "topic") == {topic: 60, other_topic: 20}


def test_other_topics_wait_until_the_batch_of_those_before_is_finished(
    counting: Counting, topic: str, other_topic: str, group_id: str
) -> None:
    rows, others = (counting.load(group_id, each) for each in (topic, other_topic))
    counting.produce(topic, 0, 30)
    counting.produce(other_topic, 0, 20)
    counting.break_off(rows, "topic")
    with pytest.raises(StreamingQueryException, match="Run the unchanged query once"):
        counting.run(others, "topic")
    assert counting.run(rows, "topic") == {topic: 30}
    assert counting.run(others, "topic") == {topic: 30, other_topic: 20}
    # What the group has committed of the topics before waits for who subscribes to them again.
    counting.produce(topic, 30, 60)
    assert counting.run(rows, "topic") == {topic: 60, other_topic: 20}
