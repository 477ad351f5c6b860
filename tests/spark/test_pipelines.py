"""A declarative pipeline that `spark-pipelines` runs: a stream of a group as a streaming table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.runtime.members import committed
from workshop.parts.applications import REPOSITORY
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.processes import environment

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

ROWS = 20
SPECIFICATION = """
name: flights
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def flights():
    return (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", {servers!r})
        .option("kafka.group.id", {group_id!r})
        .option("subscribe", {topic!r})
        .option("startingOffsets", "earliest")
        .load()
    )
"""


def run(project: Path) -> None:
    """Run a pipeline once."""
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    done = subprocess.run(
        command,
        cwd=project,
        env=environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(REPOSITORY)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_streaming_table_gets_each_record_and_the_group_has_committed_offsets(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    (tmp_path / "transformations").mkdir()
    given = {"servers": servers, "group_id": group_id, "topic": topic_name}
    definitions = tmp_path / "transformations" / "flights.py"
    definitions.write_text(DEFINITIONS.format(**given), encoding="utf-8")
    storage = (tmp_path / "storage").as_uri()
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(storage=storage))
    produce(servers, topic_name, [Row(b"%d" % n, partition=n % 2) for n in range(ROWS)])
    run(tmp_path)
    rows = ds.dataset(tmp_path / "spark-warehouse" / "flights").to_table()
    found = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    assert sorted(found) == [(p, n) for p in range(2) for n in range(ROWS // 2)]
    assert committed(servers, group_id)[topic_name, 0] == ROWS // 2
