"""Sinks of jobs: what is missing in this Spark is said by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_options import SinkSection
from spark_groups.spark.jobs.sink import start_into, written

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_delta_without_its_package_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    sink = SinkSection(format="delta", path=str(tmp_path / "out"))
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    checkpoint = str(tmp_path / "checkpoint")
    writer = written(rows, sink).option("checkpointLocation", checkpoint)
    with pytest.raises(OptionsError, match=r"Spark has no delta here: .*io\.delta:delta-spark"):
        start_into(spark, writer, sink, "application", checkpoint)
    assert not spark.streams.active
