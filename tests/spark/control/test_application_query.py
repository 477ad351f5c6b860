"""`start` on a real Spark: a source's process that is late, one that never comes, other errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workshop.parts.processes import descendants, environment, is_alive
from workshop.parts.waiting import SOON_S, wait_until

pytestmark = pytest.mark.spark

LATE = """#!/bin/sh
# Later than Spark allows: the first {late} processes of a source.
case "$*" in *python_streaming_source_runner*)
    for number in {numbers}; do
        if mkdir "{directory}/$number" 2>/dev/null; then sleep 10.5; break; fi
    done ;;
esac
exec {python} "$@"
"""

APPLICATION = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
import spark_groups
from spark_groups import QueryStartError

class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "number int"

    def streamReader(self, schema):
        return Reader(self.options)


class Reader(DataSourceStreamReader):
    def __init__(self, options):
        self.fails = "fails" in options

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        if self.fails:
            raise ValueError("no numbers today")
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Numbers)
for word in sys.argv[1:]:
    rows = spark.readStream.format("numbers").options(**{word: "yes"}).load()
    writer = rows.writeStream.format("memory").queryName(word).trigger(availableNow=True)
    try:
        query = spark_groups.start(writer, starts_max=1 if word == "once" else 8)
        query.awaitTermination()
    except QueryStartError as error:
        print("QueryStartError", error)
    except Exception as error:
        print(type(error).__name__, "no numbers today" in str(error))
    else:
        print(spark.table(word).count())
"""

LONG_BATCH = """
import sys
import time
from pathlib import Path
from pyspark.sql import SparkSession
from spark_groups import await_end, start

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def write(batch, number):
    Path(sys.argv[1], "batch").touch()
    time.sleep(600)


await_end(start(spark.readStream.format("rate").load().writeStream.foreachBatch(write)))
"""


def late_python(directory: Path, late: int) -> dict[str, str]:
    """Return an environment with a Python whose first processes of a source are late."""
    python = directory / "python"
    numbers = " ".join(map(str, range(late)))
    script = LATE.format(late=late, numbers=numbers, directory=directory, python=sys.executable)
    python.write_text(script)
    python.chmod(0o755)
    return environment(PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=sys.executable)


@contextmanager
def running(
    script: str, log: Path, env: dict[str, str], *arguments: str
) -> Iterator[Callable[[signal.Signals], None]]:
    """Run a script; the yielded function sends a signal to its group, as a terminal does."""
    with log.open("a") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    began = [process.pid]

    def send(number: signal.Signals) -> None:
        began[:] = [process.pid, *descendants(process.pid)]
        os.killpg(process.pid, number)

    try:
        yield send
        code = process.wait(300)
    finally:
        # A late process of a source outlives its application.
        for pid in {*began, *descendants(process.pid)}:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait(300)
    # After the last process that could write, such as the shell of a late one.
    with log.open("a") as file:
        file.write(f"exit code {code}\n")


@pytest.fixture(scope="module")
def done(
    tmp_path_factory: pytest.TempPathFactory,
) -> subprocess.CompletedProcess[str]:
    """An application of three queries: the processes of the first two sources are late."""
    return subprocess.run(
        [sys.executable, "-c", APPLICATION, "once", "reads", "fails"],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=late_python(tmp_path_factory.mktemp("late"), late=2),
    )


def test_a_query_whose_process_is_late_is_started_again_and_reads(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.stdout.splitlines()[-2] == "1", done.stderr
    # On a busy machine others may be late, too.
    warning, *_ = [each for each in done.stderr.splitlines() if "WARN kafka-group" in each]
    assert "start 1 of 8 failed" in warning
    assert "That limit is Spark's" in warning
    assert "start 2 follows in 1 s" in warning


def test_after_the_last_start_the_error_says_what_to_do(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.stdout.startswith("QueryStartError the query did not start: 1 times"), done.stderr
    assert "spark-groups doctor" in "\n".join(done.stdout.splitlines()[:-2])


def test_another_error_is_raised_as_it_is_and_nothing_is_repeated(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.stdout.splitlines()[-1] == "StreamingQueryException True", done.stderr
    assert not re.search("no numbers today.*start 2 follows", done.stderr)


def test_ctrl_c_while_a_query_starts_ends_the_application_without_a_trace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(APPLICATION, log, late_python(tmp_path, late=8), "reads") as send:
        wait_until((tmp_path / "0").exists, 400, "the first process of the source")
        send(signal.SIGINT)
    lines = log.read_text().splitlines()
    assert lines[-1] == "exit code 130", log.read_text()
    assert "Traceback" not in log.read_text()
    begun, ended = [each for each in lines if "kafka-group [driver" in each]
    assert begun.endswith("starting the query: Spark starts the process of its source")
    assert ended.endswith("ended by SIGINT before the query had started"), log.read_text()
    assert "DAGScheduler" not in log.read_text()


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(
        LONG_BATCH, log, environment(PYSPARK_PYTHON=sys.executable), str(tmp_path)
    ) as send:
        wait_until((tmp_path / "batch").exists, 400, "the batch")
        send(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again ends at once" in log.read_text(), what="the wait")
        send(signal.SIGINT)
        sent_at = time.monotonic()
    assert time.monotonic() - sent_at < SOON_S
    lines = log.read_text().splitlines()
    assert lines[-1] == "exit code 130", log.read_text()
    assert lines[-2].startswith("kafka-group: ended at once by the second Ctrl-C")
    assert "Traceback" not in log.read_text()
