"""The query of a batch, and batches without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.spark.control.running_query import RunningQuery, cluster_of, running_query
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def run(stream: DataFrame, checkpoint: Path) -> list[RunningQuery | str]:
    """Return the running query of each batch, or the error text."""
    found: list[RunningQuery | str] = []

    def look(batch: DataFrame, _: int) -> None:
        try:
            found.append(running_query(batch, "a test"))
        except OptionsError as error:
            found.append(str(error))

    writer = stream.writeStream.foreachBatch(look).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(READ_S)
    return found


def test_its_text_shows_no_secret() -> None:
    options = (("kafka.sasl.password", "open sesame"),)
    assert "open sesame" not in repr(RunningQuery(options, "run", (), (), (), is_as_loaded=True))


def test_outside_of_a_batch_there_is_none(spark: SparkSession) -> None:
    with pytest.raises(OptionsError, match="a test cannot identify the query"):
        running_query(spark.range(1), "a test")


@pytest.mark.long
def test_options_ranges_and_whether_something_is_done_with_the_stream(
    spark: SparkSession, kafka: EmbeddedKafka, group_id: str, topic_name: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"a", b"b"])
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path, {"includeHeaders": "true"})
    (loaded,) = run(query.source(), tmp_path / "loaded")
    assert isinstance(loaded, RunningQuery)
    assert loaded.is_as_loaded
    assert loaded.checked.include_headers
    assert [(each.topic, len(each)) for each in loaded.ranges] == [(topic_name, 2)]
    with cluster_of(loaded.checked) as cluster:
        assert [each.topic.name for each in cluster.topics([topic_name]).topics.values()] == [
            topic_name
        ]
    query.group_id = f"{group_id}-filtered"
    (filtered,) = run(query.source().where("offset > 0"), tmp_path / "filtered")
    assert isinstance(filtered, RunningQuery)
    assert not filtered.is_as_loaded
    query.group_id = f"{group_id}-twice"
    twice = query.source().unionAll(query.source())
    assert run(twice, tmp_path / "twice") == [
        "a test requires a query with one kafka-group stream, not 2"
    ]
