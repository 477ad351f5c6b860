"""Requests to the coordinator, on brokers with topic ids in commits (4.3) and without (4.0)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    DescribeGroupRequest,
    HeartbeatRequest,
    Node,
    OffsetAndMetadata,
)
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from tests.answers import fetch_answer
from tests.wire.coordinator_connection_setup import Member, coordinator, join, topic_id
from tests.wire.listener import await_end, greet, listening, read_frame, tell_cluster
from workshop.parts.brokers import create_topic, delete_topic
from workshop.parts.waiting import LONG_S, SOON_S


@pytest.fixture(params=["4.3.1", "4.0.0"])
def broker(request, kafka_version: Callable[[str], EmbeddedKafka]) -> EmbeddedKafka:
    return kafka_version(request.param)


@pytest.fixture
def cluster(broker: EmbeddedKafka) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def member(broker, cluster: Cluster, topic_name: str, group_id: str) -> Iterator[Member]:
    create_topic(broker.bootstrap_servers, topic_name, partitions=2)
    connection = CoordinatorConnection(client_id="a-test")
    yield join(connection, coordinator(cluster, group_id), group_id, topic_name)
    connection.close()


@pytest.mark.broker
def test_a_member_joins_heartbeats_commits_fetches_and_leaves(member, cluster, broker) -> None:
    assert member.joined.member_id == member.member_id
    assert len(member.joined.assignment) == 2
    beat = HeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=member.joined.member_epoch,
    )
    answer = member.send(beat)
    assert (answer.error_code, answer.assignment) == (0, None)
    assert answer.heartbeat_interval_ms == 5000

    first, second = member.joined.assignment
    assert member.commit({first: OffsetAndMetadata(0, "2")}) == {first: 0}
    fetched = member.fetch([first, second])
    assert fetched.answers == {first: OffsetAndMetadata(0, "2"), second: OffsetAndMetadata(-1)}

    described = member.send(DescribeGroupRequest(group_id=member.group_id))
    assert described.members[0].assignment == member.joined.assignment
    assert described.members[0].client_id == "a-test"
    assert described == cluster.describe_group(DescribeGroupRequest(group_id=member.group_id))

    assert member.send(replace(beat, member_epoch=LEAVE_GROUP_MEMBER_EPOCH)).error_code == 0
    assert member.send(beat).error_code in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


@pytest.mark.broker
def test_commits_and_fetches_are_fenced_by_the_member_epoch(member) -> None:
    first, second = member.joined.assignment
    offsets = {first: OffsetAndMetadata(5), second: OffsetAndMetadata(5)}
    greater = member.joined.member_epoch + 1
    stale = ErrorCode.STALE_MEMBER_EPOCH.value
    assert member.commit(offsets, member_epoch=greater) == dict.fromkeys(offsets, stale)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID.value
    assert member.commit(offsets, member_id="unknown") == dict.fromkeys(offsets, unknown)
    assert member.fetch(offsets, member_epoch=greater).error_code == stale
    fetched = member.fetch(offsets)
    assert fetched.answers == dict.fromkeys(offsets, OffsetAndMetadata(-1))


@pytest.mark.broker
def test_a_topic_that_is_gone_is_answered_with_its_id(member, cluster, broker, topic_name) -> None:
    first, second = member.joined.assignment
    assert member.commit({first: OffsetAndMetadata(7)}) == {first: 0}
    delete_topic(broker.bootstrap_servers, topic_name)
    create_topic(broker.bootstrap_servers, topic_name, partitions=2)
    renewed = TopicIdPartition(topic_id(cluster, topic_name), first.partition)
    assert renewed.topic_id != first.topic_id

    # A greater epoch of the member can follow from the new topic: ask with the current one.
    described = member.send(DescribeGroupRequest(group_id=member.group_id))
    member.joined = replace(member.joined, member_epoch=described.members[0].member_epoch)
    gone = ErrorCode.UNKNOWN_TOPIC_ID.value
    offsets = {first: OffsetAndMetadata(8), renewed: OffsetAndMetadata(1)}
    assert member.commit(offsets) == {first: gone, renewed: 0}
    fetched = member.fetch([first, second, renewed])
    assert fetched == fetch_answer({renewed: OffsetAndMetadata(1)}, {first: gone, second: gone})
    assert member.commit({first: OffsetAndMetadata(9)}) == {first: gone}


@pytest.mark.broker
def test_hundreds_of_partitions_are_committed_at_once(
    cluster, broker, topic_name, group_id
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, partitions=200)
    connection = CoordinatorConnection()
    member = join(connection, coordinator(cluster, group_id), group_id, topic_name)
    offsets = {each: OffsetAndMetadata(each.partition, "200") for each in member.joined.assignment}
    assert len(offsets) == 200
    assert member.commit(offsets) == dict.fromkeys(offsets, 0)
    assert member.fetch(offsets).answers == offsets
    connection.close()


@pytest.mark.broker
def test_the_lane_follows_the_coordinator(member) -> None:
    beat = HeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=member.joined.member_epoch,
    )
    here = member.node
    gone = Node(9, "127.0.0.1", *free_ports(1))
    with pytest.raises(RequestError, match="refused") as raised:
        member.connection.send(gone, beat, LONG_S)
    assert not raised.value.may_have_arrived
    assert member.connection.send(here, beat, LONG_S).error_code == 0
    member.connection.interrupt()
    assert member.connection.send(here, beat, LONG_S).error_code == 0
    member.connection.shutdown()
    with pytest.raises(RequestError, match="shut down"):
        member.connection.send(here, beat, LONG_S)


HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m", member_epoch=1)


@pytest.mark.parametrize("wake", [CoordinatorConnection.interrupt, CoordinatorConnection.shutdown])
def test_a_blocked_request_is_woken(wake: Callable[[CoordinatorConnection], None]) -> None:
    asked = threading.Event()

    def script(peer: socket.socket) -> None:
        greet(peer)
        tell_cluster(peer)
        read_frame(peer)
        asked.set()
        await_end(peer)

    with listening(script) as port:
        connection = CoordinatorConnection()
        waker = threading.Thread(target=lambda: asked.wait(LONG_S) and wake(connection))
        waker.start()
        started = time.monotonic()
        with pytest.raises(RequestError, match="shut down") as raised:
            connection.send(Node(1, "127.0.0.1", port), HEARTBEAT, LONG_S)
        waker.join()
        assert raised.value.may_have_arrived
        assert time.monotonic() - started < SOON_S


def test_the_deadline_includes_connecting() -> None:
    with listening(await_end) as port:
        started = time.monotonic()
        with pytest.raises(RequestError, match="in time") as raised:
            CoordinatorConnection().send(Node(1, "127.0.0.1", port), HEARTBEAT, 0.3)
        assert 0.3 <= time.monotonic() - started < SOON_S
        assert not raised.value.may_have_arrived


def test_a_broker_without_the_protocol_is_an_answer() -> None:
    old = ({"api_key": 8, "min_version": 0, "max_version": 8},)

    def script(peer: socket.socket) -> None:
        greet(peer, old)
        await_end(peer)

    with listening(script) as port:
        connection = CoordinatorConnection()
        answer = connection.send(Node(1, "127.0.0.1", port), HEARTBEAT, LONG_S)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "does not support ConsumerGroupHeartbeat v1" in answer.error_message
        connection.close()
