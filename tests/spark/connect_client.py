"""A client of a Spark Connect server, whose query writes a stream's ranges to a Delta table.

    python -m tests.spark.connect_client '{"remote": ..., "options": ..., "table": ..., ...}'

Prints a line when the query runs, then waits for its end.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_groups import delta_table, write_table


def with_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that the table has."""
    return rows.select(["topic", "partition", "offset", "value"])


def main(given: dict[str, Any]) -> None:
    """Run the query."""
    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    options = {**given["options"], "emit": "ranges"}
    stream = spark.readStream.format("kafka-group").options(**options).load()
    stream.explain(extended=True)
    query = (
        stream.writeStream.foreachBatch(write_table(delta_table(given["table"]), with_text))
        .option("checkpointLocation", given["checkpoint"])
        .start()
    )
    print("the query runs", flush=True)
    query.awaitTermination()
    print(query.exception(), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
