"""Heartbeats of a query whose other requests are slow, or never answered."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.wire.schemas.wire_messages import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
)
from tests.runtime.members import all_at, committed, filled_topic, queries
from tests.runtime.proxy import Proxy, proxied_kafka
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

HEARTBEAT = CONSUMER_GROUP_HEARTBEAT.api_key
OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE = 8, 9, 69
DELAY_S, PATIENCE_S = 2.8, 2.5
"""How slow requests are, in less time than a connection is given up in; and that a busy machine is
late, but not as late as a heartbeat that waits behind one."""


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """A broker behind a proxy, with heartbeats so frequent that a delay of one is seen."""
    pace = {"group.consumer.heartbeat.interval.ms": "300"}
    with proxied_kafka(pace) as running:
        yield running


@pytest.fixture
def broker(proxied: tuple[EmbeddedKafka, Proxy]) -> EmbeddedKafka:
    return proxied[0]


@pytest.fixture
def proxy(proxied: tuple[EmbeddedKafka, Proxy]) -> Iterator[Proxy]:
    """The proxy, honest again after each test."""
    yield proxied[1]
    proxied[1].delays_s.clear()
    proxied[1].silent_once.clear()


def test_no_heartbeat_waits_behind_a_slow_request(
    broker: EmbeddedKafka, proxy: Proxy, topic_name: str, group_id: str
) -> None:
    filled_topic(broker.bootstrap_servers, topic_name, 2, 10)
    slow = (OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE)
    proxy.delays_s.update(dict.fromkeys(slow, DELAY_S))
    with queries(proxy.address, group_id, topic_name) as start:
        query = start()
        wait_until(lambda: query.driver.snapshot().member_epoch > 0, what="the member to join")
        joined_at = time.monotonic()
        query.plan_rows()
        query.finish()
        assert query.driver.await_commits(LONG_S), query.driver.snapshot()
        took_s = time.monotonic() - joined_at
        assert took_s > 1.5 * DELAY_S, "the requests were slow"
        assert proxy.longest_gap_s(HEARTBEAT, joined_at) < PATIENCE_S
        assert committed(broker.bootstrap_servers, group_id) == all_at(topic_name, 2, 10)


@pytest.mark.slow
@pytest.mark.parametrize("silenced", [OFFSET_COMMIT, HEARTBEAT])
def test_a_connection_that_hangs_is_replaced_and_the_other_one_stays(
    broker: EmbeddedKafka, proxy: Proxy, topic_name: str, group_id: str, silenced: int
) -> None:
    filled_topic(broker.bootstrap_servers, topic_name, 2, 10)
    with queries(proxy.address, group_id, topic_name) as start:
        query = start()
        query.plan_rows(PlanLimit(max_offsets=10))
        query.commit_all()
        before = (query.member_id, query.driver.snapshot().member_epoch)
        hung_at = time.monotonic()
        proxy.silent_once.add(silenced)
        # A search for the coordinator would be slow; none is needed, as it has not moved.
        proxy.delays_s[FIND_COORDINATOR.api_key] = DELAY_S
        query.plan_rows()
        query.finish()
        wait_until(lambda: silenced in proxy.silenced, what="the connection to hang")
        assert query.driver.await_commits(LONG_S), query.driver.snapshot()
        wait_until(lambda: heartbeats_since(proxy, hung_at) > 3, what="heartbeats to continue")
        gap_s = proxy.longest_gap_s(HEARTBEAT, hung_at)
        print(f"silent on {silenced}: {gap_s:.1f} s between heartbeats")
        assert gap_s < (PATIENCE_S if silenced == OFFSET_COMMIT else 12.0)
        assert committed(broker.bootstrap_servers, group_id) == all_at(topic_name, 2, 10)
        assert (query.member_id, query.driver.snapshot().member_epoch) == before
        proxy.silenced.clear()


def heartbeats_since(proxy: Proxy, since: float) -> int:
    return sum(1 for at, key in proxy.seen if key == HEARTBEAT and at > since)


def test_a_coordinator_that_says_nothing_does_not_hold_up_an_end(
    broker: EmbeddedKafka, proxy: Proxy, topic_name: str, group_id: str
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, 2)
    with queries(proxy.address, group_id, topic_name) as start:
        query = start()
        query.plan()
        proxy.silent_once.add(HEARTBEAT)
        wait_until(lambda: HEARTBEAT in proxy.silenced, what="the connection to hang")
        began_at = time.monotonic()
        query.driver.leave(1.0)
        assert time.monotonic() - began_at < SOON_S / 3
        proxy.silenced.clear()
