"""The job's query on a real Spark and a real broker: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.errors import OptionsError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.spark.jobs.job_options import ConsumeOptions, load_job
from spark_groups.spark.jobs.run import start_into, start_job, written
from tests.brokers import Row, create_topic, produce
from tests.spark.tables.places import PostgresPlace

pytestmark = [pytest.mark.broker, pytest.mark.spark]

READ_S = 240
EXAMPLE = Path(__file__).resolve().parents[3] / "conf" / "consume.toml"
FLIGHTS = [(f"N{each % 7}", f"flight {each} ✈", each % 3, each // 3) for each in range(300)]


@pytest.fixture
def topic(kafka: EmbeddedKafka, topic_name: str) -> str:
    """A topic of three partitions that holds FLIGHTS."""
    create_topic(kafka.bootstrap_servers, topic_name, 3)
    rows = [
        Row(value.encode(), key=key.encode(), partition=partition)
        for key, value, partition, _ in FLIGHTS
    ]
    produce(kafka.bootstrap_servers, topic_name, rows)
    return topic_name


@pytest.fixture
def options(kafka: EmbeddedKafka, topic: str, group_id: str, tmp_path: Path) -> ConsumeOptions:
    """The example, with what has to be this test's own."""
    return configured(kafka, topic, group_id, tmp_path)


def configured(
    kafka: EmbeddedKafka, topic: str, group_id: str, directory: Path, checkpoint: str = "check"
) -> ConsumeOptions:
    settings = {
        "source.kafka.bootstrap.servers": kafka.bootstrap_servers,
        "source.kafka.group.id": group_id,
        "source.subscribe": topic,
        "source.maxOffsetsPerTrigger": "100",
        "query.checkpointLocation": str(directory / checkpoint),
        "query.trigger": "availableNow",
        "sink.path": str(directory / "out"),
    }
    return load_job(
        ConsumeOptions, EXAMPLE, [("a test", key, value) for key, value in settings.items()]
    )


def start(spark: SparkSession, options: ConsumeOptions) -> StreamingQuery:
    return start_job(spark, options, lambda rows: written(rows, options))


def run_available(spark: SparkSession, options: ConsumeOptions) -> None:
    query = start(spark, options)
    try:
        assert query.awaitTermination(READ_S), "AvailableNow did not end"
    finally:
        query.stop()


def test_parquet_holds_what_was_produced(
    spark: SparkSession, options: ConsumeOptions, tmp_path: Path, topic: str
) -> None:
    run_available(spark, options)
    written = spark.read.parquet(str(tmp_path / "out" / "flights-1"))
    assert written.columns == ["key", "value", "topic", "partition", "offset", "timestamp"]
    expected = spark.createDataFrame(
        [(*flight, topic) for flight in FLIGHTS],
        "key string, value string, partition int, offset bigint, topic string",
    )
    assert_df_equality(
        written.drop("timestamp"),
        expected,
        ignore_row_order=True,
        ignore_column_order=True,
        ignore_nullable=True,
    )


@pytest.mark.long
def test_second_run_of_the_application_goes_on(
    spark: SparkSession, kafka: EmbeddedKafka, options: ConsumeOptions, tmp_path: Path, topic: str
) -> None:
    run_available(spark, options)
    produce(kafka.bootstrap_servers, topic, [Row(b"later", partition=1)])
    run_available(spark, options)
    written = spark.read.parquet(str(tmp_path / "out" / "flights-1"))
    assert written.count() == len(FLIGHTS) + 1
    assert written.filter("value = 'later'").count() == 1


@pytest.mark.long
def test_output_of_another_checkpoint_is_refused_before_anything_is_written(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    options: ConsumeOptions,
    tmp_path: Path,
    topic: str,
) -> None:
    run_available(spark, options)
    other = configured(kafka, topic, f"group-of-{topic}", tmp_path, "another")
    with pytest.raises(OptionsError, match="lose their rows"):
        start(spark, other)
    assert not (tmp_path / "another").exists()
    assert not spark.streams.active


@pytest.mark.parametrize("sink", ["delta", "postgres"])
def test_applications_of_a_group_share_a_table(  # noqa: PLR0917
    spark: SparkSession,
    kafka: EmbeddedKafka,
    options: ConsumeOptions,
    tmp_path: Path,
    topic: str,
    on_postgres: PostgresPlace,
    monkeypatch: pytest.MonkeyPatch,
    sink: str,
) -> None:
    monkeypatch.setenv("TABLES_DSN", on_postgres.dsn)
    given = {"dsn": "${env:TABLES_DSN}", "table": "rows"} if sink == "postgres" else {}
    update = {"sink_format": sink, "sink_options": given}
    run_available(spark, options.model_copy(update=update))
    produce(kafka.bootstrap_servers, topic, [Row(b"later", partition=1)])
    named = {**update, "application_name": "flights-2"}
    run_available(spark, options.model_copy(update=named))
    if sink == "delta":
        found = deltalake.DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
        values = [row["value"] for row in found]
    else:
        values = [value for (value,) in on_postgres.run("SELECT value FROM rows")]
    assert sorted(values) == sorted(["later", *(value for _, value, _, _ in FLIGHTS)])


@pytest.mark.long
def test_delta_without_its_package_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rows.writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(OptionsError, match=r"Spark has no delta here: .*io\.delta:delta-spark"):
        start_into(writer, "delta", str(tmp_path / "out"))
    assert not spark.streams.active
