"""Registers the sources with a session, or reports why Spark cannot find them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

from pyspark import __version__ as pyspark_version
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_groups.errors import OptionsError

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ImportError(
        f"spark-groups requires Spark 4.0 or later, and this is pyspark {pyspark_version}: Spark 3"
        " has no Python data sources, and reports DATA_SOURCE_NOT_FOUND"
    ) from error

from spark_groups.spark.control.spark_log import REPLACED, drop_lines
from spark_groups.spark.source.source import KafkaGroupDataSource
from spark_groups.spark.state.source import KafkaGroupStateDataSource

WORKER_TIMEOUT_S: Final = 60.0


def register(spark: SparkSession) -> None:
    """Register `format("kafka-group")` and `format("kafka-group-state")` with a session.

    Spark finds the sources itself if its workers' Python has the package. If Spark reports
    `[DATA_SOURCE_NOT_FOUND]`, this function reports the reason.

    Raises:
        OptionsError: The Python of Spark's workers lacks the package.
    """
    _check_workers(spark)
    drop_lines(getattr(getattr(spark, "_sc", None), "_jvm", None), REPLACED)
    for source in (KafkaGroupDataSource, KafkaGroupStateDataSource):
        _register(spark, source)


def _check_workers(spark: SparkSession) -> None:
    """Import the package in the workers' Python, if it is another one on this machine."""
    # Workers of a Spark Connect session run elsewhere.
    context = getattr(spark, "_sc", None)
    python = getattr(context, "pythonExec", None)
    # Do not resolve links: the Pythons of two environments may be one file.
    if python is None or os.path.abspath(shutil.which(python) or python) == sys.executable:
        return
    try:
        subprocess.run(
            (python, "-c", "import spark_groups, pyspark"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WORKER_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip().splitlines()[-1]
        raise OptionsError(
            f"the Python of Spark's workers, {python}, cannot import spark_groups ({reason}). Set"
            f" PYSPARK_PYTHON={sys.executable} before the session starts, or install spark-groups"
            " there: `spark-groups doctor` checks it"
        ) from error


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 refuses sources that it has found itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
