"""The frame that the function of write_table gets: the batch, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from tests.spark.queries import READ_S
from tests.spark.tables.write_setup import ROWS, WAYS, TableQuery, both_ways, expected, one_way

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DERIVED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "where": lambda rows: rows.where("partition = 0"),
    "select": lambda rows: rows.select("*"),
    "limit": lambda rows: rows.limit(3),
    "repartition": lambda rows: rows.repartition(2),
    "checkpoint": lambda rows: rows.localCheckpoint(),
    "another": lambda rows: rows.sparkSession.createDataFrame([(b"x",)], "value binary"),
}


@pytest.fixture
def query(query_of: Callable[..., TableQuery], request: pytest.FixtureRequest) -> TableQuery:
    """A query on a topic with rows; `emit` is the parameter."""
    return query_of(TableQuery, request.param)


def pairs() -> list[Any]:
    """Each way to make a frame with one way to read; pairs with the other one are long."""
    every = [(how, way) for how in DERIVED for way in WAYS]
    return [
        pytest.param(*each, marks=() if index % 4 in {0, 3} else pytest.mark.long)
        for index, each in enumerate(every)
    ]


@pytest.mark.parametrize(("how", "query"), pairs(), indirect=["query"])
def test_frame_that_was_made_of_the_batch_is_refused_in_the_first_batch(
    query: TableQuery, how: str
) -> None:
    write = query.writer()
    failure = query.run(lambda rows, batch_id: write(DERIVED[how](rows), batch_id))
    assert "is not the batch as Spark passes it to foreachBatch" in failure
    assert "second argument of write_table" in failure
    assert not query.path.exists()


@one_way("records")
def test_frame_of_an_earlier_batch_is_refused(query: TableQuery) -> None:
    write, frames = query.writer(), []

    def take(rows: DataFrame, batch_id: int) -> None:
        frames.append(rows)
        write(frames[0], batch_id)

    assert "the DataFrame of an earlier batch" in query.run(take)
    assert query.values() == expected(60)


@both_ways
def test_batch_may_be_cached_and_written_to_two_tables(query: TableQuery) -> None:
    write, other = query.writer(), spark_groups.delta_table(query.directory / "other")
    write_other = spark_groups.write_table(other)

    def take(rows: DataFrame, batch_id: int) -> None:
        rows.persist()
        write(rows, batch_id)
        write_other(rows, batch_id)
        rows.unpersist()

    assert query.run(take) == ""
    assert query.values() == expected(ROWS)
    found = deltalake.DeltaTable(query.directory / "other").to_pyarrow_table()["value"]
    assert Counter(map(bytes, found.to_pylist())) == expected(ROWS)


@pytest.mark.parametrize("name", ["kafka-group", "kafka-group-state"])
def test_columns_of_the_user_are_refused_before_anything_is_read(
    spark: SparkSession, kafka: EmbeddedKafka, name: str
) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": "g"}
    if name == "kafka-group":
        options["subscribe"] = "t"
    # Spark loads such a source without asking it.
    loaded = spark.read.format(name).options(**options).schema("value string").load()
    with pytest.raises(PySparkException, match=r"has its own columns .*omit \.schema\(\.\.\.\)"):
        loaded.count()


def test_columns_of_the_user_stop_the_stream_at_its_start(
    spark: SparkSession, kafka: EmbeddedKafka, group_id: str, tmp_path: Path
) -> None:
    loaded = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", "t")
        .schema("value string")
        .load()
    )
    query = loaded.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"omit \.schema\(\.\.\.\)"):
        query.awaitTermination(READ_S)
