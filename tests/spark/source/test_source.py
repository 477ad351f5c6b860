"""The source on a real Spark and a real broker: triggers, restarts, replays, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.ledger.plan_text import parse_plan_text
from spark_groups.spark.source.source import HAS_ADMISSION_CONTROL
from spark_groups.types import BatchPlan
from tests.runtime.members import committed, queries
from tests.spark.queries import READ_S, GroupQuery
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import environment, is_alive
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 3
needs_admission_control = pytest.mark.skipif(
    not HAS_ADMISSION_CONTROL, reason="before Spark 4.2 a source sees neither limit nor trigger"
)


@pytest.fixture
def query(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> GroupQuery:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=PARTITIONS)
    return GroupQuery(spark, kafka, group_id, topic_name, tmp_path)


def produce_values(query: GroupQuery, first: int, until: int) -> Counter[bytes]:
    values = [b"%d" % i for i in range(first, until)]
    rows = [Row(value, partition=i % PARTITIONS) for i, value in enumerate(values)]
    produce(query.kafka.bootstrap_servers, query.topic, rows)
    return Counter(values)


def plan_of(query: GroupQuery, batch_id: int) -> BatchPlan:
    plan = parse_plan_text(query.offsets_file(batch_id).read_text().splitlines()[-1])
    assert plan is not None
    return plan


def last_batch(query: GroupQuery) -> int:
    return max(int(file.name) for file in (query.checkpoint / "offsets").glob("[0-9]*"))


def test_schema_is_that_of_the_kafka_source(query: GroupQuery) -> None:
    # Spark 4.2's KafkaRecordToRowConverter: every column may be null.
    assert query.source().schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    query.options["includeHeaders"] = "true"
    schema = query.source().schema
    assert schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert all(field.nullable for field in schema)


def test_wrong_options_fail_at_load(query: GroupQuery) -> None:
    query.options |= {"startingOffset": "earliest", "kafka.session.timeout.ms": "9"}
    with pytest.raises(AnalysisException) as caught:
        query.source()
    assert "did you mean startingOffsets?" in str(caught.value)
    assert "kafka.session.timeout.ms is refused" in str(caught.value)


def test_a_pattern_reads_no_topic_that_is_internal_to_kafka(query: GroupQuery) -> None:
    sent = produce_values(query, 0, 30)
    query.chosen = {"subscribePattern": f"{query.topic}|__.*"}
    query.run_available()
    assert query.values() == sent
    sent += produce_values(query, 30, 33)
    with query.running(processingTime="0 seconds"):
        query.await_rows(33)

        def held() -> bool:
            assigned = (query.member() or {}).get("assigned", ())
            return any(each.startswith("__consumer_offsets-") for each in assigned)

        wait_until(held, what="partitions of an internal topic")
        # The commit of each batch writes to an internal topic: that must not make the next one.
        ends = dict.fromkeys(range(PARTITIONS), 11)
        wait_until(lambda: query.committed() == ends, what="commits")
        sent += produce_values(query, 33, 36)
        query.await_rows(36)
    assert query.values() == sent
    plans = [plan_of(query, each) for each in range(last_batch(query) + 1)]
    assert {each.topic for plan in plans for each in plan.ranges} == {query.topic}
    found = committed(query.kafka.bootstrap_servers, query.group_id)
    assert {topic for topic, _ in found} == {query.topic}


def test_source_is_found_by_registration_too(spark: SparkSession) -> None:
    spark_groups.register(spark)
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is missing"):
        spark.readStream.format("kafka-group").load()


def test_stream_without_topics_is_refused(spark: SparkSession, kafka: EmbeddedKafka) -> None:
    servers = kafka.bootstrap_servers
    nothing_chosen = {"kafka.bootstrap.servers": servers, "kafka.group.id": "unused"}
    rows = spark.readStream.format("kafka-group").options(**nothing_chosen).load()
    running = rows.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="set subscribe or subscribePattern"):
        running.awaitTermination(READ_S)


@needs_admission_control
def test_available_now_reads_all_commits_all_and_leaves(query: GroupQuery) -> None:
    produced = produce_values(query, 0, 300)
    query.options["maxOffsetsPerTrigger"] = "90"
    query.run_available()
    assert query.values() == produced
    assert query.committed() == {0: 100, 1: 100, 2: 100}
    wait_until(lambda: query.members() == 0, what="an empty group")
    assert len(plan_of(query, last_batch(query)).ranges) in (0, PARTITIONS)


@needs_admission_control
def test_available_now_reads_batches_of_at_most_so_many_bytes(query: GroupQuery) -> None:
    size_bytes, limit_bytes = 10_000, 300_000
    rows = [Row(b"%06d" % each + b"v" * size_bytes, partition=each % 3) for each in range(120)]
    produce(query.kafka.bootstrap_servers, query.topic, rows, {"compression.type": "zstd"})
    query.options["maxBytesPerTrigger"] = str(limit_bytes)
    query.run_available()
    assert query.values() == Counter(row.value for row in rows)
    assert query.committed() == {0: 40, 1: 40, 2: 40}
    plans = [plan_of(query, each) for each in range(last_batch(query) + 1)]
    sizes = [size_bytes * sum(map(len, plan.ranges)) for plan in plans if plan.ranges]
    assert max(sizes) <= limit_bytes
    assert len(sizes) == 5, "four batches of 27 records, and one with the rest"


@needs_admission_control
def test_ranges_of_a_batch_are_rows_that_a_sink_can_compare(query: GroupQuery) -> None:
    produce_values(query, 0, 300)
    query.options |= {"emit": "ranges", "maxOffsetsPerTrigger": "90"}
    next_offsets: dict[tuple[str, int], int] = {}

    def compare(ranges: DataFrame, _batch_id: int) -> None:
        for each in ranges.collect():
            key = each.topicId, each.partition
            assert next_offsets.get(key, 0) == each.fromOffset
            next_offsets[key] = each.untilOffset

    writer = query.source().writeStream.foreachBatch(compare)
    running = writer.option("checkpointLocation", str(query.checkpoint))
    assert running.trigger(availableNow=True).start().awaitTermination(READ_S)
    assert sorted(next_offsets.values()) == [100, 100, 100]
    assert query.committed() == {0: 100, 1: 100, 2: 100}


def test_available_now_begins_where_the_last_run_ended(query: GroupQuery) -> None:
    produced = produce_values(query, 0, 30)
    query.run_available()
    produced += produce_values(query, 30, 75)
    query.run_available()
    query.run_available()
    assert query.values() == produced
    assert sum(query.committed().values()) == 75


@needs_admission_control
def test_available_now_of_a_topic_that_does_not_exist_fails(query: GroupQuery) -> None:
    query.topic = f"{query.topic},flihgts"
    with query.running(availableNow=True) as running, pytest.raises(StreamingQueryException) as e:
        running.awaitTermination(READ_S)
    assert "topics that do not exist or that this user may not describe: flihgts" in str(e.value)


@needs_admission_control
def test_available_now_beside_a_killed_member_fails_if_that_is_wanted(query: GroupQuery) -> None:
    produce_values(query, 0, 300)
    servers = query.kafka.bootstrap_servers
    with queries(servers, query.group_id, query.topic) as start:
        killed = start()
        wait_until(lambda: killed.run() or len(killed.assigned) == PARTITIONS, what="all of it")
        killed.vanish()
        query.options |= {"availableNowUnsettled": "fail", "availableNowSettleTimeout": "6s"}
        with query.running(availableNow=True) as run, pytest.raises(StreamingQueryException) as e:
            run.awaitTermination(READ_S)
        assert f"are not released by {killed.member_id}" in str(e.value)
        assert query.topic in str(e.value)


def test_columns_hold_the_produced_records(query: GroupQuery) -> None:
    time_ms = 1_577_836_800_123
    rows = [
        Row(b"v", key=b"k", partition=1, timestamp_ms=time_ms, headers=(("h", b"1"),)),
        Row(None, key=None, partition=1, timestamp_ms=time_ms),
    ]
    produce(query.kafka.bootstrap_servers, query.topic, rows)
    query.options["includeHeaders"] = "true"
    query.run_available()
    first, second = query.rows()
    assert (first["key"], first["value"], first["topic"]) == (b"k", b"v", query.topic)
    assert (first["partition"], first["offset"], first["timestampType"]) == (1, 0, 0)
    assert first["timestamp"].timestamp() == pytest.approx(time_ms / 1000)
    assert [(each["key"], each["value"]) for each in first["headers"]] == [("h", b"1")]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


@pytest.mark.parametrize("trigger", [{}, {"processingTime": "200 milliseconds"}], ids=str)
def test_continuous_triggers(query: GroupQuery, trigger: dict[str, str]) -> None:
    produced = produce_values(query, 0, 60)
    with query.running(**trigger):
        query.await_rows(60)
        produced += produce_values(query, 60, 120)
        query.await_rows(120)
        wait_until(lambda: sum(query.committed().values()) == 120, what="the last commit")
        assert query.members() == 1
    assert query.values() == produced


def test_idle_query_makes_no_batches(query: GroupQuery) -> None:
    produce_values(query, 0, 3)
    with query.running() as running:
        query.await_rows(3)
        wait_until(lambda: sum(query.committed().values()) == 3, what="the last commit")
        batch = last_batch(query)
        idle = [0]

        def polled_often() -> bool:
            idle[0] += 1
            return idle[0] > 50

        wait_until(polled_often, what="fifty looks")
        assert last_batch(query) == batch
        assert running.isActive


@needs_admission_control
def test_end_offset_is_the_plan_and_lag_is_reported(query: GroupQuery) -> None:
    produce_values(query, 0, 30)
    with query.running() as running:
        query.await_rows(30)
        batch = last_batch(query)
        progress = wait_until(
            lambda: next((p for p in running.recentProgress if p.numInputRows), None)
        )
        source = progress.sources[0]
        plan = parse_plan_text(source.endOffset)
        assert plan is not None
        assert plan.group_id == query.group_id
        assert {each.partition: each.until_offset for each in plan.ranges} == {0: 10, 1: 10, 2: 10}
        assert json.loads(source.latestOffset) == {query.topic: {"0": 10, "1": 10, "2": 10}}
        assert batch <= last_batch(query)


def test_query_stop_leaves_the_group_at_once(query: GroupQuery) -> None:
    produce_values(query, 0, 30)
    with query.running() as running:
        query.await_rows(30)
        member = wait_until(query.member, what="a snapshot")
        running.stop()
        wait_until(lambda: query.members() == 0, 30, what="an empty group")
        wait_until(lambda: not is_alive(member["pid"]), what="the end of the runner")
        wait_until(lambda: query.member() is None, what="no snapshot")


def test_restart_begins_where_the_stopped_query_ended(query: GroupQuery) -> None:
    produced = produce_values(query, 0, 30)
    with query.running():
        query.await_rows(30)
        wait_until(lambda: sum(query.committed().values()) == 30, what="the last commit")
    produced += produce_values(query, 30, 60)
    with query.running():
        query.await_rows(60)
    assert query.values() == produced


def test_batch_that_was_planned_and_not_committed_has_the_same_rows(query: GroupQuery) -> None:
    produced = produce_values(query, 0, 30)
    query.run_available()
    batch = next(
        int(file.name)
        for file in (query.checkpoint / "offsets").glob("[0-9]*")
        if plan_of(query, int(file.name)).ranges
    )
    planned = query.offsets_file(batch).read_text()
    # As a crash between plan and commit leaves it: the later files are not there.
    for file in query.checkpoint.rglob("*"):
        number = file.name.strip(".").split(".")[0]
        is_plan = file.parent.name == "offsets" and number == str(batch)
        if file.is_file() and number.isdigit() and int(number) >= batch and not is_plan:
            file.unlink()
    again = GroupQuery(
        query.spark, query.kafka, query.group_id, query.topic, query.directory / "again"
    )
    (query.directory / "again").mkdir()
    query.checkpoint.rename(again.checkpoint)
    produce_values(query, 30, 60)
    with again.running():
        wait_until(again.commits_file(batch).exists, READ_S, "the replayed batch")
        assert again.offsets_file(batch).read_text() == planned
        again.await_rows(60)
        wait_until(lambda: sum(again.committed().values()) == 60, what="the last commit")
    assert again.values() == produced + Counter(b"%d" % i for i in range(30, 60))


def test_killed_runner_fails_the_query_and_the_next_run_owns_at_once(query: GroupQuery) -> None:
    produced = produce_values(query, 0, 30)
    with query.running() as running:
        query.await_rows(30)
        member = wait_until(query.member, what="a snapshot")
        os.kill(member["pid"], signal.SIGKILL)
        with pytest.raises(StreamingQueryException):
            running.awaitTermination(READ_S)
    produced += produce_values(query, 30, 60)
    with query.running():
        query.await_rows(60)
    assert query.values() == produced
    assert query.members() <= 1


def test_sigterm_from_elsewhere_is_left_to_the_jvm(query: GroupQuery) -> None:
    produced = produce_values(query, 0, 30)
    with query.running():
        query.await_rows(30)
        pid = wait_until(query.member, what="a snapshot")["pid"]
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        produced += produce_values(query, 30, 60)
        query.await_rows(60)
        assert is_alive(pid)
    assert query.values() == produced


@needs_admission_control
def test_trigger_once_is_refused_with_the_reason(query: GroupQuery) -> None:
    produce_values(query, 0, 3)
    with query.running(once=True) as running, pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination(READ_S)
    assert "Trigger.Once is refused" in str(caught.value)


@needs_admission_control
def test_named_source_continues_in_the_second_format_of_the_offset_log(query: GroupQuery) -> None:
    query.spark = query.spark.newSession()
    query.spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    query.spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    query.name = "flights"
    produced = produce_values(query, 0, 30)
    query.run_available()
    (line,) = query.offsets_file(0).read_text().splitlines()[2:]
    assert parse_plan_text(line.removeprefix("flights:")) is not None
    produced += produce_values(query, 30, 45)
    query.run_available()
    assert query.values() == produced
    assert sum(query.committed().values()) == 45


@needs_admission_control
def test_real_time_mode_is_not_open_to_python_sources(query: GroupQuery) -> None:
    writer = query.source().writeStream.format("console").outputMode("update")
    running = writer.trigger(realTime="5 minutes").start()
    with pytest.raises(StreamingQueryException, match="INPUT_STREAM_NOT_SUPPORTED"):
        running.awaitTermination(READ_S)


def test_unreachable_broker_fails_the_query_in_time(query: GroupQuery) -> None:
    query.options |= {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.default.api.timeout.ms": "2000",
    }
    with query.running() as running, pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination(READ_S)
    assert "127.0.0.1:1" in str(caught.value)


def test_topic_that_comes_later_is_read_from_its_beginning(query: GroupQuery) -> None:
    later = GroupQuery(
        query.spark, query.kafka, query.group_id, f"{query.topic}-later", query.directory
    )
    with later.running():
        wait_until(lambda: later.members() == 1, READ_S, "the member")
        create_topic(later.kafka.bootstrap_servers, later.topic, partitions=PARTITIONS)
        produced = produce_values(later, 0, 30)
        later.await_rows(30)
    assert later.values() == produced


STOPPED_CONTEXT = """
import sys
import threading
from pyspark.sql import SparkSession

servers, group_id, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("kafka-group").options(
    **{"kafka.bootstrap.servers": servers, "kafka.group.id": group_id, "subscribe": topic}
).load()
rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
sys.stdin.readline()
spark.stop()
print("stopped", flush=True)
# The JVM lives on with this process, and with it the runner would.
sys.stdin.readline()
"""


@pytest.mark.long
def test_stopped_spark_context_leaves_the_group_though_the_jvm_lives(query: GroupQuery) -> None:
    arguments = [query.kafka.bootstrap_servers, query.group_id, query.topic, str(query.checkpoint)]
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED_CONTEXT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(PYSPARK_PYTHON=sys.executable),
        text=True,
    ) as application:
        assert application.stdin is not None
        assert application.stdout is not None
        try:
            member = wait_until(query.member, READ_S, "a snapshot")
            wait_until(lambda: query.members() == 1, what="the member")
            application.stdin.write("stop\n")
            application.stdin.flush()
            assert application.stdout.readline() == "stopped\n"
            wait_until(lambda: query.members() == 0, what="an empty group")
            wait_until(lambda: not is_alive(member["pid"]), what="the end of the runner")
            assert application.poll() is None
        finally:
            application.kill()
