"""Reads topics with Spark's own Kafka source and by both readers; prints what each one had.

    python -m tests.spark.reading.three_sources SERVERS TOPIC,TOPIC,... JARS

For each source and isolation level: its columns, and how many rows of each timestampType a topic
has, with which hash.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import spark_groups

SOURCES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "jvm": ("kafka", {}),
    "fast": ("kafka-group", {"reader": "fast"}),
    "librdkafka": ("kafka-group", {"reader": "librdkafka"}),
}
ISOLATION = ("read_uncommitted", "read_committed")
MOST_OFFSETS = 5000
"""So that there are two batches, whose ranges end anywhere."""
READ_S = 400
# JSON distinguishes null from empty; a row that came twice is counted, though its hash is gone.
HASHED = ("count(*)", "bit_xor(xxhash64(to_json(struct(*))))")


def read(spark: SparkSession, servers: str, topics: str, source: str, isolation: str) -> Any:
    """Read topics to their ends, in some batches, and return the rows."""
    name, options = SOURCES[source]
    found: dict[str, dict[str, list[int]]] = {}

    def take(batch: DataFrame, _: int) -> None:
        groups = batch.groupBy("topic", "timestampType").agg(*map(expr, HASHED))
        for topic, timestamp_type, rows, hashed in groups.collect():
            before = found.setdefault(topic, {}).setdefault(str(timestamp_type), [0, 0])
            before[:] = [before[0] + rows, before[1] ^ hashed]

    rows = (
        spark.readStream.format(name)
        .options(**options)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", isolation)
        .option("maxOffsetsPerTrigger", MOST_OFFSETS)
    )
    if name == "kafka-group":
        rows = rows.option("kafka.group.id", f"three-sources-{uuid.uuid4().hex}")
    loaded = rows.load()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = spark_groups.start(
            loaded.writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        if not query.awaitTermination(READ_S):
            raise TimeoutError(f"{source} did not read {topics} in {READ_S} s")
    return {"columns": loaded.schema.simpleString(), "topics": found}


def main() -> None:
    """Read with all of them, and print it as JSON."""
    servers, topics, jars = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    found = {
        isolation: {each: read(spark, servers, topics, each, isolation) for each in SOURCES}
        for isolation in ISOLATION
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
