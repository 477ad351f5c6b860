"""Brokers that are slow, and connections that are dropped in silence, behind a proxy."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.member.messages import ListedOffset, ListOffsetsRequest, MetadataRequest
from spark_groups.group.snapshot import take_snapshot
from spark_groups.observation.local_members import parse_local_members
from spark_groups.runtime.engine import suspension_clock
from spark_groups.types import EARLIEST_TIMESTAMP, TopicIdPartition
from spark_groups.wire import connection as connections
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V4,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT_V10,
    Message,
)
from spark_groups.wire.timeouts import Timeouts
from tests.runtime.members import QueryLike, filled_topic
from tests.runtime.proxy import Proxy, proxied_kafka
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    with proxied_kafka({}) as running:
        yield running


@pytest.fixture
def proxy(proxied: tuple[EmbeddedKafka, Proxy]) -> Iterator[Proxy]:
    _, proxy = proxied
    proxy.seen.clear()
    yield proxy
    proxy.delays_s.clear()
    proxy.silent_once.clear()


def count(proxy: Proxy, message: Message) -> int:
    return sum(api_key == message.api_key for _, api_key in proxy.seen)


@pytest.mark.parametrize("slow", [API_VERSIONS_V4, METADATA], ids=["ApiVersions", "Metadata"])
def test_broker_that_is_slow_to_answer_is_reached_over_one_connection(
    proxy: Proxy, slow: Message
) -> None:
    proxy.delays_s[slow.api_key] = 1.5
    with Cluster(proxy.address, request_timeout_s=LONG_S) as cluster:
        assert cluster.nodes()
    assert count(proxy, API_VERSIONS_V4) == 1


def test_offsets_that_take_longer_than_the_first_attempt_are_listed(
    proxied: tuple[EmbeddedKafka, Proxy], proxy: Proxy, topic_name: str
) -> None:
    create_topic(proxied[0].bootstrap_servers, topic_name, 1)
    timeouts = Timeouts(request_s=LONG_S, first_wait_s=0.4)
    with Cluster(proxy.address, timeouts=timeouts) as cluster:
        asked_by_name = MetadataRequest(topic_names=frozenset({topic_name}), topic_ids=frozenset())
        (topic,) = cluster.metadata(asked_by_name).topics
        proxy.delays_s[LIST_OFFSETS.api_key] = 2.0
        key = TopicIdPartition(topic.topic_id, 0)
        asked = ListOffsetsRequest(partitions=frozenset({key}), timestamp_ms=EARLIEST_TIMESTAMP)
        answers = [cluster.list_offsets(asked).answers[key] for _ in range(4)]
        assert isinstance(answers[-1], ListedOffset)
        known = count(proxy, API_VERSIONS_V4)
        assert isinstance(cluster.list_offsets(asked).answers[key], ListedOffset)
    assert count(proxy, API_VERSIONS_V4) == known, "it knows by now how slow this leader is"


def test_member_names_its_wait_and_makes_few_connections(
    proxy: Proxy, topic_name: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.delays_s[FIND_COORDINATOR.api_key] = 3_600.0
    query = QueryLike(proxy.address, group_id, topic_name)
    began_at = time.monotonic()
    try:
        with caplog.at_level(logging.WARNING):
            query.driver.start(None)
            wait_until(lambda: "waiting for the answer" in caplog.text)
        view = query.driver.snapshot()
        (awaited,) = view.awaited_answers
        assert awaited.request == "FindCoordinatorRequest"
        (local,) = parse_local_members([view.as_plain()], group_id).values()
        assert "FindCoordinatorRequest" in local.awaited_answers[0]
        wait_until(lambda: time.monotonic() - began_at > 12.0)
        assert count(proxy, API_VERSIONS_V4) <= 6
    finally:
        query.driver.leave(0.5)


def test_connection_that_was_dropped_while_idle_costs_one_short_wait(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "OLD_S", 0.2)
    timeouts = Timeouts(request_s=LONG_S, first_wait_s=1.0)
    with Cluster(proxy.address, timeouts=timeouts) as cluster:
        assert cluster.nodes()
        time.sleep(0.3)  # Idle, as between two batches.
        proxy.silent_once.add(METADATA.api_key)
        began_at = time.monotonic()
        assert cluster.nodes()
        assert METADATA.api_key in proxy.silenced
        assert time.monotonic() - began_at < SOON_S


def test_commit_on_a_connection_that_was_dropped_while_idle_arrives(
    proxied: tuple[EmbeddedKafka, Proxy],
    proxy: Proxy,
    topic_name: str,
    group_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "OLD_S", 0.2)
    filled_topic(proxied[0].bootstrap_servers, topic_name, 1, 10)
    timeouts = Timeouts(request_s=LONG_S, first_wait_s=1.0)
    query = QueryLike(proxy.address, group_id, topic_name, driver={"timeouts": timeouts})
    try:
        query.plan_rows()
        time.sleep(0.5)
        proxy.silent_once.add(OFFSET_COMMIT_V10.api_key)
        query.finish()
        began_at = time.monotonic()
        assert query.driver.await_commits(LONG_S)
        assert time.monotonic() - began_at < SOON_S
        client = query.driver._engine.started()
        assert not take_snapshot(client, suspension_clock()).uncommitted
    finally:
        query.driver.leave(5.0)


def test_idle_connection_is_renewed_before_the_broker_or_a_middlebox_ends_it(proxy: Proxy) -> None:
    with Cluster(proxy.address, timeouts=Timeouts(max_idle_s=0.2)) as cluster:
        assert cluster.nodes()
        time.sleep(0.4)
        assert cluster.nodes()
    assert count(proxy, API_VERSIONS_V4) == 2
