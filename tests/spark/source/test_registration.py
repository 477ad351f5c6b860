"""`register` reports why Spark does not find the source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from demo.applications import ROOT
from workshop.parts.processes import environment

REGISTER = """
from pyspark.sql import SparkSession
import spark_groups
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark_groups.register(spark)
except spark_groups.errors.OptionsError as error:
    print("refused:", error)
"""
OLD_SPARK = """
import sys
sys.modules["pyspark.sql.datasource"] = None
import spark_groups
spark_groups.register
"""


def run(code: str, **changed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-c", code),
        cwd=ROOT,
        env=environment(**changed),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.mark.spark
def test_workers_without_the_package_are_named_with_the_cure(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = str(bare / "bin" / "python")
    done = run(REGISTER, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert f"refused: the Python of Spark's workers, {python}, cannot import" in done.stdout
    assert f"Set PYSPARK_PYTHON={sys.executable} before the session starts" in done.stdout


def test_spark_3_is_refused_with_the_string_that_it_says_itself() -> None:
    done = run(OLD_SPARK)
    assert done.returncode == 1
    assert "spark-groups requires Spark 4.0 or later" in done.stderr
    assert "DATA_SOURCE_NOT_FOUND" in done.stderr
