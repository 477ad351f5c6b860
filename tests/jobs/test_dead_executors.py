"""A batch whose executor dies: Spark reads the same ranges on another one."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from tests.jobs.standalone import StandaloneCluster
from tests.jobs.submitted import SubmittedJob
from workshop.parts.brokers import numbered_topic
from workshop.parts.processes import descendants
from workshop.parts.waiting import wait_until

ROWS = 4000
READING_S = 400.0
SLOWLY = (
    'java_method("java.lang.Thread", "sleep", 2L) AS slept',
    "CAST(value AS STRING) AS value",
)


def reading_executor(cluster: StandaloneCluster) -> int | None:
    """Return the pid of an executor that has Python workers, if there is one."""
    for pid in descendants(cluster.worker_pid):
        with suppress(FileNotFoundError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and descendants(pid):
                return pid
    return None


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds executors in Linux's /proc")
def test_an_executor_that_dies_takes_no_rows_with_it(
    kafka: EmbeddedKafka, topic_name: str, tmp_path: Path
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    arguments = (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", topic_name),
        *("--group", f"group-{topic_name}", "--trigger", "availableNow"),
        *("--set", f"query.selectExpr={list(SLOWLY)}"),
    )
    with StandaloneCluster(tmp_path) as cluster:
        submit = ["--master", cluster.url, "--executor-memory", "512m"]
        with SubmittedJob(tmp_path, "job", arguments, submit=submit) as job:
            job.await_batch(0)
            pid = wait_until(lambda: reading_executor(cluster), READING_S, "an executor that reads")
            os.kill(pid, signal.SIGKILL)
            assert job.batches("commits") == set()
            exit_code, _ = job.await_end(400)
            assert exit_code == 0, job.text()[-5000:] + cluster.executor_log()[-5000:]
    rows = read_rows([job.output], ["value"])
    assert sorted(map(int, rows["value"].to_pylist())) == list(range(ROWS))
