"""A Spark application that shows all it has: explained plans, logs, event log and UI.

    python -m tests.spark.secured_application DIRECTORY

DIRECTORY/queries.json lists the options of its queries by name; it runs until
DIRECTORY/stop is there, and writes the UI's address to DIRECTORY/ui.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession


def main(directory: Path) -> None:
    """Run the queries."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    events = directory / "events"
    events.mkdir()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("secured")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.eventLog.compress", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    queries = []
    for name, options in json.loads((directory / "queries.json").read_text()).items():
        rows = spark.readStream.format("kafka-group").options(**options).load()
        rows.explain("extended")
        rows.createOrReplaceTempView(name)
        query = (
            spark.table(name)
            .writeStream.format("parquet")
            .queryName(name)
            .option("checkpointLocation", str(directory / name / "checkpoint"))
            .start(str(directory / name / "rows"))
        )
        queries.append(query)
    (directory / "ui").write_text(spark.sparkContext.uiWebUrl or "")
    while not (directory / "stop").exists() and all(query.isActive for query in queries):
        time.sleep(0.1)
    for query in queries:
        if query.exception() is not None:
            print(f"the query {query.name} failed: {query.exception()}", flush=True)
        query.explain(extended=True)
        print(query.lastProgress)
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
