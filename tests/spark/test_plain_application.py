"""A plain Python script with a query, as people write one: what its stderr says, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import filled_topic
from tests.spark.control.shutdown_setup import (
    committed_offsets,
    member_count,
    unwanted_lines,
)
from workshop.parts.brokers import create_topic
from workshop.parts.processes import descendants, environment, is_alive
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ROWS = 200
APPLICATION = """
import sys
from pyspark.sql import SparkSession
import spark_groups
from spark_groups.spark.control.shutdown import stop_on_sigterm

servers, group_id, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark_groups.listen(spark)
stop_on_sigterm(spark)
rows = spark.readStream.format("kafka-group").options(
    **{
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": group_id,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
).load()
query = (
    rows.writeStream.format("noop")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""

WITH_A_UI = """
import sys
import time
import spark_groups
from pyspark.sql import SparkSession

servers, group_id, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.port", "0").getOrCreate()
spark_groups.listen(spark)
rows = spark.readStream.format("kafka-group").options(
    **{"kafka.bootstrap.servers": servers, "kafka.group.id": group_id, "subscribe": topic}
).load()
query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
while not query.recentProgress:
    time.sleep(0.1)
(member,) = spark_groups.describe(group_id, servers).members
print(spark.sparkContext.uiWebUrl, member.local.spark_ui)
query.stop()
"""

ENDED_BEFORE_ITS_QUERY = """
from pyspark.sql import SparkSession
from spark_groups.spark.control.shutdown import stop_on_sigterm

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
end = stop_on_sigterm(spark)
end.end()
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
end.await_termination(query)
print("ended")
"""

TWO_SINKS = """
import sys
import time
from pyspark.sql import SparkSession

servers, group_id, topic, directory = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("kafka-group").options(
    **{"kafka.bootstrap.servers": servers, "kafka.group.id": group_id, "subscribe": topic}
).load()
for sink in ("first", "second"):
    writer = rows.writeStream.format("noop").option("checkpointLocation", f"{directory}/{sink}")
    query = writer.start()
    while not query.recentProgress:
        time.sleep(0.1)
for query in spark.streams.active:
    query.stop()
"""

AS_IN_THE_README = """
import sys
from pyspark.sql import SparkSession
from spark_groups import await_end, listen, start

servers, group_id, topic, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
listen(spark)
rows = spark.readStream.format("kafka-group").options(
    **{
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": group_id,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
).load()
query = start(rows.writeStream.format("noop").option("checkpointLocation", checkpoint))
await_end(query)
print("returned", flush=True)
"""


def run_application(
    script: str, *arguments: str, timeout_s: float = 800.0
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=environment(PYSPARK_PYTHON=sys.executable),
    )


@dataclass
class Running:
    """An application that runs in a process group of its own."""

    process: subprocess.Popen[str]
    stderr: Path

    def children(self) -> list[int]:
        return descendants(self.process.pid)

    def jvm(self) -> int:
        """Return the pid of its JVM."""
        children = self.children()
        commands = {each: Path(f"/proc/{each}/cmdline").read_text() for each in children}
        return next(pid for pid, command in commands.items() if "SparkSubmit" in command)

    def ended(self, timeout_s: float = 400.0) -> tuple[int, str, str]:
        """Wait for its end; return its exit code and what it printed."""
        stdout, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, stdout, self.stderr.read_text()


@contextmanager
def running(script: str, directory: Path, *arguments: str) -> Iterator[Running]:
    """Run a script in a process group of its own, which is killed at the end."""
    stderr = directory / "stderr"
    with stderr.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=environment(PYSPARK_PYTHON=sys.executable),
            start_new_session=True,
        )
    one = Running(process, stderr)
    try:
        yield one
    finally:
        for pid in (process.pid, *one.children()):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait(300)


@contextmanager
def reading(kafka: EmbeddedKafka, topic: str, group_id: str, directory: Path) -> Iterator[Running]:
    """Run the README's program until it has committed what the topic holds."""
    filled_topic(kafka.bootstrap_servers, topic, 2, ROWS // 2)
    arguments = (kafka.bootstrap_servers, group_id, topic, str(directory / "checkpoint"))
    with running(AS_IN_THE_README, directory, *arguments) as one:

        def has_committed() -> bool:
            assert one.process.poll() is None, one.stderr.read_text()
            return sum(committed_offsets(kafka, group_id).values()) == ROWS

        wait_until(has_committed, 400, "the commit of the first batch")
        yield one


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_of_the_readme_with_one_line(
    number: signal.Signals, kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    with reading(kafka, topic_name, group_id, tmp_path) as one:
        children = one.children()
        if number == signal.SIGINT:
            # As the terminal does.
            os.killpg(one.process.pid, number)
        else:
            one.process.send_signal(number)
        code, stdout, stderr = one.ended()
        assert member_count(kafka, group_id) == 0, stderr
        wait_until(lambda: not any(map(is_alive, children)), what="the end of all processes")
    assert (code, stdout) == (0, "returned\n"), stderr
    assert unwanted_lines(stderr) == []
    begun, ended = [each for each in stderr.splitlines() if "kafka-group [driver" in each]
    assert begun.endswith(f", which connects to {kafka.bootstrap_servers}")
    assert stderr.splitlines()[-1] == ended
    assert f"INFO kafka-group [driver {one.process.pid}]: ended by {number.name}:" in ended
    assert "the running batch is finished" in ended


@pytest.mark.long
def test_an_application_whose_jvm_is_killed_fails_with_one_line(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    with reading(kafka, topic_name, group_id, tmp_path) as one:
        os.kill(one.jvm(), signal.SIGKILL)
        code, stdout, stderr = one.ended()
    assert (code, stdout) == (1, ""), stderr
    assert "Traceback" not in stderr, stderr
    _, ended = [each for each in stderr.splitlines() if "kafka-group [driver" in each]
    assert "because its JVM" in ended


def test_script_that_listens_and_falls_off_its_end_ends_without_an_error(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, ROWS // 2)
    done = run_application(
        APPLICATION, kafka.bootstrap_servers, group_id, topic_name, str(tmp_path / "checkpoint")
    )
    assert done.returncode == 0, done.stderr
    for unwanted in ("Py4JException", " ERROR ", "ShutdownHook", "Traceback"):
        assert unwanted not in done.stderr, done.stderr
    # The member's events are logged once, in the format of Spark's own lines.
    lines = done.stderr.splitlines()
    member = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO kafka-group \[(?:runner \d+|query [\w-]+)\]: "
    member += f"group {group_id}: member [-0-9a-f]+ at epoch [0-9]+: "
    # An assignment that is quicker than the topics' names is logged with their ids.
    topic = rf"(?:{topic_name}|[-0-9a-f]{{36}})"
    for event in ("member epoch 0 -> ", f"assigned {topic}-0, {topic}-1"):
        assert sum(re.search(member + event, line) is not None for line in lines) == 1, done.stderr


@pytest.mark.long
def test_query_that_starts_after_sigterm_is_stopped() -> None:
    done = run_application(ENDED_BEFORE_ITS_QUERY)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_one_dataframe_with_two_sinks_is_warned_about(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 1)
    done = run_application(TWO_SINKS, kafka.bootstrap_servers, group_id, topic_name, str(tmp_path))
    assert done.returncode == 0, done.stderr
    warning = rf"WARN kafka-group \[.*\]: group {group_id}: another query of this application"
    assert len(re.findall(warning, done.stderr)) == 1, done.stderr


def test_a_member_tells_where_its_spark_ui_is(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    done = run_application(
        WITH_A_UI, kafka.bootstrap_servers, group_id, topic_name, str(tmp_path / "checkpoint")
    )
    assert done.returncode == 0, done.stderr
    address, shown = done.stdout.split()
    assert address.startswith("http://")
    assert shown == address
