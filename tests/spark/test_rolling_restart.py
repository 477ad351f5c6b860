"""A rolling restart of static members: nothing moves, nothing is read twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.types import Assignment
from tests.runtime.members import committed, describe
from tests.spark.shared_group import PARTITIONS, Feed
from workshop.parts.applications import Application
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until
from workshop.parts.written import rows_written

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
]

# The session timeout exceeds a restart of Spark on a busy machine.
LONG_SESSION = {
    "group.consumer.max.session.timeout.ms": "180000",
    "group.consumer.session.timeout.ms": "180000",
}


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(server_properties=LONG_SESSION) as kafka:
        yield kafka


def shares(broker: EmbeddedKafka, group_id: str) -> dict[str | None, Assignment]:
    """Return what each instance has; nothing while the group is not stable."""
    described = describe(broker.bootstrap_servers, group_id)
    if described.group_state != "Stable":
        return {}
    return {each.instance_id: each.assignment for each in described.members}


def reads_again(application: Application, batches_before: int) -> bool:
    """Whether it has finished a batch with rows since it had so many."""
    since = application.batches()[batches_before:]
    return any(batch.plan.ranges and batch.finished_at is not None for batch in since)


def test_a_rolling_restart_of_static_members(
    broker: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic_name, PARTITIONS)

    def start(name: str) -> Application:
        settings = {
            "source.kafka.bootstrap.servers": broker.bootstrap_servers,
            "source.kafka.group.id": group_id,
            "source.kafka.group.instance.id": name,
            "source.subscribe": topic_name,
            "source.startingOffsets": "earliest",
            "source.maxOffsetsPerTrigger": "900",
            "query.trigger": "1s",
        }
        return Application(tmp_path, name, settings)

    names = ("first", "second", "third")
    feed = Feed(broker.bootstrap_servers, topic_name, group_id, backlog=300, pause_s=0.5)
    applications = {name: start(name) for name in names}
    try:
        wait_until(
            lambda: sorted(map(len, shares(broker, group_id).values())) == [2, 2, 2],
            400,
            "all three to own a share",
        )
        before, owned = describe(broker.bootstrap_servers, group_id), shares(broker, group_id)
        for name in names:
            wait_until(lambda name=name: reads_again(applications[name], 0), 400, "a batch")
            assert applications[name].terminate() == 143, applications[name].log.read_text()[-3000:]
            batches = len(applications[name].batches())
            applications[name] = start(name)
            wait_until(lambda name=name, n=batches: reads_again(applications[name], n), 400, "rows")
            after = describe(broker.bootstrap_servers, group_id)
            assert (after.group_epoch, after.assignment_epoch) == (
                before.group_epoch,
                before.assignment_epoch,
            )
            assert shares(broker, group_id) == owned

        ends = {(topic_name, each): end for each, end in feed.stop().items()}
        wait_until(lambda: committed(broker.bootstrap_servers, group_id) == ends, 400)
        for each in applications.values():
            assert each.terminate() == 143
        assert len(describe(broker.bootstrap_servers, group_id).members) == 3, (
            "static members mean to return"
        )
    finally:
        feed.stop()
        for each in applications.values():
            each.close()

    rows = [row for each in applications.values() for row in rows_written(each)]
    expected = [(key[1], offset) for key, end in ends.items() for offset in range(end)]
    assert sorted(rows) == sorted(expected), "every row once"
