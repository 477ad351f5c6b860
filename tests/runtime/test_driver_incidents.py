"""The driver when something fails: brokers, coordinators, batches, its own threads."""

from __future__ import annotations

import time

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import (
    BrokerUnreachableError,
    DeadOwnershipError,
    GroupError,
)
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.group.trigger import OUTAGE_S
from spark_groups.monitoring.health import Condition, assess
from spark_groups.runtime.engine import suspension_clock
from tests.runtime.members import QueryLike, all_at, committed, fill, filled_topic, queries
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

LATEST = StartingPoint.LATEST


def test_a_broker_that_is_not_there_is_named_within_the_timeout(group_id: str) -> None:
    unreachable = "127.0.0.1:1"
    query = QueryLike(unreachable, group_id, "anything", driver={"api_timeout_s": 2.0})
    began_at = time.monotonic()
    try:
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1.*within 2 s"):
            query.plan()
        assert time.monotonic() - began_at < SOON_S
    finally:
        query.driver.leave(0.5)


def test_an_outage_is_detected_also_while_an_instance_id_is_waited_for(group_id: str) -> None:
    query = QueryLike("127.0.0.1:1", group_id, "anything", member={"instance_id": group_id})
    try:
        query.driver.start(None)
        client, now = query.driver._engine.started(), suspension_clock()
        with query.driver._engine.changed:
            client.parts.search.failing_since = now - 2 * OUTAGE_S
            client.parts.member.instance_wait.refused(now - 10.0)
        assert query.driver.await_commits(0.0), "it is still waited for"
        with query.driver._engine.changed:
            client.parts.member.instance_wait.reset()
            client.parts.member.instance_wait.refused(now - 2 * OUTAGE_S)
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1"):
            query.driver.await_commits(0.0)
    finally:
        query.driver.leave(0.5)


def test_what_the_coordinator_refuses_for_good_fails_the_query_with_its_words(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(member={"server_assignor": "no-such-assignor"})
        with pytest.raises(GroupError, match=r"UNSUPPORTED_ASSIGNOR.*group\.remote\.assignor"):
            query.plan()


def test_a_batch_that_outlasts_the_rebalance_timeout_loses_only_partitions_that_it_reads(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        slow = start(member={"rebalance_timeout_ms": 6_000})
        slow.plan_rows()
        old_id = slow.member_id
        quick = start()
        wait_until(lambda: quick.run() is None and len(quick.assigned) == 1)
        assert slow.member_id == old_id, "giving up in time keeps the membership"
        slow.commit_all()
        kept = {int(name.rsplit("-", 1)[1]) for name in slow.assigned}
        offsets = committed(kafka.bootstrap_servers, group_id)
        assert [offsets[topic_name, each] for each in kept] == [10]
        timeline = " ".join(slow.driver.snapshot().timeline)
        for said in ("50 % of", "80 % of", "maxOffsetsPerTrigger=", "released", "reads them again"):
            assert said in timeline


def test_a_broker_that_restarts_is_waited_for(topic_name: str, group_id: str) -> None:
    with EmbeddedKafka() as kafka:
        filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
        with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
            query = start()
            query.plan_rows()
            member_id = query.member_id
            kafka.restart()
            query.commit_all()
            fill(kafka.bootstrap_servers, topic_name, 2, 5)
            query.plan_rows()
            query.commit_all()
            assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 2, 15)
            assert query.member_id == member_id


def test_the_death_of_a_thread_that_keeps_the_membership_fails_the_next_call(
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        query.run()

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(query.driver._engine.client, "poll_requests", broken)
        wait_until(lambda: query.driver._engine.crash, what="the timer to meet the bug")
        with pytest.raises(DeadOwnershipError, match="a bug"):
            query.plan()
        health = assess(query.driver.snapshot())
        assert health.condition is Condition.FAILED
        assert "a bug" in health.reasons[0]
