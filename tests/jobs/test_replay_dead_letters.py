"""`jobs/replay_dead_letters.py` by spark-submit: shown first, then sent back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import ORIGINAL_PARTITION, dead_letter, origin_of
from tests.jobs.submitted import SubmittedJob
from tests.spark.control.shutdown_setup import committed_offsets
from tests.spark.processing.topics import records_in
from workshop.parts.brokers import Row, create_topic, produce

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
]

OWN = (("trace", b"1"),)
END_S = 400


def letter(topic: str, offset: int, error: str) -> Row:
    """Return a dead letter as a group would write it."""
    record = Record(b"k%d" % offset, b"%d" % offset, topic, 1, offset, 1_000, OWN)
    history = replace(origin_of(record), group_id="readers", retries=3)
    written = dead_letter(record, history, error, "-")
    return Row(written.value, key=written.key, headers=written.headers)


def test_letters_are_shown_then_sent_back_once_to_where_they_came_from(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers, letters = kafka.bootstrap_servers, f"{topic_name}.readers.dead-letter"
    create_topic(servers, topic_name, 2)
    create_topic(servers, letters)
    rows = [letter(topic_name, each, f"ValueError: {each % 2}") for each in range(5)]
    forged = letter("payments", 7, "forged")
    beyond = letter(topic_name, 8, "beyond")
    beyond = replace(
        beyond,
        headers=tuple(
            (name, b"9" * 18 if name == ORIGINAL_PARTITION else value)
            for name, value in beyond.headers
        ),
    )
    produce(servers, letters, [*rows, Row(b"a stranger"), forged, beyond])
    arguments = (
        *("--bootstrap-servers", servers, "--topics", letters, "--group", group_id),
        *("--set", "source.availableNowSettleTimeout=1s"),
    )

    def run(*more: str) -> str:
        job = SubmittedJob(
            tmp_path,
            "replay",
            (*arguments, *more),
            job="replay_dead_letters",
            has_output=False,
        )
        with job:
            exit_code, _ = job.await_end(END_S)
            assert exit_code == 0, job.text()
        return job.text()

    shown = run("--dry-run")
    assert f"3 to {topic_name}: ValueError: 0" in shown
    assert f"2 to {topic_name}: ValueError: 1" in shown
    assert "1 not sent (no header names its original topic)" in shown
    assert "1 not sent (its headers name the topic payments, which is not in replay.topics" in shown
    assert "8 dead letters; nothing was sent or committed" in shown
    assert records_in(servers, topic_name) == []
    assert committed_offsets(kafka, group_id) == {}
    said = run()
    assert f"2 of {letters}-0 skipped" in said
    *back, by_key = sorted(records_in(servers, topic_name), key=lambda each: each.value or b"")
    assert by_key.value == b"8"
    assert [(each.partition, each.value) for each in back] == [(1, b"%d" % n) for n in range(5)]
    assert {each.headers for each in back} == {OWN}
    assert committed_offsets(kafka, group_id) == {0: 8}
