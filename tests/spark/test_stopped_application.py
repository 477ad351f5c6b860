"""An application that is stopped for longer than its session: it is fenced, and continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed, queries
from tests.spark.shared_group import PARTITIONS, Feed
from workshop.parts.applications import Application
from workshop.parts.brokers import SHORT_SESSION, create_topic
from workshop.parts.waiting import wait_until
from workshop.parts.written import rows_written

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
]


def test_a_stopped_application_is_fenced_and_continues(
    topic_name: str, group_id: str, tmp_path: Path
) -> None:
    with EmbeddedKafka(server_properties=SHORT_SESSION) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, topic_name, PARTITIONS)
        settings = {
            "source.kafka.bootstrap.servers": servers,
            "source.kafka.group.id": group_id,
            "source.subscribe": topic_name,
            "source.startingOffsets": "earliest",
            "source.maxOffsetsPerTrigger": "900",
            "query.trigger": "0s",
        }
        feed = Feed(servers, topic_name, group_id)
        application = Application(tmp_path, "stopped", settings)
        read_beside: list[tuple[str, int, int, int]] = []
        try:
            wait_until(lambda: len(application.batches()) > 2, 400, "batches")
            with queries(servers, group_id, topic_name) as start:
                other = start()
                wait_until(lambda: other.run() and len(other.assigned) == 3, 400, "a share")
                # In the middle of a batch: it is planned and not finished.
                wait_until(lambda: application.batches()[-1].finished_at is None, 400, "a batch")
                pids = application.pause()
                stopped_in = application.batches()[-1]
                wait_until(lambda: other.run() and len(other.assigned) == 6, 400, "all of it")
                other.plan_rows()
                other.commit_all()
                application.resume(pids)
                wait_until(lambda: other.run() and len(other.assigned) == 3, 400, "its return")
                other.commit_all()
                read_beside = other.ranges
            wait_until(
                lambda: any(
                    batch.plan.member_id != stopped_in.plan.member_id and batch.plan.ranges
                    for batch in application.batches()
                ),
                400,
                "a batch under another member id",
            )
            ends = {(topic_name, each): end for each, end in feed.stop().items()}
            wait_until(lambda: committed(servers, group_id) == ends, 400)
            assert application.terminate() == 143
            log = application.log.read_text()
        finally:
            feed.stop()
            application.close()

    assert "UNKNOWN_MEMBER_ID" in log, log[-3000:]
    if stopped_in.plan.ranges:
        assert "not committed: " in log, log[-3000:]
    rows = set(rows_written(application))
    rows |= {
        (partition, offset)
        for _, partition, from_offset, until_offset in read_beside
        for offset in range(from_offset, until_offset)
    }
    assert rows == {(key[1], offset) for key, end in ends.items() for offset in range(end)}
