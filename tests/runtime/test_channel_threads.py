"""The threads that carry requests: each channel by itself, every request answered or failed."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupSettingsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    Node,
    OffsetFetchRequest,
    RequestFailed,
)
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.runtime.channel_threads import ChannelThreads
from spark_groups.types import NO_PARTITIONS
from spark_groups.wire.schemas.wire_messages import DESCRIBE_CONFIGS
from spark_groups.wire.security.security import Security
from tests.runtime.proxy import Proxy
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, wait_until

Start = Callable[..., tuple[ChannelThreads, "queue.SimpleQueue[tuple[Outgoing, object]]"]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[ChannelThreads] = []

    def threads(servers: str) -> tuple[ChannelThreads, queue.SimpleQueue[tuple[Outgoing, object]]]:
        answers: queue.SimpleQueue[tuple[Outgoing, object]] = queue.SimpleQueue()
        each = ChannelThreads(
            (servers,),
            client_id="threads",
            security=Security(),
            answered=lambda outgoing, answer: answers.put((outgoing, answer)),
            crashed=lambda error: pytest.fail(repr(error)),
        )
        each.start()
        started.append(each)
        return each, answers

    yield threads
    for each in started:
        each.shutdown(2.0)


def fetch(group_id: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=group_id, partitions=frozenset())


@pytest.mark.broker
def test_each_lane_brings_the_answer_to_its_request(
    kafka: EmbeddedKafka, start: Start, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    threads, answers = start(kafka.bootstrap_servers)
    metadata = MetadataRequest(topic_names=frozenset({topic_name}))
    threads.send(Outgoing(Channel.CLUSTER, metadata))
    _, found = answers.get(timeout=LONG_S)
    assert isinstance(found, MetadataResponse)
    assert [each.name for each in found.topics] == [topic_name]

    def leave_as_unknown_member() -> int:
        # The first group of a broker makes its topic: until then it has no coordinator.
        threads.send(Outgoing(Channel.SEARCH, FindCoordinatorRequest(group_id=group_id)))
        _, coordinator = answers.get(timeout=LONG_S)
        assert isinstance(coordinator, FindCoordinatorResponse)
        if coordinator.coordinator is None:
            return coordinator.error_code
        leaving = HeartbeatRequest(group_id=group_id, member_id="unknown", member_epoch=-1)
        threads.send(Outgoing(Channel.HEARTBEAT, leaving, coordinator.coordinator))
        outgoing, answer = answers.get(timeout=LONG_S)
        assert outgoing.request is leaving
        assert isinstance(answer, HeartbeatResponse)
        return answer.error_code

    wait_until(lambda: leave_as_unknown_member() == ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.mark.broker
def test_the_search_for_a_coordinator_does_not_wait_behind_a_slow_broker(
    kafka: EmbeddedKafka, start: Start, group_id: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Proxy(listening)
        proxy.forward_to(kafka.bootstrap_servers)
        proxy.delays_s[DESCRIBE_CONFIGS.api_key] = 6.0
        try:
            threads, answers = start(proxy.address)
            settings = GroupSettingsRequest(group_id=group_id)
            threads.send(Outgoing(Channel.CLUSTER, settings, timeout_s=2.0))
            wait_until(lambda: DESCRIBE_CONFIGS.api_key in {key for _, key in proxy.seen})
            threads.send(Outgoing(Channel.SEARCH, FindCoordinatorRequest(group_id=group_id)))
            _, found = answers.get(timeout=LONG_S)
            assert isinstance(found, FindCoordinatorResponse)
            _, settled = answers.get(timeout=LONG_S)
            assert isinstance(settled, RequestFailed)
        finally:
            proxy.close()


def test_a_heartbeat_does_not_wait_behind_another_request(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        node = Node(1, "127.0.0.1", silent.getsockname()[1])
        unreachable = Node(2, "127.0.0.1", 1)
        threads, answers = start("127.0.0.1:1")
        threads.send(Outgoing(Channel.OFFSETS, fetch("g"), node))
        beat = HeartbeatRequest(
            group_id="g", member_id="m", member_epoch=1, topic_partitions=NO_PARTITIONS
        )
        threads.send(Outgoing(Channel.HEARTBEAT, beat, unreachable))
        outgoing, answer = answers.get(timeout=LONG_S)
        assert outgoing.request is beat
        assert isinstance(answer, RequestFailed)
        assert "127.0.0.1:1" in answer.reason
        assert not answer.may_have_arrived


def test_what_waits_for_an_old_coordinator_ends_when_there_is_another(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threads, answers = start("127.0.0.1:1")
        old = Node(1, "127.0.0.1", silent.getsockname()[1])
        threads.send(Outgoing(Channel.OFFSETS, fetch("g"), old))
        connection, _ = silent.accept()
        with connection:
            began_at = time.monotonic()
            threads.coordinator_is(Node(2, "127.0.0.1", 1))
            _, answer = answers.get(timeout=LONG_S)
            assert isinstance(answer, RequestFailed)
            assert time.monotonic() - began_at < 5, "its own deadline is 10 s"


def test_an_error_of_the_taker_of_answers_is_reported_and_ends_the_thread() -> None:
    crashes: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def refuse(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    threads = ChannelThreads(
        ("127.0.0.1:1",),
        client_id="threads",
        security=Security(),
        answered=refuse,
        crashed=crashes.put,
    )
    threads.start()
    try:
        threads.send(Outgoing(Channel.OFFSETS, fetch("g"), Node(1, "127.0.0.1", 1)))
        assert isinstance(crashes.get(timeout=LONG_S), ZeroDivisionError)
    finally:
        threads.shutdown(2.0)
