"""SIGTERM to a real spark-submit in the middle of a batch: the batch ends, and is committed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.jobs.run import ExitCode
from tests.jobs.submitted import SubmittedJob
from tests.spark.control.shutdown_setup import (
    committed_offsets,
    member_count,
    unwanted_lines,
)
from workshop.parts.brokers import numbered_topic
from workshop.parts.processes import is_alive
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 2000
BATCH_ROWS = 100
ROW_MS = 20
BATCH_S = BATCH_ROWS * ROW_MS / 1000


def slow_job(
    kafka: EmbeddedKafka, topic: str, group_id: str, *more: str, row_ms: int = ROW_MS
) -> tuple[str, ...]:
    """Arguments of a job whose batches take two seconds."""
    sleep = f"java_method('java.lang.Thread', 'sleep', {row_ms}L) AS z"
    return (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", topic),
        *("--group", group_id, "--trigger", "0s"),
        *("--set", f"source.maxOffsetsPerTrigger={BATCH_ROWS}"),
        *("--set", f'query.selectExpr=["partition", "offset", "{sleep}"]', *more),
    )


def written_offsets(job: SubmittedJob) -> dict[int, list[int]]:
    table = read_rows([job.output], ("partition", "offset"))
    found: dict[int, list[int]] = {}
    for partition, offset in zip(*(each.to_pylist() for each in table.columns), strict=True):
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def to_the_jvm(job: SubmittedJob) -> None:
    os.kill(job.process.pid, signal.SIGTERM)


def to_the_group(job: SubmittedJob) -> None:
    os.killpg(job.process.pid, signal.SIGTERM)


def ctrl_c(job: SubmittedJob) -> None:
    os.killpg(job.process.pid, signal.SIGINT)


@pytest.mark.parametrize(
    "send",
    [
        to_the_jvm,
        pytest.param(to_the_group, marks=pytest.mark.slow),
        pytest.param(ctrl_c, marks=pytest.mark.slow),
    ],
)
def test_signal_in_the_middle_of_a_batch(
    send: Callable[[SubmittedJob], None],
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    tmp_path: Path,
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 3, ROWS)
    arguments = slow_job(kafka, topic_name, group_id)
    with SubmittedJob(tmp_path, "job", arguments) as job:
        job.await_batch(1)
        processes = job.processes()
        send(job)
        _, took_s = job.await_end(LONG_S)
        # At once: the member has left before its session timeout, and no process lingers.
        assert member_count(kafka, group_id) == 0, job.text()
        wait_until(lambda: not any(map(is_alive, processes)), 400, "the end of all processes")
    assert took_s < BATCH_S + SOON_S
    # The batch that was under way is finished, and no other one was begun.
    assert job.batches("offsets") == job.batches("commits")
    assert max(job.batches("commits")) >= 1
    written = written_offsets(job)
    for partition, end in committed_offsets(kafka, group_id).items():
        assert written.get(partition, []) == list(range(end)), job.text()
    assert sum(map(len, written.values())) < ROWS
    assert unwanted_lines(job.text()) == []
    (ours,) = [each for each in job.text().splitlines() if " ended" in each]
    assert "the running batch is finished" in ours


def test_batch_that_takes_too_long_is_given_up(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 1, ROWS)
    more = ("--set", "query.stopTimeout=1s", "--set", "source.maxOffsetsPerTrigger=1500")
    arguments = slow_job(kafka, topic_name, group_id, *more, row_ms=200)
    with SubmittedJob(tmp_path, "job", arguments) as job:
        job.await_batch(0)
        processes = job.processes()
        to_the_jvm(job)
        _, took_s = job.await_end(LONG_S)
        assert member_count(kafka, group_id) == 0, job.text()
        wait_until(lambda: not any(map(is_alive, processes)), 400, "the end of all processes")
    assert took_s < SOON_S
    assert "stays uncommitted" in job.text()
    # Unfinished offsets are not committed: the next owner reads them.
    ends = committed_offsets(kafka, group_id)
    assert sum(ends.values()) == sum(map(len, written_offsets(job).values()))


@pytest.mark.slow
def test_plain_python_ends_as_spark_submit_does(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 1, ROWS)
    arguments = slow_job(kafka, topic_name, group_id)
    with SubmittedJob(tmp_path, "job", arguments, launcher=(sys.executable,)) as job:
        job.await_batch(1)
        processes = job.processes()
        to_the_jvm(job)
        exit_code, took_s = job.await_end(LONG_S)
        assert member_count(kafka, group_id) == 0, job.text()
        wait_until(lambda: not any(map(is_alive, processes)), 400, "the end of all processes")
    assert exit_code == ExitCode.TERMINATED, job.text()
    assert took_s < BATCH_S + SOON_S
    assert job.batches("offsets") == job.batches("commits")
    ends = committed_offsets(kafka, group_id)
    assert sum(ends.values()) == sum(map(len, written_offsets(job).values()))
