"""Members whose queries fall silent, and settings that change under them, on real brokers."""

from __future__ import annotations

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.group.batches.liveness import LivenessLimits
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigResource
from spark_groups.wire.group_settings import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from tests.runtime.members import (
    QueryLike,
    all_at,
    committed,
    describe,
    fill,
    filled_topic,
    patient,
    queries,
)
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = pytest.mark.broker

SOON = LivenessLimits(max_idle_s=1.5)


def members(kafka: EmbeddedKafka, group_id: str) -> dict[str, int]:
    group = describe(kafka.bootstrap_servers, group_id)
    return {each.member_id: each.member_epoch for each in group.members}


def go_silent(query: QueryLike) -> None:
    """Call until nothing is left to read, then no more, until the member has left."""
    query.plan_rows()
    query.commit_all()
    while query.run() is not None:
        pass
    wait_until(
        lambda: query.driver.snapshot().state.name == "UNSUBSCRIBED", what="the member to leave"
    )


def test_member_of_a_silent_query_leaves_and_reads_on_when_spark_calls_after_all(
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient(monkeypatch, first_assignment_s=LONG_S, resolving_s=LONG_S, under_way_s=LONG_S)
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(liveness=SOON)
        go_silent(query)
        first_id = query.member_id
        view = query.driver.snapshot()
        assert view.left_because_idle
        assert view.idle_limit_s == 1.5
        assert first_id not in members(kafka, group_id)
        fill(kafka.bootstrap_servers, topic_name, 2, 10)
        # One call is enough: the next trigger may be an hour away.
        plan = query.plan()
        assert plan is not None
        assert sorted((e.from_offset, e.until_offset) for e in plan.ranges) == [(10, 20)] * 2
        query.commit_all()
        assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 2, 20)
        assert query.member_id != first_id
        assert list(members(kafka, group_id)) == [query.member_id]
    assert "Spark has not called for" in caplog.text
    assert "rejoining the group" in caplog.text


def test_static_member_of_a_silent_query_keeps_its_place_until_its_session_is_over(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    fill(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(liveness=SOON, member={"instance_id": "i1"})
        go_silent(query)
        assert members(kafka, group_id) == {query.member_id: -2}
        query.plan()
        assert query.assigned == {f"{topic_name}-0"}


def test_batch_that_runs_is_no_silence(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    fill(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(liveness=SOON)
        query.plan_rows()
        view = wait_until(
            lambda: ((view := query.driver.snapshot()).batch_age_s or 0.0) > 3.0 and view,
            what="a batch that is twice as old as any silence may be",
        )
        assert view.idle_s is None
        assert list(members(kafka, group_id)) == [query.member_id]
        query.commit_all()


def test_static_member_restarting_past_its_session_timeout_is_advised_on_settings(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(member={"instance_id": "i1", "restart_s": 61.0})
        query.plan()
        wait_until(lambda: "would lose its partitions" in caplog.text)
    command = f"spark-groups config {group_id} --set consumer.session.timeout.ms=135000"
    assert f"{command} (the brokers accept at most 60000" in caplog.text


@pytest.mark.parametrize("version", ["4.0.0", "4.3.1"])
def test_settings_that_an_operator_changes_are_followed(
    kafka_version: object, version: str, topic_name: str, group_id: str
) -> None:
    kafka = kafka_version(version)  # type: ignore[operator]
    create_topic(kafka.bootstrap_servers, topic_name)
    with (
        queries(kafka.bootstrap_servers, group_id, topic_name) as start,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        query = start()
        query.plan()

        def settings() -> tuple[int | None, int]:
            view = query.driver.snapshot()
            return view.session_timeout_ms, view.heartbeat_interval_ms

        wait_until(lambda: settings() == (45_000, 5_000), what="the broker's own settings")
        changes = {HEARTBEAT_INTERVAL_MS: "400", SESSION_TIMEOUT_MS: "9000"}
        cluster.alter_configuration(ConfigResource.GROUP, group_id, changes)
        wait_until(lambda: settings() == (9_000, 400), what="the operator's settings")
