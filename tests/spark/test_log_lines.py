"""What an application and a job print from their start to a clean end, line by line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.jobs.submitted import SubmittedJob
from tests.runtime.members import filled_topic
from workshop.parts.brokers import ANSWER_S, admin
from workshop.parts.processes import environment
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ROWS = 200
START_S = 400.0
END_S = 400.0
LINES_MAX = 40
"""How many lines a run prints at most, with Spark's own."""
SPARKS_OWN = ("Utils", "NativeCodeLoader", "ResolveWriteToStream")
"""Spark warns of these in all applications: host names, a library of Hadoop, its own options."""
BROKEN_PIPE = re.compile(r"Traceback .*\n(?: .*/daemon\.py\", .*\n)+BrokenPipeError: .*\n")
"""A worker of PySpark may print this when the JVM of a busy machine has ended."""
BATCH = r"INFO.* group {group}: committed a batch: \d+ records? of [12] partitions? in [\d.]+ s: "
END = r"INFO.* group {group}: committed, left the group after \d+ batch(es)?, 200 records in \d+ s$"

APPLICATION = """
import sys
from pyspark.sql import SparkSession
import spark_groups

servers, group_id, topic, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.appName("First flights")
    .master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark_groups.listen(spark)
rows = spark.readStream.format("kafka-group").options(
    **{
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": group_id,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
).load()
writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
spark_groups.await_end(spark_groups.start(writer))
"""


def check(text: str, group_id: str) -> None:
    """Assert that a log has its lines of a batch and of the end, and nothing that alarms."""
    text = BROKEN_PIPE.sub("", text)
    lines = text.splitlines()
    assert not re.search(r"^Traceback|^\s+at |Exception\b| ERROR ", text, re.MULTILINE), text
    warnings = [re.sub(r"^\S+ \S+ WARN ", "", line) for line in lines if " WARN" in line]
    alarming = [line for line in warnings if not line.startswith(SPARKS_OWN)]
    assert alarming == [], text
    assert sum(re.search(BATCH.format(group=group_id), line) is not None for line in lines) == 1
    assert sum(re.search(END.format(group=group_id), line) is not None for line in lines) == 1, text
    assert len(lines) <= LINES_MAX, text


def client_ids(kafka: EmbeddedKafka, group_id: str) -> list[str]:
    client = admin(kafka.bootstrap_servers)
    (answer,) = client.describe_consumer_groups([group_id]).values()
    return [each.client_id for each in answer.result(ANSWER_S).members]


def test_application_prints_its_batches_and_its_end(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, ROWS // 2)
    log = tmp_path / "log"
    arguments = (kafka.bootstrap_servers, group_id, topic_name, str(tmp_path / "checkpoint"))
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", APPLICATION, *arguments],
            stderr=stderr,
            env=environment(PYSPARK_PYTHON=sys.executable),
        ) as process,
    ):
        try:
            wait_until(lambda: "committed a batch" in log.read_text(), START_S, "a batch")
            # As `describe` and `watch` show it, so that two terminals have two names.
            assert client_ids(kafka, group_id) == ["First-flights"]
            process.send_signal(signal.SIGINT)
            assert process.wait(END_S) == 0, log.read_text()
        finally:
            process.kill()
    check(log.read_text(), group_id)


def test_job_prints_its_batches_and_its_end(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, ROWS // 2)
    options = (
        *("--bootstrap-servers", kafka.bootstrap_servers),
        *("--group", group_id, "--topics", topic_name, "--trigger", "0s"),
    )
    with SubmittedJob(tmp_path, "flights", options) as job:
        wait_until(lambda: "committed a batch" in job.text(), START_S, "a batch")
        job.process.send_signal(signal.SIGTERM)
        job.await_end(END_S)
    check(job.text(), group_id)
