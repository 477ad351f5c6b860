"""A member by Spark that writes a Delta table, for workshop/benchmarks/handover.py.

    python -m workshop.benchmarks.handover_tables DIRECTORY BOOTSTRAP GROUP TOPIC INSTANCE WAY

INSTANCE is an instance id, or empty. WAY is `listen` or `alone`, which is a classic session with or
without a listener and with a clean end by SIGTERM, or `connect`: a Spark Connect server on this
machine, and its client, which stops the query on SIGTERM. The members of a group write one table.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_groups import delta_table, listen, register, start, write_table
from spark_groups.spark.control.jvm_connection import UNIX_SOCKETS
from spark_groups.spark.control.shutdown import stop_on_sigterm
from workshop.parts.handover_diary import Diary


def noting(place: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a transform that writes down of which partitions it gets rows."""

    def note(rows: pa.RecordBatch) -> pa.RecordBatch:
        Diary(place).note("rows", set(rows["partition"].to_pylist()))
        return rows.select(["topic", "partition", "offset", "value"])

    return note


def main(place: str, servers: str, group_id: str, topic: str, *further: str) -> None:
    """Write with a Structured Streaming query until SIGTERM."""
    instance_id, way = further
    is_served = way == "connect"
    builder = SparkSession.builder
    builder = builder.remote("local[1]") if is_served else builder.master("local[1]")
    spark = (
        builder.config(UNIX_SOCKETS, "true")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    ended = threading.Event()
    end = None if is_served else stop_on_sigterm(spark)
    if is_served:
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
    if way == "listen":
        listen(spark)
    register(spark)
    own = {"kafka.group.instance.id": instance_id} if instance_id else {}
    stream = (
        spark.readStream.format("kafka-group")
        .options(**{"kafka.bootstrap.servers": servers, "kafka.group.id": group_id}, **own)
        .options(subscribe=topic, emit="ranges")
        .load()
    )
    table = delta_table(Path(tempfile.gettempdir(), group_id))
    writer = stream.writeStream.foreachBatch(write_table(table, noting(Path(place))))
    writer = writer.option("checkpointLocation", str(Path(place, "checkpoint")))
    query = writer.start() if is_served else start(writer)
    Diary(Path(place)).note("joining")
    if end is not None:
        end.await_termination(query)
        return
    while query.isActive and not ended.wait(0.1):
        pass
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
