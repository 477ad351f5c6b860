"""A client of a Spark Connect server, whose queries write ranges of streams to tables.

    python -m tests.spark.connect_client GIVEN

GIVEN is JSON; `Client` in connect_setup.py makes it. If the queries read once, they run one after
the other; else it prints a line when all of them run, then waits until one ends.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_groups import write_table
from spark_groups.spark.control.query_start import STARTS_MAX, connected_too_late
from workshop.chaos.plants import Plant, planted


def with_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that the tables have."""
    return rows.select(["topic", "partition", "offset", "value"])


def started(writer: Any, starts_max: int = STARTS_MAX) -> Any:
    """Start a query, again where Spark's 10 s for a Python process were too short."""
    try:
        return writer.start()
    except Exception as error:
        if starts_max == 1 or not connected_too_late(str(error)):
            raise
    return started(writer, starts_max - 1)


def main(given: dict[str, Any]) -> None:
    """Run the queries."""
    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    plant = given["plant"] and Plant(given["plant"])
    for group_id, place in pickle.loads(base64.b64decode(given["places"])).items():
        options = {**given["options"], "kafka.group.id": group_id, "emit": "ranges"}
        stream = spark.readStream.format("kafka-group").options(**options).load()
        stream.explain(extended=True)
        write = write_table(planted(place.fenced(), plant), with_text)
        writer = stream.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", given["checkpoints"][group_id])
        if given["is_once"]:
            started(writer.trigger(availableNow=True)).awaitTermination()
        else:
            started(writer)
    if not given["is_once"]:
        print("the queries run", flush=True)
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
