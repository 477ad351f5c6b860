"""Spark's classes that read Python sources, changed to pass columns on instead of rows."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from spark_groups.broker.java import find_java, find_spark_jars

SETTING = "spark.sql.execution.pythonDataSource.columnar"
"""Whether these classes pass on columns; false by default. Spark has no such setting."""
_SOURCES = sorted(Path(__file__).parent.glob("*.scala"))


def compiled(into: Path = Path("build/columnar")) -> Path:
    """Return a folder of the classes, compiled by the Scala compiler that PySpark ships.

    Args:
        into: Keeps them for each version of Spark and of their sources.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]
    folder = (into / f"{pyspark.__version__}-{digest}").absolute()
    if not folder.is_dir():
        into.mkdir(parents=True, exist_ok=True)
        jars = str(find_spark_jars() / "*")
        with tempfile.TemporaryDirectory(dir=into) as work:
            classes = Path(work, "classes")
            classes.mkdir()
            arguments = ["-usejavacp", "-nowarn", "-d", str(classes), *map(str, _SOURCES)]
            command = [str(find_java()), "-cp", jars, "scala.tools.nsc.Main", *arguments]
            subprocess.run(command, check=True)
            shutil.move(classes, folder)
    return folder
