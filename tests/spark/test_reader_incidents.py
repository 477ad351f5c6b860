"""Both readers while brokers die, come back, and lose what they had."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic

from spark_groups.errors import DataLossError
from spark_groups.kafka.cluster import Cluster
from spark_groups.kafka.embedded import EmbeddedKafka
from spark_groups.spark.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reader import read_ranges
from spark_groups.types import OffsetRange
from tests.brokers import ANSWER_S, Row, admin, await_partitions, create_topic, produce
from tests.clusters import ThreeBrokers
from tests.spark.both_readers import topic_ids
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(300)]

ROWS = 60_000
PARTITIONS = 3
ELECTED_S = 60.0

each_reader = pytest.mark.parametrize(
    "reader", [ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA], ids=lambda each: each.value
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """Three brokers that these tests may stop, one at a time."""
    with ThreeBrokers() as running:
        yield running


def settings_for(servers: str, reader: ReaderChoice) -> RangeSettings:
    # So little memory that a range comes in many responses.
    return RangeSettings(
        bootstrap_servers=tuple(servers.split(",")),
        group_id="incidents",
        poll_timeout_s=60.0,
        request_timeout_s=20.0,
        reader=reader,
        memory_bytes=16 * 2**20,
        tuning=(("max.partition.fetch.bytes", "1000000"),),
    )


def write(settings: RangeSettings, topic: str) -> list[OffsetRange]:
    rows = (Row(b"%01000d" % index, partition=index % PARTITIONS) for index in range(ROWS))
    produce(",".join(settings.bootstrap_servers), topic, rows)
    topic_id = topic_ids(settings, [topic])[topic]
    end = ROWS // PARTITIONS
    return [OffsetRange(topic_id, topic, index, 0, end) for index in range(PARTITIONS)]


def check_complete(batches: list[pa.RecordBatch]) -> None:
    found = sorted(value for batch in batches for value in batch["value"].to_pylist())
    assert found == [b"%01000d" % index for index in range(ROWS)]


def leader_of(settings: RangeSettings, topic: str, index: int) -> int:
    with Cluster(settings.bootstrap_servers) as running:
        (known,) = running.topics([topic]).topics.values()
    return known.leaders[index].node_id


@each_reader
def test_leaders_that_die_or_move_take_no_rows_with_them(
    cluster: ThreeBrokers, topic_name: str, reader: ReaderChoice
) -> None:
    settings = settings_for(cluster.bootstrap_servers, reader)
    cluster.create_topic(topic_name, PARTITIONS)
    ranges = write(settings, topic_name)
    batches = read_ranges(settings, ranges)
    found = [next(batches)]
    node_id = leader_of(settings, topic_name, 1)
    cluster.nodes[node_id].kill()
    found += [next(batches), next(batches)]
    cluster.nodes[node_id].start()
    cluster.await_all()
    check_complete([*found, *batches])


@each_reader
def test_a_broker_that_starts_anew_is_read_on(topic_name: str, reader: ReaderChoice) -> None:
    with EmbeddedKafka() as kafka:
        settings = settings_for(kafka.bootstrap_servers, reader)
        create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
        ranges = write(settings, topic_name)
        batches = read_ranges(settings, ranges)
        found = [next(batches)]
        kafka.restart()
        check_complete([*found, *batches])


def test_a_log_that_was_cut_is_told_by_both(cluster: ThreeBrokers, topic_name: str) -> None:
    servers, leader, laggard = cluster.bootstrap_servers, 1, 2
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(topic_name, 1, replica_assignment=[[leader, laggard]], config=config)
    client = admin(servers)
    client.create_topics([topic])[topic_name].result(ANSWER_S)
    await_partitions(servers, topic_name, 1)
    settings = settings_for(servers, ReaderChoice.FAST)
    produce(servers, topic_name, [b"kept"] * 10)
    cluster.nodes[laggard].kill()
    produce(servers, topic_name, [b"lost"] * 5)
    cluster.nodes[leader].kill()
    cluster.nodes[laggard].start()
    wait_until(
        lambda: leader_of(settings, topic_name, 0) == laggard,
        ELECTED_S,
        what="a leader that is behind",
    )
    cut = [OffsetRange(topic_ids(settings, [topic_name])[topic_name], topic_name, 0, 12, 15)]
    for reader in (ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA):
        with pytest.raises(DataLossError, match=r"from offset 12 until 15 .* from 0 until 10"):
            list(read_ranges(settings_for(servers, reader), cut))
    cluster.nodes[leader].start()
    cluster.await_all()
