"""`format("kafka-group-state")` on a real Spark and a real broker."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import spark_groups
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.observation.views import view_group
from spark_groups.spark.state.source import STATE_COLUMNS, StateRow, state_rows
from tests.observation.groups import ONE, TWO, member, read
from tests.runtime.members import queries
from tests.spark.source.backlog_setup import read_all
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def load(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("kafka-group-state").options(**options).load()


def test_groups_are_shown_as_they_stand(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    week_s = 7 * 24 * 3600
    retention = {"retention.ms": str(week_s * 1000)}
    create_topic(kafka.bootstrap_servers, topic_name, 2, retention)
    produce(kafka.bootstrap_servers, topic_name, [Row(b"x", partition=1)] * 5)
    unread = Row(b"x", partition=1, timestamp_ms=time.time_ns() // 1_000_000 - 3_600_000)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(member={"rack_id": "zone-a"})
        read_all(query, kafka.bootstrap_servers, group_id, {0: 0, 1: 5})
        produce(kafka.bootstrap_servers, topic_name, [unread] * 2)
        state = load(spark, **servers, **{"kafka.group.id": group_id})
        rows = state.orderBy("partition").collect()
    assert tuple(state.columns) == StateRow._fields
    assert [(row.topic, row.partition, row.group_state) for row in rows] == [
        (topic_name, 0, "Stable"),
        (topic_name, 1, "Stable"),
    ]
    assert [(row.committed_offset, row.log_end_offset, row.lag) for row in rows] == [
        (0, 0, 0),
        (5, 7, 2),
    ]
    now_s = time.time()
    behind_s = rows[1].seconds_behind
    assert rows[0].seconds_behind == 0.0
    assert behind_s == pytest.approx(now_s - rows[1].first_unread.timestamp(), abs=60)
    assert behind_s >= 3600
    assert rows[1].deletion == "by age"
    assert rows[1].deletion_in_s == pytest.approx(week_s - behind_s, abs=0.01)
    assert (rows[0].deletion, rows[0].deletion_in_s, rows[0].first_unread) == (None,) * 3
    assert len({row.member_id for row in rows} - {None}) == 1
    assert rows[0].member_epoch == rows[0].group_epoch == rows[0].assignment_epoch
    assert rows[0].moves_to is None
    assert {(row.rack_id, row.member_type) for row in rows} == {("zone-a", "consumer")}
    assert [row.target_member_id for row in rows] == [row.member_id for row in rows]
    everything = load(spark, **servers).where(f"group_id = '{group_id}'").collect()
    assert [(row.group_state, row.member_id) for row in everything] == [("Empty", None)] * 2


def test_problems_are_reported_at_load_or_when_rows_are_read(
    spark: SparkSession, kafka: EmbeddedKafka
) -> None:
    spark_groups.register(spark)
    with pytest.raises(AnalysisException, match="subscribe is not an option of this source"):
        load(spark, **{"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights"})
    absent = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": "absent"}
    with pytest.raises(PySparkException, match="there is no group 'absent'"):
        load(spark, **absent).collect()
    unreachable = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        load(spark, **unreachable).collect()


def test_columns_are_the_fields_of_a_row() -> None:
    columns = [each.split()[0] for each in STATE_COLUMNS.split(",")]
    assert tuple(columns) == StateRow._fields


def test_partition_has_its_owner_and_where_it_goes() -> None:
    group = read(
        member(ONE, [0, 1], [0], instance_id="gate-1", rack_id="zone-a"),
        member(TWO, [], [1], member_type=0),
        committed={0: 4},
        starts={0: 0},
        ends={0: 10},
    )
    first, second, waiting = state_rows(view_group(group))
    assert (first.group_id, first.group_state, first.group_epoch) == ("flight-readers", "Stable", 7)
    assert (first.topic, first.partition, first.member_id) == ("flights", 0, ONE)
    assert (first.instance_id, first.member_epoch, first.moves_to) == ("gate-1", 7, None)
    assert (first.client_id, first.client_host) == ("app-1", "127.0.0.1")
    assert (first.committed_offset, first.log_end_offset, first.lag) == (4, 10, 6)
    assert (first.rack_id, first.member_type, first.target_member_id) == ("zone-a", "consumer", ONE)
    assert (second.partition, second.member_id, second.moves_to) == (1, ONE, TWO)
    assert second.target_member_id == TWO
    assert (waiting.member_type, waiting.rack_id, waiting.target_member_id) == (
        *("classic", None),
        None,
    )
    assert second[-9:-1] == (None,) * 8, "unknown values are None, not 0"
    assert (waiting.member_id, waiting.topic, waiting.lag) == (TWO, None, None)


@pytest.mark.parametrize("state", ["Empty", "Dead"])
def test_group_without_anything_has_a_row_of_its_own(state: str) -> None:
    (row,) = state_rows(view_group(read(partitions=0, state=state)))
    assert (row.group_id, row.group_state) == ("flight-readers", state)
    assert set(row[6:]) == {None}


def test_partition_without_an_owner_is_a_row_without_a_member() -> None:
    (row,) = state_rows(view_group(read(partitions=1, committed={0: 3}, state="Empty")))
    assert (row.partition, row.committed_offset, row.member_id) == (0, 3, None)


SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9093"}
