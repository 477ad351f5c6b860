"""A member by Spark for workshop/benchmarks/handover.py; runs as a process of its own.

    python -m workshop.benchmarks.handover_spark DIRECTORY BOOTSTRAP GROUP TOPIC INSTANCE SOURCE

INSTANCE is an instance id, or empty. SOURCE is `kafka-group` or Spark's own `kafka`, which is in no
group. The query has the default trigger, and a clean end by SIGTERM. That of `kafka-group` runs as
the jobs run theirs: with a listener, a registered source, and Python workers that start early.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

from spark_groups import listen, start
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.control.shutdown import stop_on_sigterm
from spark_groups.spark.jobs.run import start_workers
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.source.registration import register
from workshop.parts.connector import fetch_connector
from workshop.parts.handover_diary import Diary

OWN_FORMAT = "kafka"


def main(place: str, servers: str, group_id: str, topic: str, *further: str) -> None:
    """Read with a Structured Streaming query until SIGTERM."""
    instance_id, source = further
    directory = Path(place)
    diary = Diary(directory)
    jars = fetch_connector(pyspark.__version__) if source == OWN_FORMAT else []
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config(UNIX_SOCKETS, "true")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    end = stop_on_sigterm(spark)
    if source != OWN_FORMAT:
        listen(spark)
        register(spark)

    def write(batch: DataFrame, _: int) -> None:
        rows = batch.select("partition").collect()
        diary.note("rows", {row["partition"] for row in rows})

    stream = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    if source != OWN_FORMAT:
        stream = stream.option("kafka.group.id", group_id)
    if instance_id:
        stream = stream.option("kafka.group.instance.id", instance_id)
    query = start(
        stream.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    if source != OWN_FORMAT:
        start_workers(spark, RangeSettings(bootstrap_servers=(), group_id=""))
    diary.note("joining")
    end.await_termination(query)


if __name__ == "__main__":
    main(*sys.argv[1:])
