"""`jobs/consume.py` as it is called: its help, its errors, its exit status, its output."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from demo.spark_log import read_rows
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.spark.jobs.run import ExitCode
from tests.jobs.submitted import ROOT, SubmittedJob
from workshop.parts.brokers import numbered_topic

ROWS = 500


SCRIPT: Final = ("jobs/consume.py",)
MODULE: Final = ("-m", "spark_groups.jobs.consume")


def run(*arguments: str, job: Sequence[str] = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *job, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.mark.parametrize("job", [SCRIPT, MODULE], ids=["script", "module"])
def test_help_shows_an_example_and_every_argument(job: Sequence[str]) -> None:
    done = run("--help", job=job)
    assert done.returncode == 0
    for part in ("spark-submit", "--config", "--set", "--group", "--topics", "--trigger"):
        assert part in done.stdout


def test_wrong_configuration_is_one_message_and_needs_no_jvm() -> None:
    done = run("--config", "conf/consume.toml", "--trigger", "soon", "--set", "sink.fromat=x")
    assert done.returncode == ExitCode.REFUSED
    assert done.stderr.startswith("consume.py: the job's configuration is invalid:\n")
    assert "--trigger: query.trigger: 'soon'" in done.stderr
    assert "--set sink.fromat: sink.fromat: is not a known key; did you mean form" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_argument_overrides_its_key() -> None:
    done = run(
        *("--config", "conf/consume.toml", "--name", "a/b", "--bootstrap-servers", "none"),
        *("--group", "", "--topics", "", "--output", "", "--checkpoint", ""),
    )
    assert done.returncode == ExitCode.REFUSED
    for argument, key in (
        ("--name", "application.name"),
        ("--bootstrap-servers", "source.kafka.bootstrap.servers"),
        ("--group", "source.kafka.group.id"),
        ("--topics", "source.subscribe"),
        ("--output", "sink.path"),
        ("--checkpoint", "query.checkpointLocation"),
    ):
        assert f"\n  - {argument}: {key}: " in done.stderr, done.stderr


def available_now(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> tuple[str, ...]:
    return (
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topics", topic_name),
        *("--group", group_id, "--trigger", "availableNow"),
    )


CLOSED_EARLY: Final = re.compile(
    r'Traceback \(most recent call last\):\n  File "[^"]*daemon\.py", line \d+, in manager\n'
    r'(?:    .*\n)*  File "[^"]*daemon\.py", line \d+, in worker\n(?:    .*\n)*'
    r"BrokenPipeError: \[Errno 32\] Broken pipe\n"
)
"""Spark closes the unix socket of a process that plans before that has flushed its last bytes."""

LOG_LINE: Final = re.compile(r"^\d\d/\d\d/\d\d [\d:]{8} (?:INFO|WARN|ERROR) .*\n", re.MULTILINE)
"""The JVM's log lines come in between the lines of a traceback, and at Spark's end cut it off."""


@pytest.mark.broker
@pytest.mark.spark
def test_job_that_ends_well_logs_no_error(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    arguments = available_now(kafka, topic_name, group_id)
    with SubmittedJob(tmp_path, "job", arguments) as job:
        exit_code, _ = job.await_end(400)
        assert exit_code == ExitCode.ENDED, job.text()
    text = job.text()
    for unwanted in ("Py4JException", " ERROR ", "ShutdownHook"):
        assert unwanted not in text, text
    running, _, _ = text.partition("Invoking stop() from shutdown hook")
    assert "Traceback" not in CLOSED_EARLY.sub("", LOG_LINE.sub("", running)), text


@pytest.mark.spark
def test_signal_ends_a_job_that_waits_for_a_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(400.0)
        host, port = silent.getsockname()
        store = (
            *("--set", "sink.format=postgres", "--set", "sink.options.table=rows"),
            *("--set", f"sink.options.dsn=host={host} port={port} user=none connect_timeout=2000"),
            *("--set", "source.emit=ranges", "--set", "query.selectExpr=[]"),
        )
        with SubmittedJob(tmp_path, "job", store, launcher=(sys.executable,)) as job:
            connection, _ = silent.accept()
            job.process.send_signal(signal.SIGTERM)
            exit_code, _ = job.await_end(400)
            connection.close()
    assert exit_code == ExitCode.TERMINATED, job.text()
    assert "ended by SIGTERM before the query had started" in job.text()
    assert "Traceback" not in CLOSED_EARLY.sub("", LOG_LINE.sub("", job.text())), job.text()


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_job_that_fails_has_the_exit_code_of_a_failure(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    arguments = available_now(kafka, topic_name, group_id)
    with SubmittedJob(tmp_path, "job", arguments) as job:
        exit_code, _ = job.await_end(400)
        assert exit_code == ExitCode.FAILED, job.text()
    assert f"do not exist or that this user may not describe: {topic_name}" in job.text()


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_spark_submit_until_everything_is_read_then_another_checkpoint_is_refused(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    numbered_topic(kafka.bootstrap_servers, topic_name, 2, ROWS)
    arguments = available_now(kafka, topic_name, group_id)
    with SubmittedJob(tmp_path, "job", arguments) as job:
        exit_code, _ = job.await_end(400)
        assert exit_code == ExitCode.ENDED, job.text()
    values = read_rows([job.output], ["value"])["value"].to_pylist()
    assert sorted(map(int, values)) == list(range(ROWS))
    elsewhere = ("--checkpoint", str(tmp_path / "elsewhere"))
    with SubmittedJob(tmp_path, "job", (*arguments, *elsewhere)) as job:
        exit_code, _ = job.await_end(400)
        assert exit_code == ExitCode.REFUSED, job.text()
    assert "consume.py: " in job.text()
    assert "silently skip" in job.text()
    assert not (tmp_path / "elsewhere").exists()
