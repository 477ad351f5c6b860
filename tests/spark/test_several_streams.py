"""Queries with several streams: who is a member, and what each side reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import planner_of
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 2
ROWS = 40
EACH_ONCE = Counter(b"%d" % i for i in range(ROWS))


@pytest.fixture
def query(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> GroupQuery:
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path)
    fill(query)
    return query


@pytest.fixture
def listening(spark: SparkSession) -> Iterator[None]:
    listener = spark_groups.listen(spark)
    yield
    listener.close()


def fill(query: GroupQuery) -> None:
    create_topic(query.kafka.bootstrap_servers, query.topic, PARTITIONS)
    rows = [Row(b"%d" % i, partition=i % PARTITIONS) for i in range(ROWS)]
    produce(query.kafka.bootstrap_servers, query.topic, rows)


def beside(query: GroupQuery, *, group: str = "", topic: str = "") -> GroupQuery:
    """Return another stream for the same query."""
    other = GroupQuery(
        query.spark, query.kafka, query.group_id + group, query.topic + topic, query.directory
    )
    if topic:
        fill(other)
    return other


def joined(one: DataFrame, other: DataFrame) -> DataFrame:
    pairs = one.alias("one").join(other.alias("other"), expr("one.value = other.value"))
    return pairs.select("one.value")


def values(query: GroupQuery, rows: DataFrame) -> Counter[bytes]:
    """Read what there is, and return how often each value came."""
    found: Counter[bytes] = Counter()

    def take(batch: DataFrame, _: int) -> None:
        found.update(bytes(row["value"]) for row in batch.select("value").collect())

    running = spark_groups.start(
        rows.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(query.checkpoint))
        .trigger(availableNow=True)
    )
    try:
        assert running.awaitTermination(READ_S), "AvailableNow did not end"
    finally:
        running.stop()
    return found


def planners(query: GroupQuery) -> list[str | None]:
    """Return the member that planned each stream of the first batch."""
    return [planner_of(line) for line in query.offsets_file(0).read_text().splitlines()[2:]]


def test_a_stream_united_with_itself_is_one_member_and_comes_twice(query: GroupQuery) -> None:
    rows = query.source()
    assert values(query, rows.union(rows)) == EACH_ONCE + EACH_ONCE
    assert len(planners(query)) == 2
    assert len(set(planners(query))) == 1
    assert sum(query.committed().values()) == ROWS


def test_a_stream_joined_with_itself_is_refused(query: GroupQuery, listening: None) -> None:
    rows = query.source()
    with pytest.raises(StreamingQueryException) as caught:
        values(query, joined(rows, rows))
    assert f"two streams in the group '{query.group_id}' with the same topics" in str(caught.value)
    assert "each with its own kafka.group.id" in str(caught.value)
    assert query.committed() == {}
    # It is only that query which is refused.
    query.checkpoint.rename(query.directory / "refused")
    assert values(query, rows) == EACH_ONCE


@pytest.mark.long
def test_two_loads_that_would_share_topics_are_refused(query: GroupQuery, listening: None) -> None:
    both = beside(query, topic="-other").topic + "," + query.topic
    other = GroupQuery(query.spark, query.kafka, query.group_id, both, query.directory)
    with pytest.raises(StreamingQueryException, match="two streams in the group"):
        values(query, query.source().union(other.source()))


@pytest.mark.long
@pytest.mark.parametrize("differs", [{"group": "-other"}, {"topic": "-other"}], ids=str)
def test_a_join_has_all_rows_where_groups_or_topics_differ(
    query: GroupQuery, listening: None, differs: dict[str, str]
) -> None:
    other = beside(query, **differs)
    assert values(query, joined(query.source(), other.source())) == EACH_ONCE
    assert len(set(planners(query))) == 2
    assert sum(query.committed().values()) == sum(other.committed().values()) == ROWS
