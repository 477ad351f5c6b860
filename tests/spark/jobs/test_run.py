"""A job: its command line, its query on a real Spark and a real broker, and its output."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import deltalake
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_options import (
    ConsumeOptions,
    CopyOptions,
    ReplayOptions,
    load_job,
)
from spark_groups.spark.jobs.run import (
    SINK_LOG,
    WRITTEN_BY,
    ExitCode,
    OutputGuard,
    main,
    start_into,
    start_job,
    written,
)
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.places import PostgresPlace
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import environment
from workshop.parts.waiting import wait_until

DRY_RUN = {"--dry-run": ("replay.dryRun", "Only look.")}
READ_S = 400
ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / ConsumeOptions.example
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
    """The example, with this test's own names."""
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


@pytest.mark.broker
@pytest.mark.spark
def test_parquet_holds_the_produced_records(
    spark: SparkSession, options: ConsumeOptions, tmp_path: Path, topic: str
) -> None:
    run_available(spark, options)
    written = spark.read.parquet(str(tmp_path / "out" / "flights-job-1"))
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


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_second_run_of_the_application_continues(
    spark: SparkSession, kafka: EmbeddedKafka, options: ConsumeOptions, tmp_path: Path, topic: str
) -> None:
    run_available(spark, options)
    produce(kafka.bootstrap_servers, topic, [Row(b"later", partition=1)])
    run_available(spark, options)
    written = spark.read.parquet(str(tmp_path / "out" / "flights-job-1"))
    assert written.count() == len(FLIGHTS) + 1
    assert written.filter("value = 'later'").count() == 1


@pytest.mark.broker
@pytest.mark.spark
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
    with pytest.raises(OptionsError, match="silently skip"):
        start(spark, other)
    assert not (tmp_path / "another").exists()
    assert not spark.streams.active


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("sink", ["delta", "iceberg", "postgres"])
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
    lake = Lake.at(tmp_path / "lake")
    monkeypatch.setenv("CATALOG_URI", lake.properties["uri"])
    catalog = {**lake.properties, "uri": "${env:CATALOG_URI}", "identifier": lake.identifier}
    given = {
        "postgres": {"dsn": "${env:TABLES_DSN}", "table": "rows"},
        "iceberg": {
            **catalog,
            "catalog": lake.name,
            "partitionBy": "partition, bucket(4, offset), day(timestamp)",
        },
        "delta": {"partitionBy": "topic,partition"},
    }[sink]
    update = {"sink_format": sink, "sink_options": given}
    run_available(spark, options.model_copy(update=update))
    produce(kafka.bootstrap_servers, topic, [Row(b"later", partition=1)])
    named = {**update, "application_name": "flights-2"}
    run_available(spark, options.model_copy(update=named))
    if sink == "delta":
        found = deltalake.DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
        values = [row["value"] for row in found]
        assert deltalake.DeltaTable(tmp_path / "out").metadata().partition_columns == [
            "topic",
            "partition",
        ]
    elif sink == "iceberg":
        names = [each.name for each in lake.table().spec().fields]
        assert names == ["partition", "offset_bucket", "timestamp_day"]
        values = lake.rows()["value"].to_pylist()
    else:
        values = [value for (value,) in on_postgres.run("SELECT value FROM rows")]
    assert sorted(values) == sorted(["later", *(value for _, value, _, _ in FLIGHTS)])


@pytest.mark.broker
@pytest.mark.spark
def test_each_topic_has_a_table_where_the_path_has_its_name(
    spark: SparkSession, options: ConsumeOptions, tmp_path: Path, topic: str
) -> None:
    update = {"sink_format": "delta", "sink_path": f"{tmp_path}/lake/{{topic}}"}
    run_available(spark, options.model_copy(update=update))
    values = deltalake.DeltaTable(tmp_path / "lake" / topic).to_pyarrow_table()["value"]
    assert sorted(values.to_pylist()) == sorted(value for _, value, _, _ in FLIGHTS)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_delta_without_its_package_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rows.writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(
        OptionsError, match=r"this Spark has no delta sink: .*io\.delta:delta-spark"
    ):
        start_into(writer, "delta", str(tmp_path / "out"))
    assert not spark.streams.active


def never(*_: object) -> NoReturn:
    raise AssertionError("it ran")


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["jobs/replay.py", *arguments])


def test_wrong_options_end_it_with_two_and_name_the_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(
        monkeypatch,
        *("--config", str(ROOT / ReplayOptions.example), "--topics", "", "--dry-run"),
        *(
            "--set",
            "replay.to=nowhere",
            "--set",
            "replay.dryRun=perhaps",
            "--set",
            "query.trigger=soon",
        ),
    )
    with pytest.raises(SystemExit) as ended:
        main("Help.", ReplayOptions, never, flags=DRY_RUN)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("replay.py: the job's configuration is invalid:\n")
    for line in (
        "--topics: source.subscribe: ",
        "--set replay.dryRun: replay.dryRun: 'perhaps' is invalid",
        "--set replay.to: replay.to: 'nowhere' is invalid",
        "--set query.trigger: query.trigger: 'soon'",
    ):
        assert f"\n  - {line}" in said, said


def test_windows_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(monkeypatch, "--config", str(ROOT / ReplayOptions.example))
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        main("Help.", ReplayOptions, never)
    assert ended.value.code == ExitCode.REFUSED
    assert "does not run on Windows" in capsys.readouterr().err


def test_argument_that_there_is_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(monkeypatch, "--target", "t")
    with pytest.raises(SystemExit) as ended:
        main("Help.", CopyOptions, never)
    assert ended.value.code == 2
    assert "--target" in capsys.readouterr().err


def last_line(program: str, submit: str) -> str:
    """Run a program with arguments of spark-submit, and return the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(PYSPARK_SUBMIT_ARGS=submit, PYSPARK_PYTHON=sys.executable),
        stdout=subprocess.PIPE,
        text=True,
        timeout=800,
        check=True,
    )
    return done.stdout.splitlines()[-1]


SESSION = """
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.jobs.run import session

spark = session("a job")
assert spark.range(1).rdd.map(lambda row: row.id + 1).collect() == [1]
print(spark.sparkContext.appName, spark.conf.get(UNIX_SOCKETS, None), sep="; ")
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "is_used"),
    [
        ("", "true"),
        ("--conf spark.python.unix.domain.socket.enabled=false", "false"),
        ("--driver-java-options -Djava.io.tmpdir={long}", "None"),
    ],
)
def test_workers_use_unix_sockets_unless_configured_or_paths_are_long(
    tmp_path: Path, arguments: str, is_used: str
) -> None:
    long = tmp_path / ("d" * 64)
    long.mkdir()
    submit = f"--master local[1] {arguments.format(long=long)} pyspark-shell"
    assert last_line(SESSION, submit) == f"a job; {is_used}"


EARLY_WORKERS = """
import sys
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from spark_groups.spark.jobs.run import session, start_workers
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice


class Loaded(DataSource):
    @classmethod
    def name(cls):
        return "loaded"

    def schema(self):
        return "is_loaded boolean"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(each) for each in range(2)]

    def read(self, partition):
        yield ("spark_groups.records.arrow_batches" in sys.modules,)


spark = session("a job")
fast = RangeSettings(bootstrap_servers=(), group_id="", reader=ReaderChoice.FAST)
start_workers(spark, fast).join()
spark.dataSource.register(Loaded)
rows = spark.readStream.format("loaded").load()
query = rows.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()
query.awaitTermination()
print({row.is_loaded for row in spark.table("found").collect()})
"""


@pytest.mark.spark
@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="the jobs start workers early on 4.2")
def test_workers_that_start_early_are_those_that_read() -> None:
    assert last_line(EARLY_WORKERS, "--master local[2] pyspark-shell") == "{True}"


def guard(spark: SparkSession, directory: Path, checkpoint: str = "checkpoint") -> OutputGuard:
    return OutputGuard(spark, output=str(directory / "out"), checkpoint=str(directory / checkpoint))


def run_query(spark: SparkSession, directory: Path, checkpoint: str = "checkpoint") -> str:
    """Write one batch, as a job does, and return the query's id."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rows.writeStream.format("parquet").trigger(processingTime="1 day")
    writer = writer.option("checkpointLocation", str(directory / checkpoint))
    query = writer.start(str(directory / "out"))
    try:
        wait_until(lambda: query.lastProgress is not None, what="the first batch")
        return str(query.id)
    finally:
        query.stop()


@pytest.mark.spark
def test_same_checkpoint_continues(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        one = guard(spark, tmp_path)
        one.claim()
        one.confirm(run_query(spark, tmp_path))
    assert (tmp_path / "out" / SINK_LOG).is_dir()


@pytest.mark.spark
def test_moved_checkpoint_continues(spark: SparkSession, tmp_path: Path) -> None:
    one = guard(spark, tmp_path)
    one.claim()
    one.confirm(run_query(spark, tmp_path))
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    guard(spark, tmp_path, "moved").claim()


@pytest.mark.spark
def test_another_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    one = guard(spark, tmp_path)
    one.claim()
    query_id = run_query(spark, tmp_path)
    one.confirm(query_id)
    with pytest.raises(OptionsError) as caught:
        guard(spark, tmp_path, "other").claim()
    text = str(caught.value)
    assert query_id in text
    assert f"file:{tmp_path}/out was written by" in text
    assert f"{tmp_path}/other" in text
    assert "Change application.name or sink.path" in text


@pytest.mark.spark
def test_new_checkpoint_at_the_same_place_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    one = guard(spark, tmp_path)
    one.claim()
    one.confirm(run_query(spark, tmp_path))
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(OptionsError, match="silently skip"):
        guard(spark, tmp_path).claim()


@pytest.mark.spark
def test_output_of_a_query_without_a_note_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run_query(spark, tmp_path)
    with pytest.raises(OptionsError, match="left no _written_by file"):
        guard(spark, tmp_path).claim()


@pytest.mark.spark
def test_claim_before_the_first_start_holds(spark: SparkSession, tmp_path: Path) -> None:
    guard(spark, tmp_path).claim()
    guard(spark, tmp_path).claim()
    with pytest.raises(OptionsError, match="the query of checkpoint"):
        guard(spark, tmp_path, "other").claim()


@pytest.mark.spark
def test_start_that_was_not_confirmed_is_confirmed_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    guard(spark, tmp_path).claim()
    query_id = run_query(spark, tmp_path)
    one = guard(spark, tmp_path)
    one.claim()
    one.confirm(query_id)
    note = json.loads((tmp_path / "out" / WRITTEN_BY).read_text("utf-8"))
    assert note["query_id"] == query_id


@pytest.mark.spark
def test_note_that_cannot_be_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / WRITTEN_BY).write_text("?", encoding="utf-8")
    with pytest.raises(OptionsError, match="cannot be read"):
        guard(spark, tmp_path).claim()


@pytest.mark.spark
def test_note_is_no_row(spark: SparkSession, tmp_path: Path) -> None:
    one = guard(spark, tmp_path)
    one.claim()
    one.confirm(run_query(spark, tmp_path))
    assert spark.read.parquet(str(tmp_path / "out")).count() == 5
