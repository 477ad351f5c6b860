"""A commit that arrives when its topic has just been created again; by name before Kafka 4.2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ErrorCode
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from spark_groups.wire.schemas.wire_messages import OFFSET_COMMIT_V9
from tests.runtime.members import all_at, committed, fill, queries
from tests.runtime.proxy import Proxy, proxied_kafka
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import create_topic, delete_topic
from workshop.parts.waiting import LONG_S, wait_until

OFFSETS_HAVE_IDS = "4.2"

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module", params=["4.0.0", "4.1.2", "4.3.1"])
def proxied(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    with proxied_kafka({}, request.param) as running:
        yield running


def create_again_before_the_commit(
    proxied: tuple[EmbeddedKafka, Proxy], topic: str, rows: int
) -> None:
    """Delete the topic, and create it with rows, when the next commit has left its client."""
    kafka, proxy = proxied

    def create_again() -> None:
        delete_topic(kafka.bootstrap_servers, topic)
        create_topic(kafka.bootstrap_servers, topic)
        fill(kafka.bootstrap_servers, topic, 1, rows)

    proxy.before[OFFSET_COMMIT_V9.api_key] = create_again


@pytest.mark.parametrize("start_at", [StartingPoint.EARLIEST, StartingPoint.LATEST])
def test_rows_of_a_topic_created_again_are_read_from_its_beginning(
    proxied: tuple[EmbeddedKafka, Proxy], topic_name: str, group_id: str, start_at: StartingPoint
) -> None:
    kafka, proxy = proxied
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(proxy.address, group_id, topic_name) as start:
        query = start(start=start_at, fail_on_data_loss=False)
        query.plan()
        begun = all_at(topic_name, 1, 0)
        wait_until(lambda: committed(kafka.bootstrap_servers, group_id) == begun, what="the start")
        fill(kafka.bootstrap_servers, topic_name, 1, 10)
        query.plan_rows()
        create_again_before_the_commit(proxied, topic_name, 15)
        plan = query.plan_rows()
        assert [(e.from_offset, e.until_offset) for e in plan.ranges] == [(0, 15)]
        query.commit_all()
        assert committed(kafka.bootstrap_servers, group_id) == all_at(topic_name, 1, 15)


def test_who_comes_after_the_member_that_committed_reads_them(
    proxied: tuple[EmbeddedKafka, Proxy],
    topic_name: str,
    group_id: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka, proxy = proxied
    create_topic(kafka.bootstrap_servers, topic_name)
    fill(kafka.bootstrap_servers, topic_name, 1, 10)
    with queries(proxy.address, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        create_again_before_the_commit(proxied, topic_name, 15)
        query.finish()
        query.driver.await_commits(LONG_S)
    if kafka.version < OFFSETS_HAVE_IDS:
        assert f"{topic_name}-0 was deleted and created again while" in caplog.text
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        plan = start().plan_rows()
        assert [(e.from_offset, e.until_offset) for e in plan.ranges] == [(0, 15)]


def test_an_offset_that_an_operator_sets_is_not_that_of_the_new_topic(
    proxied: tuple[EmbeddedKafka, Proxy], topic_name: str, group_id: str
) -> None:
    kafka, proxy = proxied
    create_topic(kafka.bootstrap_servers, topic_name)
    fill(kafka.bootstrap_servers, topic_name, 1, 10)
    with Cluster(proxy.address) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        create_again_before_the_commit(proxied, topic_name, 15)
        answer = commit_outside(cluster, group_id, {key: 5})
        assert answer.errors == {key: ErrorCode.UNKNOWN_TOPIC_ID}
    # By id the coordinator refuses it.
    assert committed(kafka.bootstrap_servers, group_id).get((topic_name, 0), 0) == 0
