"""`jobs/copy_topic.py` by spark-submit: what it copies, and that SIGTERM ends it cleanly."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.jobs.run import ExitCode
from tests.jobs.submitted import START_S, SubmittedJob
from tests.spark.control.shutdown_setup import committed_offsets, member_count
from tests.spark.processing.topics import records_in
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 300
PARTITIONS = 3


def test_everything_is_copied_and_committed_until_sigterm(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers, target = kafka.bootstrap_servers, f"{topic_name}-copy"
    create_topic(servers, topic_name, PARTITIONS)
    create_topic(servers, target, PARTITIONS)
    rows = [
        Row(
            None if each % 9 == 0 else b"%d" % each,
            key=None if each % 5 == 0 else b"k%d" % each,
            partition=each % PARTITIONS,
            headers=(("h", b"1"), ("h", None)) if each % 2 else (),
        )
        for each in range(ROWS)
    ]
    produce(servers, topic_name, rows)
    arguments = (
        *("--bootstrap-servers", servers, "--topics", topic_name, "--group", group_id),
        *("--target", target, "--trigger", "500ms"),
    )
    with SubmittedJob(tmp_path, "copy", arguments, job="copy_topic", has_output=False) as job:

        def is_copied() -> bool:
            assert job.process.poll() is None, job.text()
            return len(records_in(servers, target)) >= ROWS

        wait_until(is_copied, START_S, "the copy")
        job.process.terminate()
        exit_code, _ = job.await_end(400)
    assert exit_code == ExitCode.TERMINATED, job.text()
    copied = records_in(servers, target)
    original = records_in(servers, topic_name)
    assert [(each.partition, each.offset) for each in copied] == [
        (each.partition, each.offset) for each in original
    ]
    assert [(each.key, each.value, each.headers) for each in copied] == [
        (each.key, each.value, each.headers) for each in original
    ]
    assert committed_offsets(kafka, group_id) == dict.fromkeys(range(PARTITIONS), ROWS // 3)
    assert member_count(kafka, group_id) == 0
