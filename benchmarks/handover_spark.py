"""A member by this project's source for benchmarks/handover.py; runs as a process of its own.

    python -m benchmarks.handover_spark DIRECTORY BOOTSTRAP GROUP TOPIC

The query has the default trigger and a listener. SIGTERM ends it in good order.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.handover_diary import Diary
from spark_groups import listen
from spark_groups.offsets.plan_text import parse_plan_text
from spark_groups.spark.control.shutdown import stop_on_sigterm


def main(place: str, servers: str, group_id: str, topic: str) -> None:
    """Read with a Structured Streaming query until SIGTERM."""
    directory = Path(place)
    diary = Diary(directory)
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    listen(spark)
    checkpoint = directory / "checkpoint"

    def write(batch: DataFrame, batch_id: int) -> None:
        planned = checkpoint / "offsets" / str(batch_id)
        plan = parse_plan_text(planned.read_text().splitlines()[-1])
        partitions = {each.partition for each in plan.ranges} if plan is not None else set()
        diary.note("planned", partitions, planned.stat().st_mtime)
        rows = batch.select("partition").collect()
        diary.note("rows", {row["partition"] for row in rows})

    end = stop_on_sigterm(spark)
    stream = (
        spark.readStream.format("kafka-group")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", group_id)
        .option("subscribe", topic)
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    diary.note("joining")
    end.await_termination(query)


if __name__ == "__main__":
    main(*sys.argv[1:])
