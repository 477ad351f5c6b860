"""SIGKILL between the dead letters of a batch and its commit: letters twice at most, never none."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.spark.control.shutdown_setup import committed_offsets
from tests.spark.processing.topics import Seen, records_in
from workshop.parts.applications import kill_everything, start_module
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
]

START_S = 400
VALUES = [b"%d" % each for each in range(30)]
POISON = [b"3", b"8"]


def start(given: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
    return start_module("tests.spark.processing.processing_application", given, log)


def test_application_killed_between_letters_and_commit(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers, letters = kafka.bootstrap_servers, f"{topic_name}.{group_id}.dead-letter"
    create_topic(servers, topic_name)
    create_topic(servers, letters)
    produce(servers, topic_name, [Row(each) for each in VALUES])
    seen, reached = Seen(tmp_path / "seen"), tmp_path / "reached"
    given: dict[str, Any] = {
        "options": {
            "kafka.bootstrap.servers": servers,
            "kafka.group.id": group_id,
            "subscribe": topic_name,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": "20",
        },
        "checkpoint": str(tmp_path / "checkpoint"),
        "seen": str(seen.directory),
        "poison": [each.decode() for each in POISON],
    }
    log = tmp_path / "log"
    process = start({**given, "stop_after": str(reached)}, log)
    try:
        wait_until(lambda: reached.exists() or process.poll() is not None, START_S)
        assert process.poll() is None, log.read_text()
        first = seen.offsets()
        assert [offset for *_, offset in first] == [
            each for each in range(20) if each not in (3, 8)
        ]
        assert [each.value for each in records_in(servers, letters)] == POISON
        assert committed_offsets(kafka, group_id) == {0: 0}
    finally:
        kill_everything(process)
    process = start(given, log)
    try:
        assert process.wait(START_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            kill_everything(process)
    # The batch that was not committed came again, with the same rows; then the remaining rows.
    again = Counter(seen.offsets())
    assert {place for place, count in again.items() if count == 2} == set(first)
    assert set(seen.values()) == set(VALUES) - set(POISON)
    assert [each.value for each in records_in(servers, letters)] == POISON * 2
    assert committed_offsets(kafka, group_id) == {0: len(VALUES)}
