"""The Spark that benchmarks measure with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from workshop.parts.connector import fetch_connector


def new_session(
    tasks: int, configuration: Mapping[str, str], jars: Iterable[Path] = ()
) -> SparkSession:
    """Return a quiet local session that has Spark's own Kafka source.

    Args:
        tasks: How many run at a time.
        configuration: What else is set.
        jars: What it has beside its own Kafka source.
    """
    jars = [*fetch_connector(pyspark.__version__), *jars]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{tasks}]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # Each query has consumers of its own, whose buffers would fill the heap of later ones.
        .config("spark.kafka.consumer.cache.timeout", "20s")
        .config("spark.kafka.consumer.cache.evictorThreadRunInterval", "5s")
    )
    for name, value in configuration.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
