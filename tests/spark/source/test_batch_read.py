"""What a group has not read yet, as DataFrames: exactly that, and the group does not notice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import DataLossError, GroupNotFoundError, OptionsError, ProtocolError
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.member.messages import OffsetAndMetadata, TopicMetadata
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.reading import GroupReading
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.source.batch_read import Timed, chosen_topics, read_backlog, unread
from spark_groups.types import OffsetRange, TopicId, TopicIdPartition
from spark_groups.wire.cluster_identity import ClusterIdentity
from tests.answers import fetch_answer
from tests.observation.groups import FLIGHTS, described, key
from tests.runtime.members import QueryLike, queries
from tests.secured import SecuredKafka
from tests.spark.source.backlog_setup import read_all
from workshop.parts.brokers import Row, create_topic, grow_topic, produce

ENDS = {key(0): 10, key(1): 20, key(2): 30}
STARTS = {key(0): 0, key(1): 5, key(2): 3}
ABSENT = OffsetAndMetadata(-1)


def options(**changes: str) -> SourceOptions:
    needed = {"kafka.bootstrap.servers": "localhost:1", "kafka.group.id": "flight-readers"}
    return SourceOptions.of(needed | changes)


def reading(*found: OffsetAndMetadata, errors: dict[Any, int] | None = None) -> GroupReading:
    """Return what brokers say of a group and its topic of three partitions."""
    offsets = dict(zip(map(key, range(3)), found, strict=False))
    return GroupReading(
        description=described(),
        committed=fetch_answer(offsets=offsets, errors=errors or {}).answers,
        topics=(TopicMetadata(FLIGHTS, "flights", 3), TopicMetadata(key(0).topic_id, "other", 0)),
    )


def ranges(read: GroupReading, checked: SourceOptions) -> list[tuple[int, int, int]]:
    found = list(unread(read, read.topics[:1], STARTS, ENDS, checked))
    assert all(isinstance(each, OffsetRange) and each.topic == "flights" for each in found)
    return [(each.partition, each.from_offset, each.until_offset) for each in found]


def test_committed_offsets_come_first_and_starting_offsets_where_there_are_none() -> None:
    read = reading(OffsetAndMetadata(4, commit_metadata(3)), ABSENT)
    assert ranges(read, options()) == [(0, 4, 10)]
    earliest = options(startingOffsets="earliest")
    assert ranges(read, earliest) == [(0, 4, 10), (1, 5, 20), (2, 3, 30)]
    named = options(startingOffsets='{"flights": {"1": 7, "2": -1}}')
    assert ranges(read, named) == [(0, 4, 10), (1, 7, 20)]


def test_partition_that_came_later_is_read_from_its_beginning() -> None:
    read = reading(OffsetAndMetadata(10, commit_metadata(2)), OffsetAndMetadata(20))
    assert ranges(read, options()) == [(2, 3, 30)]


def test_partition_of_unknown_age_is_read_from_its_beginning(caplog) -> None:
    read = reading(OffsetAndMetadata(4), ABSENT)
    assert ranges(read, options()) == [(0, 4, 10), (1, 5, 20), (2, 3, 30)]
    assert "no committed offset for partitions 1, 2 of flights" in caplog.text
    assert ranges(read, options(startingOffsets='{"flights": {"1": 20, "2": 30}}')) == [(0, 4, 10)]
    assert caplog.text.count("no committed offset") == 1


def test_log_that_ends_before_the_committed_offset_is_a_loss() -> None:
    read = reading(OffsetAndMetadata(11, commit_metadata(3)), OffsetAndMetadata(19))
    with pytest.raises(
        DataLossError, match="offset 11 of flights-0 is committed, but its log ends at 10"
    ):
        ranges(read, options())
    assert ranges(read, options(failOnDataLoss="false")) == [(1, 19, 20)]


def test_error_is_never_taken_for_no_committed_offset() -> None:
    read = reading(errors={key(1): 29})
    with pytest.raises(ProtocolError, match="OffsetFetch of flights-1 was refused: TOPIC_AUTH"):
        ranges(read, options(startingOffsets="earliest"))


def test_read_of_no_group_that_ends_before_it_starts_is_refused_as_by_spark() -> None:
    def ends_at(*untils: int) -> list[tuple[int, int, int]]:
        given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights"}
        bounds = {
            "startingTimestamp": "1000",
            "endingOffsets": json.dumps({"flights": dict(zip("012", untils, strict=True))}),
        }
        checked = SourceOptions.of(given | bounds, may_lack_group=True)
        read = reading()
        timed = Timed(starts={key(0): 4, key(1): 8, key(2): 9})
        found = unread(read, read.topics[:1], STARTS, ENDS, checked, timed=timed)
        return [(each.partition, each.from_offset, each.until_offset) for each in found]

    assert ends_at(4, 9, -1) == [(1, 8, 9), (2, 9, 30)]
    with pytest.raises(OptionsError, match="offset 8 of flights-1 is the start by startingTime"):
        ends_at(4, 7, -1)


def test_topics_of_the_group_can_be_chosen_and_no_others() -> None:
    read = reading()

    def chosen(**changes: str) -> list[str]:
        return [each.name for each in chosen_topics(read, options(**changes))]

    assert chosen() == ["flights", "other"]
    assert chosen(subscribe="flights") == ["flights"]
    assert chosen(subscribePattern="fl.*") == ["flights"]
    with pytest.raises(OptionsError, match="does not read trains; its topics are: flights, other"):
        chosen(subscribe="flights,trains")
    with pytest.raises(OptionsError, match=r"any topic that matches 't\.\*'"):
        chosen(subscribePattern="t.*")


def test_topics_internal_to_kafka_are_left_out_unless_they_are_named_or_read() -> None:
    internal = TopicMetadata(TopicId(int=99), "__consumer_offsets", 1, is_internal=True)
    read = replace(reading(), topics=(*reading().topics, internal))

    def chosen(of: GroupReading, **changes: str) -> list[str]:
        return [each.name for each in chosen_topics(of, options(**changes))]

    assert chosen(read) == ["flights", "other"]
    assert chosen(read, subscribePattern="fl.*|__.*") == ["flights"]
    assert chosen(read, subscribe="__consumer_offsets") == ["__consumer_offsets"]
    with pytest.raises(OptionsError, match="any topic that matches '__"):
        chosen(read, subscribePattern="__.*")
    committed_too = {TopicIdPartition(internal.topic_id, 0): OffsetAndMetadata(4)}
    assert chosen(replace(read, committed=committed_too)) == [
        "flights",
        "other",
        "__consumer_offsets",
    ]


@pytest.mark.broker
def test_read_without_a_group_leaves_internal_topics_out_unless_they_are_named(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"value"])
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        query.commit_all()

    def topics(**chosen: str) -> set[str]:
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "startingOffsets": "earliest",
            **chosen,
        }
        return {
            each.topic
            for each in read_backlog(
                SourceOptions.of(given, may_lack_group=True), ClusterIdentity()
            )
        }

    assert topics(subscribePattern=f"{topic_name}|__.*") == {topic_name}
    assert topics(subscribe="__consumer_offsets") == {"__consumer_offsets"}


def load(spark: SparkSession, servers: str, group_id: str, **changes: str) -> DataFrame:
    needed = {"kafka.bootstrap.servers": servers, "kafka.group.id": group_id}
    return spark.read.format("kafka-group").options(**(needed | changes)).load()


def rows_of(backlog: DataFrame) -> list[tuple[int, int, bytes]]:
    columns = backlog.select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, bytes(row.value)) for row in columns)


def produce_values(kafka: EmbeddedKafka, topic: str, first: int, until: int) -> None:
    rows = [
        Row(b"%d" % number, partition=number % 2, headers=(("n", b"%d" % number),))
        for number in range(first, until)
    ]
    produce(kafka.bootstrap_servers, topic, rows)


@pytest.fixture
def behind(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[QueryLike]:
    """A living member that has read and committed 20 rows; 30 more are there."""
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    produce_values(kafka, topic_name, 0, 20)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        read_all(query, kafka.bootstrap_servers, group_id, {0: 10, 1: 10})
        produce_values(kafka, topic_name, 20, 50)
        yield query


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("reader", ["fast", "librdkafka"])
def test_backlog_is_read_and_the_group_does_not_notice(
    spark: SparkSession, kafka: EmbeddedKafka, behind: QueryLike, group_id: str, reader: str
) -> None:
    servers = kafka.bootstrap_servers
    with GroupObserver(servers) as observer:
        before = observer.observe(group_id)
        backlog = load(spark, servers, group_id, reader=reader, includeHeaders="true")
        expected = [(n % 2, n // 2, b"%d" % n) for n in range(20, 50)]
        assert rows_of(backlog) == sorted(expected)
        (headers,) = {len(row.headers) for row in backlog.collect()}
        assert headers == 1
        assert backlog.count() == 30
        after = observer.observe(group_id)
    assert after == before, "members, epochs, assignments and committed offsets are as they were"
    assert len(before.description.members) == 1


@pytest.mark.broker
@pytest.mark.spark
def test_tasks_ranges_and_topics_are_those_that_were_asked_for(
    spark: SparkSession, kafka: EmbeddedKafka, behind: QueryLike, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    split = load(spark, servers, group_id, minPartitions="5", subscribe=topic_name)
    assert split.rdd.getNumPartitions() >= 5
    assert len(rows_of(split)) == 30
    emitted = load(spark, servers, group_id, emit="ranges").collect()
    assert [(row.partition, row.fromOffset, row.untilOffset) for row in emitted] == [
        (0, 10, 25),
        (1, 10, 25),
    ]
    with pytest.raises(PySparkException, match="does not read nothing-like-it"):
        load(spark, servers, group_id, subscribe="nothing-like-it").collect()
    with pytest.raises(PySparkException, match="there is no group 'absent-group'"):
        load(spark, servers, "absent-group").collect()


@pytest.mark.broker
@pytest.mark.spark
def test_group_that_is_gone_keeps_its_backlog_and_an_empty_one_has_no_rows(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce_values(kafka, topic_name, 0, 10)
    with queries(servers, group_id, topic_name) as start:
        read_all(start(), servers, group_id, {0: 5, 1: 5})
    backlog = load(spark, servers, group_id)
    assert backlog.collect() == []
    assert load(spark, servers, group_id, emit="ranges").collect() == []
    grow_topic(servers, topic_name, 3)
    produce(servers, topic_name, [Row(b"new", partition=2)])
    assert rows_of(load(spark, servers, group_id)) == [(2, 0, b"new")]


@pytest.mark.broker
def test_group_that_does_not_exist_has_all_offsets_of_its_topics_where_it_may_be_new(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    produce_values(kafka, topic_name, 0, 7)
    needed = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group_id}
    named = SourceOptions.of(needed | {"subscribe": topic_name, "startingOffsets": "earliest"})
    found = read_backlog(named, ClusterIdentity(), may_be_new=True)
    assert [(each.partition, each.from_offset, each.until_offset) for each in found] == [
        (0, 0, 4),
        (1, 0, 3),
    ]
    with pytest.raises(GroupNotFoundError):
        read_backlog(named, ClusterIdentity())
    by_pattern = SourceOptions.of(needed | {"subscribePattern": f"{topic_name}.*"})
    with pytest.raises(OptionsError, match="does not exist: name its topics with subscribe"):
        read_backlog(by_pattern, ClusterIdentity(), may_be_new=True)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_read_committed_ends_where_a_transaction_is_open(
    spark: SparkSession, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 1)
    produce(servers, topic_name, [Row(b"known")] * 4)
    with queries(servers, group_id, topic_name) as start:
        read_all(start(), servers, group_id, {0: 4})
    produce(servers, topic_name, [Row(b"new")])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": group_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"not yet")
    assert producer.flush(30) == 0
    everything = [(0, 4, b"new"), (0, 5, b"not yet")]
    assert rows_of(load(spark, servers, group_id)) == everything
    committed_only = {"kafka.isolation.level": "read_committed"}
    assert rows_of(load(spark, servers, group_id, **committed_only)) == everything[:1]
    producer.abort_transaction(30)
    assert rows_of(load(spark, servers, group_id, **committed_only)) == everything[:1]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_backlog_on_a_secured_cluster(
    spark: SparkSession, secured: SecuredKafka, topic_name: str, group_id: str
) -> None:
    servers = secured.kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce_values(secured.kafka, topic_name, 0, 10)
    with queries(servers, group_id, topic_name) as start:
        read_all(start(), servers, group_id, {0: 5, 1: 5})
    produce_values(secured.kafka, topic_name, 10, 14)
    login = {f"kafka.{name}": value for name, value in secured.login("SCRAM-SHA-512").items()}
    for kind, name in (("TOPIC", topic_name), ("GROUP", group_id)):
        secured.allow("alice", kind, name, "READ")
    for source in ("kafka-group", "kafka-group-state"):
        rows = (
            spark.read.format(source)
            .option("kafka.bootstrap.servers", secured.kafka.listener("LOGIN"))
            .option("kafka.group.id", group_id)
            .options(**login)
            .load()
        )
        assert rows.count() == (4 if source == "kafka-group" else 2)
