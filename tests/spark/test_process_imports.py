"""Spark starts one Python process after another for a query: each imports what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import filled_topic
from workshop.parts.processes import environment
from workshop.parts.python_imports import measuring_python, parse_imports, read_imports

APPLICATION = """
import sys
from pyspark.sql import SparkSession
from spark_groups import listen, start

servers, group_id, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
listen(spark)
rows = spark.readStream.format("kafka-group").options(
    **{
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": group_id,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "reader": "librdkafka",
    }
).load()
writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
start(writer.trigger(availableNow=True)).awaitTermination()
"""
OF_DRIVER = "import pyspark.sql; from spark_groups import await_end, listen, register, start"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_each_process_of_a_query_imports_what_it_needs(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 10)
    measured = tmp_path / "measured"
    measured.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-c", APPLICATION),
            *(kafka.bootstrap_servers, group_id, topic_name, str(tmp_path / "checkpoint")),
        ],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        env=environment(PYSPARK_PYTHON=str(measuring_python(measured))),
    )
    assert done.returncode == 0, done.stderr
    found = {each.process: each for each in read_imports(measured)}
    assert {name: each.heavy for name, each in found.items()} == {
        "lookup_data_sources": (),
        "create_data_source": (),
        "python_streaming_source_runner": (),
        "plan_data_source_read": (),
        "worker": ("confluent_kafka", "platformdirs"),
    }
    assert found["python_streaming_source_runner"].own_modules > 100, "it runs the member"
    assert found["plan_data_source_read"].own_modules < 50, "it only makes the reader again"


def test_the_driver_imports_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", OF_DRIVER],
        capture_output=True,
        text=True,
        check=True,
    )
    assert parse_imports("driver", done.stderr).heavy == ()


TREE = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 |   json
import time:      1000 |       1100 | pyspark
import time:        10 |         10 |     pydantic_core
import time:        20 |         30 |   pydantic
import time:       400 |        400 |     numpy
import time:        50 |        450 |   pyspark.sql
26/11/28 INFO a line of the log
import time:         5 |        485 | spark_groups.spark
import time:         7 |          7 | re2
"""


def test_imports_for_the_package_count_without_those_of_spark() -> None:
    found = parse_imports("worker", TREE)
    assert (found.own_ms, found.own_modules) == (0.035, 1)
    assert found.heavy == ("pydantic", "re2")
