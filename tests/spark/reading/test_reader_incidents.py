"""Both readers while brokers die, come back, and lose what they had."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError, DataLossError
from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.types import OffsetRange
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.timeouts import Timeouts
from spark_groups.wire.transport import FrameBuffer
from tests.clusters import ThreeBrokers, rack_of
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import ANSWER_S, Row, admin, await_partitions, create_topic, produce
from workshop.parts.waiting import SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

ROWS = 60_000
ROW_BYTES = 1000
PARTITIONS = 3
TCP_INFO_BYTES = 136
BYTES_RECEIVED_AT = 128
"""Of tcpi_bytes_received. Source: struct tcp_info in linux/tcp.h."""
ELECTED_S = 120.0

each_reader = pytest.mark.parametrize(
    "reader", [ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA], ids=lambda each: each.value
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeBrokers]:
    """Three brokers that these tests may stop, one at a time."""
    near = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with ThreeBrokers(server_properties=near) as running:
        yield running


def settings_for(servers: str, reader: ReaderChoice) -> RangeSettings:
    # So little memory that a range comes in many responses.
    return RangeSettings(
        bootstrap_servers=tuple(servers.split(",")),
        group_id="incidents",
        poll_timeout_s=60.0,
        timeouts=Timeouts(request_s=20.0),
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


def test_a_replica_nearby_is_what_the_fast_reader_reads(
    cluster: ThreeBrokers, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(cluster.bootstrap_servers, ReaderChoice.FAST)
    cluster.create_topic(topic_name, PARTITIONS)
    ranges = [each for each in write(settings, topic_name) if each.partition == 0]
    near = min(cluster.nodes.keys() - {leader_of(settings, topic_name, 0)})
    answers: dict[str, int] = {}
    receive_into = Connection.receive_into

    def count(connection: Connection, buffer: FrameBuffer, idle_s: float) -> Values:
        values = receive_into(connection, buffer, idle_s)
        answers[str(connection.address)] = answers.get(str(connection.address), 0) + 1
        return values

    monkeypatch.setattr(Connection, "receive_into", count)
    rows = sum(e.num_rows for e in read_ranges(replace(settings, rack=rack_of(near)), ranges))
    assert rows == ROWS // PARTITIONS
    # The leader says once who is nearby.
    (first, *others) = sorted(answers.values())
    assert answers[cluster.nodes[near].bootstrap_servers] > 5
    assert (first, len(others)) == (1, 1)


class ReceivedBytes:
    """What this process has received from each broker, connections of librdkafka included.

    Args:
        brokers: Node ids by the port that they listen on.
    """

    def __init__(self, brokers: Mapping[int, int]) -> None:
        self._brokers = brokers
        self._by_connection: dict[tuple[int, int], int] = {}

    def look(self) -> dict[int, int]:
        """Look at all open connections; return the bytes by node id."""
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    continue
                with socket.socket(fileno=os.dup(int(name))) as each:
                    self._note(each)
        found = dict.fromkeys(self._brokers.values(), 0)
        for (node_id, _), count in self._by_connection.items():
            found[node_id] += count
        return found

    def _note(self, connection: socket.socket) -> None:
        if connection.family != socket.AF_INET:
            return
        node_id = self._brokers.get(connection.getpeername()[1])
        if node_id is not None:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            (count,) = struct.unpack_from("=Q", info, BYTES_RECEIVED_AT)
            self._by_connection[node_id, connection.getsockname()[1]] = count


@each_reader
def test_executors_in_three_zones_read_from_their_own(
    cluster: ThreeBrokers,
    topic_name: str,
    reader: ReaderChoice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(settings_for(cluster.bootstrap_servers, reader), rack="${env:ZONE}")
    cluster.create_topic(topic_name, PARTITIONS)
    ranges = write(settings, topic_name)
    nodes = cluster.nodes.items()
    received = ReceivedBytes({int(e.bootstrap_servers.split(":")[1]): i for i, e in nodes})
    for node_id in cluster.nodes:
        monkeypatch.setenv("ZONE", rack_of(node_id))
        before = received.look()
        found = []
        for batch in read_ranges(settings, ranges):
            found.append(batch)
            received.look()
        check_complete(found)
        after = received.look()
        grown = {each: after[each] - before[each] for each in cluster.nodes}
        own = grown.pop(node_id)
        # From elsewhere only metadata, and the leaders' word on who is nearby.
        assert own > ROWS * ROW_BYTES / 2
        assert sum(grown.values()) < own / 1000


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
    found.append(next(batches))
    moved = [TopicPartition(topic_name, index) for index in range(PARTITIONS)]
    operator = admin(cluster.bootstrap_servers)
    operator.elect_leaders(ElectionType.PREFERRED, moved).result(ANSWER_S)
    check_complete([*found, *batches])


@each_reader
def test_a_replica_nearby_that_dies_takes_no_rows_with_it(
    cluster: ThreeBrokers, topic_name: str, reader: ReaderChoice
) -> None:
    settings = settings_for(cluster.bootstrap_servers, reader)
    cluster.create_topic(topic_name, PARTITIONS)
    ranges = write(settings, topic_name)
    near = min(cluster.nodes.keys() - {leader_of(settings, topic_name, 0)})
    batches = read_ranges(replace(settings, rack=rack_of(near)), ranges)
    found = [next(batches)]
    cluster.nodes[near].kill()
    try:
        check_complete([*found, *batches])
    finally:
        cluster.nodes[near].start()
        cluster.await_all()


@each_reader
def test_a_broker_that_freezes_is_named_in_time(topic_name: str, reader: ReaderChoice) -> None:
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, topic_name, PARTITIONS)
        settings = settings_for(servers, reader)
        ranges = write(settings, topic_name)
        batches = read_ranges(
            replace(settings, poll_timeout_s=8.0, timeouts=Timeouts(request_s=8.0)), ranges
        )
        next(batches)
        kafka.pause()
        began_at = time.monotonic()
        with pytest.raises(BrokerUnreachableError, match=rf"{servers}"):
            list(batches)
        assert time.monotonic() - began_at < SOON_S
        kafka.resume()
        check_complete(list(read_ranges(settings, ranges)))


@each_reader
def test_reading_continues_after_a_broker_restart(topic_name: str, reader: ReaderChoice) -> None:
    with EmbeddedKafka() as kafka:
        settings = settings_for(kafka.bootstrap_servers, reader)
        create_topic(kafka.bootstrap_servers, topic_name, PARTITIONS)
        ranges = write(settings, topic_name)
        batches = read_ranges(settings, ranges)
        found = [next(batches)]
        kafka.restart()
        check_complete([*found, *batches])


def test_a_truncated_log_is_reported_by_both(cluster: ThreeBrokers, topic_name: str) -> None:
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
        begun = [replace(cut[0], from_offset=5)]
        impatient = replace(settings_for(servers, reader), poll_timeout_s=5.0)
        with pytest.raises(DataLossError, match=r"from offset 10 until 15 .* from 0 until 10"):
            list(read_ranges(impatient, begun))
    impatient = replace(settings_for(servers, ReaderChoice.FAST), poll_timeout_s=5.0)
    (kept,) = read_ranges(replace(impatient, fail_on_data_loss=False), begun)
    assert kept["offset"].to_pylist() == [5, 6, 7, 8, 9]
    cluster.nodes[leader].start()
    cluster.await_all()
