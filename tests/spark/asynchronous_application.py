"""An application that copies a topic with asynchronous progress tracking, until it is killed.

    python -m tests.spark.asynchronous_application GIVEN

GIVEN is JSON: `options` of the stream, `servers` and `output` (the topic that it writes),
`checkpoint`, `interval_ms` between two entries in Spark's logs, `listens` (whether a listener
reports the batches) and `jars` of Spark's Kafka connector.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import spark_groups


def main(given: dict[str, Any]) -> None:
    """Write the partition and the offset of each row."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", given["jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    if given["listens"]:
        spark_groups.listen(spark)
    rows = spark.readStream.format("kafka-group").options(**given["options"]).load()
    writer = (
        rows.selectExpr("concat(partition, '-', offset) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", given["servers"])
        .option("topic", given["output"])
        .option("checkpointLocation", given["checkpoint"])
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", given["interval_ms"])
    )
    spark_groups.start(writer).awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
