"""`start` on a real Spark: a source's process that is late, one that never comes, other errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workshop.parts.processes import environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

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

starts_max, fails = int(sys.argv[1]), sys.argv[2] == "fails"


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "number int"

    def streamReader(self, schema):
        return Reader()


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        if fails:
            raise ValueError("no numbers today")
        return {"at": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Numbers)
rows = spark.readStream.format("numbers").load()
writer = rows.writeStream.format("memory").queryName("found").trigger(availableNow=True)
try:
    query = spark_groups.start(writer, starts_max=starts_max)
    query.awaitTermination()
except QueryStartError as error:
    print("QueryStartError", error)
except Exception as error:
    print(type(error).__name__, "no numbers today" in str(error))
else:
    print(spark.table("found").count())
"""


def run(
    directory: Path, late: int, starts_max: int = 8, fails: str = "reads"
) -> subprocess.CompletedProcess[str]:
    """Run the application with a Python whose first processes of a source are late."""
    python = directory / "python"
    numbers = " ".join(map(str, range(late)))
    script = LATE.format(late=late, numbers=numbers, directory=directory, python=sys.executable)
    python.write_text(script)
    python.chmod(0o755)
    return subprocess.run(
        [sys.executable, "-c", APPLICATION, str(starts_max), fails],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment(PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=sys.executable),
    )


def test_a_query_whose_process_is_late_is_started_again_and_reads(tmp_path: Path) -> None:
    done = run(tmp_path, late=1)
    assert done.stdout == "1\n", done.stderr
    (warning,) = [each for each in done.stderr.splitlines() if "WARN kafka-group" in each]
    assert "start 1 of 8 failed" in warning
    assert "That limit is Spark's" in warning
    assert "start 2 follows in 1 s" in warning


def test_after_the_last_start_the_error_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, late=1, starts_max=1)
    assert done.stdout.startswith("QueryStartError the query did not start: 1 times"), done.stderr
    assert "spark-groups doctor" in done.stdout


def test_another_error_is_raised_as_it_is_and_nothing_is_repeated(tmp_path: Path) -> None:
    done = run(tmp_path, late=0, fails="fails")
    assert done.stdout == "StreamingQueryException True\n", done.stderr
    assert "start 2 follows" not in done.stderr
