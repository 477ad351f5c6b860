"""The archive of Spark's classes, with which tests start Spark in a third of the time."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

from spark_groups.broker.java import archive_flags, archive_of, find_java
from spark_groups.broker.properties import STARTS_FAST
from spark_groups.errors import EmbeddedKafkaError

FLAGS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Flags of the JVM of each spark-submit, and so of each PySpark session."""


def spark_archive() -> Path:
    """Return the archive of this environment's PySpark, in a folder of the environment."""
    spec = importlib.util.find_spec("pyspark")
    # An archive fits one class path, and so one place of PySpark.
    place = hashlib.sha256(str(spec.origin if spec else "").encode()).hexdigest()[:12]
    name = f"spark-{importlib.metadata.version('pyspark')}-{place}"
    return archive_of(Path(sys.prefix, "class-archives"), name, find_java())


def start_sparks_fast() -> None:
    """Let all Sparks that this process and its children start use the archive, if it was made."""
    if FLAGS_VARIABLE in os.environ:
        return
    with contextlib.suppress(EmbeddedKafkaError, importlib.metadata.PackageNotFoundError):
        flags = archive_flags(spark_archive())
        if flags:
            os.environ[FLAGS_VARIABLE] = " ".join((*STARTS_FAST, *flags))
