"""First unread records are read once, and a failure leaves them unknown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.observation.lag_times import Deletion, Retention, UnreadReading
from spark_groups.observation.unread_times import KEPT_S, UnreadTimes
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection
from spark_groups.wire.fetch.first_unread import FirstRecord
from spark_groups.wire.security.security_settings import security_of
from tests.observation.groups import FLIGHTS, key
from tests.secured import SecuredKafka
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all requests."""
    names: list[str] = []
    send = Connection.send

    def counted(self: Connection, message: Any, values: Any, timeout_s: float) -> None:
        names.append(message.name.split()[0])
        send(self, message, values, timeout_s)

    monkeypatch.setattr(Connection, "send", counted)
    return names


@pytest.mark.broker
def test_a_record_is_read_again_once_it_is_passed_or_a_minute_old(
    kafka: EmbeddedKafka, topic_name: str, sent: list[str]
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 1, {"retention.ms": "-1"})
    rows = [Row(b"x", partition=0, timestamp_ms=BEGIN_MS + each) for each in range(5)]
    produce(servers, topic_name, rows)
    later_s = 0.0
    times = UnreadTimes(steady_s=lambda: time.monotonic() + later_s)
    with Cluster(servers) as cluster:
        only = TopicIdPartition(topic_id(cluster, topic_name), 0)

        def read(offset: int) -> tuple[UnreadReading, list[str]]:
            sent.clear()
            reading = times.read(cluster, {only: offset}, {only.topic_id: topic_name})
            return reading, list(sent)

        first, requests = read(2)
        assert first.first.found == {only: FirstRecord(2, BEGIN_MS + 2)}
        assert first.retention[only.topic_id].deletion is Deletion.NEVER
        assert requests.count("Fetch") == requests.count("DescribeConfigs") == 1
        same, requests = read(2)
        assert (same.first, requests) == (first.first, [])
        moved, requests = read(3)
        assert moved.first.found == {only: FirstRecord(3, BEGIN_MS + 3)}
        assert requests.count("Fetch") == 1
        # A reset goes back.
        back, requests = read(1)
        assert back.first.found == {only: FirstRecord(1, BEGIN_MS + 1)}
        assert requests.count("Fetch") == 1
        later_s = KEPT_S
        again, requests = read(1)
        assert again.first == back.first
        assert requests.count("Fetch") == requests.count("DescribeConfigs") == 1


@pytest.mark.broker
@pytest.mark.long
def test_a_refused_retention_is_asked_for_again_after_a_minute(
    secured: SecuredKafka, topic_name: str, sent: list[str]
) -> None:
    servers = secured.kafka.bootstrap_servers
    create_topic(servers, topic_name, 1, {"retention.ms": "-1"})
    secured.allow("alice", "TOPIC", topic_name, "READ")
    security = security_of(secured.login("SCRAM-SHA-512"))
    with Cluster(servers) as inside:
        only = TopicIdPartition(topic_id(inside, topic_name), 0)
    later_s = 0.0
    times = UnreadTimes(steady_s=lambda: time.monotonic() + later_s)
    with Cluster(secured.kafka.listener("LOGIN"), security=security) as cluster:

        def retention() -> Retention:
            sent.clear()
            reading = times.read(cluster, {only: 0}, {only.topic_id: topic_name})
            return reading.retention[only.topic_id]

        refused = retention()
        assert refused.reason == "TOPIC_AUTHORIZATION_FAILED (needs DESCRIBE_CONFIGS)"
        assert sent.count("DescribeConfigs") == 1
        secured.allow("alice", "TOPIC", topic_name, "DESCRIBE_CONFIGS")
        # A moment without lag, or another group, is no reason to ask again.
        times.read(cluster, {}, {})
        assert retention() == refused
        assert "DescribeConfigs" not in sent

        def granted() -> bool:
            nonlocal later_s
            later_s += KEPT_S
            return retention() == Retention(deletion=Deletion.NEVER)

        wait_until(granted, what="the retention")


def read_nowhere(offsets: Mapping[TopicIdPartition, int], timeout_s: float = 0.2) -> UnreadReading:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    with Cluster(nowhere, request_timeout_s=timeout_s) as cluster:
        return UnreadTimes(now_ms=lambda: BEGIN_MS).read(
            cluster, offsets, {FLIGHTS: "flights"}, timeout_s
        )


def test_brokers_that_do_not_answer_leave_everything_unknown() -> None:
    found = read_nowhere({key(0): 5, key(1): 0})
    assert found.first.found == {}
    assert {each.partition for each in found.first.unknown} == {0, 1}
    assert all("127.0.0.1" in reason for reason in found.first.unknown.values())
    assert found.retention[FLIGHTS].deletion is Deletion.UNKNOWN
    assert found.retention[FLIGHTS].reason


def test_without_lag_no_broker_is_asked() -> None:
    assert read_nowhere({}, timeout_s=60.0) == UnreadReading(now_ms=BEGIN_MS)
