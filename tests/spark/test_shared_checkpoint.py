"""One checkpoint for two applications at a time, and a checkpoint that is older than its table."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from tests.spark.queries import READ_S, GroupQuery
from tests.spark.tables.killed_setup import RUN_S, filled
from tests.spark.tables.places import SqlitePlace
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(
        not HAS_ADMISSION_CONTROL, reason="before Spark 4.2 a source cannot end by itself"
    ),
]

PARTITIONS = 2
BROKEN = "the sink is broken"


@pytest.mark.parametrize("hold", ["task", "before", "after"])
def test_second_application_on_a_checkpoint_ends_the_first(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path, hold: str
) -> None:
    """The first is in a batch meanwhile; Spark ends it when the other has logged that batch."""
    place = filled(kafka.bootstrap_servers, topic_name, group_id, tmp_path, "ranges", None)
    with place.running("first", 20, "checkpoint", hold) as first:
        place.await_held("first", first)
        place.finish("second", 30, "checkpoint")
        place.sign("go").touch()
        assert first.wait(RUN_S) != 0
    assert "CONCURRENT_STREAM_LOG_UPDATE" in place.log("first").read_text()
    # The second may have left partitions to the first, which joined again as another member.
    place.finish("third", 30, "checkpoint")
    place.check()


@dataclass
class FencedQuery(GroupQuery):
    """A query that writes to a table in SQLite."""

    is_broken: bool = False

    @property
    def place(self) -> SqlitePlace:
        return SqlitePlace(self.directory / "table.db")

    def run(self) -> None:
        """Write what there is, and end."""
        write = spark_groups.write_table(self.place.fenced())

        def sink(batch: DataFrame, batch_id: int) -> None:
            if self.is_broken:
                raise ValueError(BROKEN)
            write(batch, batch_id)

        writer = self.source().writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(READ_S), "AvailableNow did not end"
        finally:
            query.stop()

    def break_off(self) -> None:
        """Plan a batch that is not finished."""
        self.is_broken = True
        with pytest.raises(StreamingQueryException, match=BROKEN):
            self.run()
        self.is_broken = False


def write(query: GroupQuery, count: int) -> None:
    rows = (Row(b"v", partition=each % PARTITIONS) for each in range(PARTITIONS * count))
    produce(query.kafka.bootstrap_servers, query.topic, rows)


@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_old_checkpoint_loses_and_doubles_nothing_in_a_table(  # noqa: PLR0917
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    is_finished: bool,
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    query = FencedQuery(spark, kafka, group_id, topic_name, tmp_path)
    write(query, 10)
    query.run()
    write(query, 10)
    if not is_finished:
        query.break_off()
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.run()
    write(query, 10)
    query.run()
    shutil.rmtree(query.checkpoint)
    (tmp_path / "copy").rename(query.checkpoint)
    write(query, 10)
    query.run()
    for partition in range(PARTITIONS):
        assert query.place.offsets(partition) == list(range(40))
    assert query.committed() == dict.fromkeys(range(PARTITIONS), 40)


def test_old_checkpoint_loses_rows_in_a_sink_that_skips_batch_numbers(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    """Spark's Parquet sink takes no rows of a batch whose number is in its `_spark_metadata`."""
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    query = GroupQuery(spark, kafka, group_id, topic_name, tmp_path)
    write(query, 10)
    query.run_available()
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    write(query, 10)
    query.run_available()
    shutil.rmtree(query.checkpoint)
    (tmp_path / "copy").rename(query.checkpoint)
    write(query, 10)
    query.run_available()
    assert query.committed() == dict.fromkeys(range(PARTITIONS), 30)
    assert Counter(row["partition"] for row in query.rows()) == dict.fromkeys(range(PARTITIONS), 20)


@pytest.mark.parametrize(
    "changed",
    [
        {"emit": "ranges", "maxOffsetsPerTrigger": "7"},
        {
            "kafka.group.instance.id": "gate-1",
            "kafka.isolation.level": "read_committed",
            "startingOffsets": "latest",
            "reader": "librdkafka",
            "minPartitions": "4",
        },
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_options_that_change_before_an_unfinished_batch(  # noqa: PLR0917
    spark: SparkSession,
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
    changed: dict[str, str],
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
    query = FencedQuery(spark, kafka, group_id, topic_name, tmp_path)
    write(query, 10)
    query.run()
    write(query, 10)
    query.break_off()
    write(query, 10)
    query.options.update(changed)
    query.run()
    for partition in range(PARTITIONS):
        assert query.place.offsets(partition) == list(range(30))
    assert query.committed() == dict.fromkeys(range(PARTITIONS), 30)
