"""Small files through the driver's JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_groups.spark.jobs.hadoop_files import HadoopFiles

pytestmark = pytest.mark.spark


def test_files_are_written_read_and_never_overwritten_by_accident(
    spark: SparkSession, tmp_path: Path
) -> None:
    files, path = HadoopFiles(spark), str(tmp_path / "a" / "note")
    assert files.read(path) is None
    assert not files.exists(path)
    assert files.create(path, "één\n")
    assert files.read(path) == "één\n"
    assert not files.create(path, "two")
    assert files.read(path) == "één\n"
    assert files.create(path, "two", overwrite=True)
    assert files.read(path) == "two"
    assert files.exists(path)


def test_qualified_path_names_the_file_system(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark)
    assert files.qualified(str(tmp_path)) == f"file:{tmp_path}"
    assert files.qualified("relative").startswith("file:/")
