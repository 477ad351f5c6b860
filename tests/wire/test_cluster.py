"""What can be asked of a cluster, on real brokers."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.errors import AccessError, ErrorCode, OptionsError, ProtocolError
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetAndMetadata,
    OffsetCommitRequest,
    TopicMetadata,
    found_and_failed,
)
from spark_groups.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicId, TopicIdPartition
from spark_groups.wire.cluster import Cluster, ListedGroup
from spark_groups.wire.configuration import ConfigEntry, ConfigOrigin, ConfigResource
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.schemas.wire_messages import LIST_OFFSETS, METADATA
from spark_groups.wire.timeouts import Timeouts
from spark_groups.wire.topic_metadata import ClusterMetadata, KnownTopic, Leader
from tests.wire.coordinator_connection_setup import coordinator, join, topic_id
from tests.wire.listener import (
    await_end,
    correlation_id,
    greet,
    listening,
    read_frame,
    response,
    tell_cluster,
)
from workshop.parts.brokers import Row, create_topic, delete_topic, produce
from workshop.parts.waiting import LONG_S, SOON_S, wait_until


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as opened:
        yield opened


def list_offsets(cluster: Cluster, topic: TopicId, indexes, timestamp_ms: int, **options):
    asked = frozenset(TopicIdPartition(topic, index) for index in indexes)
    request = ListOffsetsRequest(partitions=asked, timestamp_ms=timestamp_ms, **options)
    answer = cluster.list_offsets(request)
    found, failed = found_and_failed(answer.answers)
    offsets = {key.partition: each.offset for key, each in found.items()}
    return offsets, {key.partition: code for key, code in failed.items()}


def settled_offsets(cluster: Cluster, topic: TopicId, indexes, timestamp_ms: int, **options):
    """Ask until every partition has an offset: a fresh one has no leader yet."""

    def complete():
        offsets, errors = list_offsets(cluster, topic, indexes, timestamp_ms, **options)
        return None if errors else offsets

    return wait_until(complete, what="offsets of every partition")


@pytest.mark.broker
def test_metadata_by_name_and_by_id(kafka, cluster, topic_name) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=3)
    known = topic_id(cluster, topic_name)
    topic = TopicMetadata(known, topic_name, 3)
    names, ids = frozenset({topic_name, "not-there"}), frozenset({known, uuid.uuid4()})
    by_name = cluster.metadata(MetadataRequest(topic_names=names))
    assert (by_name.topics, by_name.errors) == ((topic,), {})
    assert cluster.metadata(MetadataRequest(topic_ids=ids)).topics == (topic,)
    assert cluster.metadata(MetadataRequest(topic_names=names, topic_ids=ids)).topics == (topic,)
    assert cluster.metadata(MetadataRequest()).topics == ()
    illegal = cluster.metadata(MetadataRequest(topic_names=frozenset({"a b"})))
    assert illegal.errors == {"a b": 17}


@pytest.mark.broker
def test_missing_topic_has_the_name_that_was_meant(kafka, cluster, topic_name) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    meant = f"{topic_name}x"
    named = frozenset({topic_name, meant})
    assert cluster.metadata(MetadataRequest(topic_names=named)).near == {}, "it is not wanted"
    asked = MetadataRequest(topic_names=frozenset({meant}), wants_near=True)
    assert cluster.metadata(asked).near == {meant: topic_name}
    also = MetadataRequest(topic_names=named, wants_near=True)
    assert cluster.metadata(also).near == {}, "the other one is named already"


@pytest.mark.broker
def test_brokers(kafka, cluster) -> None:
    (node,) = cluster.nodes()
    assert f"{node.host}:{node.port}" == kafka.bootstrap_servers


@pytest.mark.broker
def test_offsets_of_every_kind(kafka, cluster, topic_name) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=3)
    rows = [Row(b"x", partition=0, timestamp_ms=1000 * n) for n in range(1, 6)]
    produce(kafka.bootstrap_servers, topic_name, [*rows, Row(b"y", partition=2)])
    topic = topic_id(cluster, topic_name)
    latest = settled_offsets(cluster, topic, range(3), LATEST_TIMESTAMP)
    assert latest == {0: 5, 1: 0, 2: 1}
    assert settled_offsets(cluster, topic, range(3), EARLIEST_TIMESTAMP) == {0: 0, 1: 0, 2: 0}
    assert settled_offsets(cluster, topic, [0, 1], 2500) == {0: 2, 1: -1}
    offsets, errors = list_offsets(cluster, topic, [0, 3], LATEST_TIMESTAMP)
    assert offsets == {0: 5}
    assert errors == {3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    unknown = list_offsets(cluster, uuid.uuid4(), [0], LATEST_TIMESTAMP)
    assert unknown == ({}, {0: ErrorCode.UNKNOWN_TOPIC_ID})
    assert list_offsets(cluster, topic, [], LATEST_TIMESTAMP) == ({}, {})


@pytest.mark.broker
def test_the_last_stable_offset_is_before_an_open_transaction(kafka, cluster, topic_name) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"1", b"2"])
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": topic_name,
            "log_level": 0,
        }
    )
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    producer.produce(topic_name, b"3")
    producer.flush(LONG_S)
    topic = topic_id(cluster, topic_name)
    assert settled_offsets(cluster, topic, [0], LATEST_TIMESTAMP) == {0: 3}
    stable = settled_offsets(cluster, topic, [0], LATEST_TIMESTAMP, read_committed=True)
    assert stable == {0: 2}
    producer.commit_transaction(LONG_S)
    wait_until(
        lambda: (
            list_offsets(cluster, topic, [0], LATEST_TIMESTAMP, read_committed=True)[0] == {0: 4}
        )
    )


@pytest.mark.broker
def test_a_new_topic_never_answers_for_the_old_one(kafka, topic_name) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"1"] * 3)
    with Cluster(kafka.bootstrap_servers, max_metadata_age_s=0.3) as cluster:
        old = topic_id(cluster, topic_name)
        assert settled_offsets(cluster, old, [0], LATEST_TIMESTAMP) == {0: 3}
        delete_topic(kafka.bootstrap_servers, topic_name)
        create_topic(kafka.bootstrap_servers, topic_name)
        produce(kafka.bootstrap_servers, topic_name, [b"1"] * 9)
        wait_until(lambda: cluster._leaders.outdated({old}), what="an old check of the id")
        gone = ({}, {0: ErrorCode.UNKNOWN_TOPIC_ID})
        assert list_offsets(cluster, old, [0], LATEST_TIMESTAMP) == gone
        new = topic_id(cluster, topic_name)
        assert settled_offsets(cluster, new, [0], LATEST_TIMESTAMP) == {0: 9}
        assert list_offsets(cluster, old, [0], LATEST_TIMESTAMP) == gone


@pytest.mark.broker
@pytest.mark.parametrize("wrong", [Leader(1, 99), Leader(-1, 0), Leader(77, 0)], ids=str)
def test_outdated_leaders_are_looked_up_again(kafka, cluster, topic_name, wrong: Leader) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    topic = topic_id(cluster, topic_name)
    settled_offsets(cluster, topic, [0], LATEST_TIMESTAMP)
    known = KnownTopic(TopicMetadata(topic, topic_name, 1), {0: wrong})
    cluster._leaders.learn(ClusterMetadata(cluster._leaders.nodes, {topic: known}))
    assert list_offsets(cluster, topic, [0], LATEST_TIMESTAMP) == ({0: 0}, {})


@pytest.mark.broker
def test_many_partitions_in_one_request(kafka, cluster, topic_name) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=300)
    topic = topic_id(cluster, topic_name)
    latest = settled_offsets(cluster, topic, range(300), LATEST_TIMESTAMP)
    assert latest == dict.fromkeys(range(300), 0)


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0"])
def test_groups_as_an_operator_sees_them(kafka_version, version, topic_name, group_id) -> None:
    kafka = kafka_version(version)
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    connection = CoordinatorConnection()
    with Cluster(kafka.bootstrap_servers) as cluster:
        member = join(connection, coordinator(cluster, group_id), group_id, topic_name)
        first, _ = member.joined.assignment
        commit = OffsetCommitRequest(
            group_id=group_id,
            member_id=member.member_id,
            member_epoch=member.joined.member_epoch,
            offsets={first: OffsetAndMetadata(0, "2")},
        )
        connection.send(member.node, commit, 10)
        offsets = {first: OffsetAndMetadata(0, "2")}
        assert cluster.fetch_all_offsets(group_id) == offsets
        listed = ListedGroup(
            group_id=group_id,
            protocol_type="consumer",
            group_state="Stable",
            group_type="consumer",
        )
        assert listed in cluster.list_groups()
        assert listed in cluster.list_groups(states=("Stable",), types=("consumer",))
        assert listed not in cluster.list_groups(types=("classic",))
        described = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
        assert (described.group_state, len(described.members)) == ("Stable", 1)
    connection.close()


@pytest.mark.broker
def test_a_group_that_does_not_exist(cluster, group_id) -> None:
    described = cluster.describe_group(DescribeGroupRequest(group_id=group_id))
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert cluster.fetch_all_offsets(group_id) == {}


@pytest.mark.broker
def test_configuration_of_groups_brokers_and_topics(kafka, cluster, topic_name, group_id) -> None:
    key = "consumer.session.timeout.ms"
    entry = ConfigEntry("45000", ConfigOrigin.DEFAULT)
    assert cluster.describe_configuration(ConfigResource.GROUP, group_id)[key] == entry
    (node,) = cluster.nodes()
    key = f"group.{key}"
    name = str(node.node_id)
    assert cluster.describe_configuration(ConfigResource.BROKER, name, [key]) == {key: entry}
    with pytest.raises(ProtocolError, match="there is no broker '99'"):
        cluster.describe_configuration(ConfigResource.BROKER, "99")
    with pytest.raises(ProtocolError, match="was refused: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.describe_configuration(ConfigResource.TOPIC, topic_name)


@pytest.mark.broker
def test_bootstrap_goes_past_addresses_that_do_not_answer(kafka) -> None:
    (refusing,) = free_ports(1)
    with listening(await_end) as silent:
        servers = f"127.0.0.1:{refusing},127.0.0.1:{silent},{kafka.bootstrap_servers}"
        started = time.monotonic()
        with Cluster(servers, timeouts=Timeouts(LONG_S, setup_s=0.5)) as cluster:
            assert len(cluster.nodes()) == 1
            assert time.monotonic() - started < SOON_S
            assert len(cluster.nodes()) == 1


@pytest.mark.broker
def test_it_recovers_after_a_restart_of_the_broker(topic_name) -> None:
    with EmbeddedKafka() as own:
        create_topic(own.bootstrap_servers, topic_name)
        with Cluster(own.bootstrap_servers) as cluster:
            topic = topic_id(cluster, topic_name)
            assert settled_offsets(cluster, topic, [0], LATEST_TIMESTAMP) == {0: 0}
            own.kill()
            cluster.call_s = 2.0
            started = time.monotonic()
            with pytest.raises(RequestError, match=own.bootstrap_servers):
                cluster.nodes()
            assert time.monotonic() - started < SOON_S
            own.start()
            cluster.call_s = LONG_S
            assert settled_offsets(cluster, topic, [0], LATEST_TIMESTAMP) == {0: 0}


def test_unreachable_brokers_are_all_named_in_bounded_time() -> None:
    (refusing,) = free_ports(1)
    with listening(await_end) as silent:
        servers = f"127.0.0.1:{refusing},127.0.0.1:{silent}"
        started = time.monotonic()
        with (
            Cluster(servers, request_timeout_s=1.0) as cluster,
            pytest.raises(RequestError, match=f"{refusing}.*refused.*{silent}.*in time"),
        ):
            cluster.nodes()
        assert 0.8 < time.monotonic() - started < SOON_S


def test_a_tls_listener_is_reported_at_once() -> None:
    def script(peer: socket.socket) -> None:
        read_frame(peer)
        peer.sendall(b"\x15\x03\x03\x00\x02\x02\x50")

    with (
        listening(script) as port,
        Cluster(f"127.0.0.1:{port}", request_timeout_s=LONG_S) as cluster,
    ):
        started = time.monotonic()
        with pytest.raises(AccessError, match="TLS alert"):
            cluster.nodes()
        assert time.monotonic() - started < SOON_S


def test_shutdown_ends_a_call_at_once() -> None:
    asked = threading.Event()

    def script(peer: socket.socket) -> None:
        greet(peer)
        read_frame(peer)
        asked.set()
        await_end(peer)

    with (
        listening(script) as port,
        Cluster(f"127.0.0.1:{port}", request_timeout_s=LONG_S) as cluster,
    ):
        waker = threading.Thread(target=lambda: asked.wait(LONG_S) and cluster.shutdown())
        waker.start()
        started = time.monotonic()
        with pytest.raises(RequestError, match="shut down"):
            cluster.find_coordinator(FindCoordinatorRequest(group_id="g"))
        waker.join()
        assert time.monotonic() - started < SOON_S
        with pytest.raises(RequestError, match="shut down"):
            cluster.nodes()


def test_bad_addresses_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(OptionsError, match="is not host:port"):
        Cluster("localhost")


FLIGHTS = uuid.UUID(int=1)


def metadata_values(ports: list[int]) -> dict:
    """Build a Metadata response: partition n of one topic is led by broker n."""
    partitions = [
        {
            "error_code": 0,
            "partition_index": index,
            "leader_id": index,
            "leader_epoch": 0,
            "replica_nodes": (),
            "isr_nodes": (),
            "offline_replicas": (),
        }
        for index in range(len(ports))
    ]
    topic = {
        "error_code": 0,
        "name": "flights",
        "topic_id": FLIGHTS,
        "is_internal": False,
        "partitions": partitions,
        "topic_authorized_operations": 0,
    }
    return {
        "throttle_time_ms": 0,
        "brokers": [
            {"node_id": index, "host": "127.0.0.1", "port": port, "rack": None}
            for index, port in enumerate(ports)
        ],
        "cluster_id": None,
        "controller_id": 0,
        "topics": [topic],
    }


def offsets_values(index: int) -> dict:
    partition = {
        "partition_index": index,
        "error_code": 0,
        "timestamp": -1,
        "offset": 100 + index,
        "leader_epoch": 0,
    }
    return {"throttle_time_ms": 0, "topics": [{"name": "flights", "partitions": [partition]}]}


@pytest.mark.parametrize("second_answers", [True, False])
def test_leaders_are_asked_at_the_same_time_and_fail_alone(second_answers: bool) -> None:
    ports: list[int] = []
    second_asked = threading.Event()

    def first(peer: socket.socket) -> None:
        greet(peer)
        while frame := read_frame(peer):
            if frame.startswith(b"\x00\x03"):
                answer = response(METADATA, correlation_id(frame), metadata_values(ports))
            else:
                assert second_asked.wait(LONG_S)
                answer = response(LIST_OFFSETS, correlation_id(frame), offsets_values(0))
            peer.sendall(answer)

    def second(peer: socket.socket) -> None:
        greet(peer)
        tell_cluster(peer)
        frame = read_frame(peer)
        second_asked.set()
        if second_answers:
            peer.sendall(response(LIST_OFFSETS, correlation_id(frame), offsets_values(1)))
            await_end(peer)

    with listening(first) as one, listening(second) as other:
        ports += [one, other]
        with Cluster(f"127.0.0.1:{one}") as cluster:
            offsets, errors = list_offsets(cluster, FLIGHTS, [0, 1], LATEST_TIMESTAMP)
    if second_answers:
        assert (offsets, errors) == ({0: 100, 1: 101}, {})
    else:
        assert (offsets, errors) == ({0: 100}, {1: ErrorCode.NETWORK_EXCEPTION})
