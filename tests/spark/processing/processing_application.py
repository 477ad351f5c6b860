"""An application that dead-letters, and stops for good between a batch's letters and its commit.

    python -m tests.spark.processing.processing_application GIVEN

GIVEN is JSON: `options` of the stream, `checkpoint`, `seen` (a directory), `poison` (values),
`stop_after` (a file that it makes when it stops; without it, it reads what there is and ends).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_groups
from tests.spark.processing.topics import Seen, poisoned


def main(given: dict[str, Any]) -> None:
    """Process records."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    poison = [each.encode() for each in given["poison"]]
    processing = spark_groups.process_records(
        Seen(Path(given["seen"])).noting(poisoned(poison)),
        spark_groups.SkipOrDeadLetter(record_deadline_s=0.3),
    )

    def process(batch: DataFrame, batch_id: int) -> None:
        processing(batch, batch_id)
        if "stop_after" in given:
            Path(given["stop_after"]).touch()
            time.sleep(3_600)

    stream = spark.readStream.format("kafka-group").options(**given["options"])
    writer = stream.load().writeStream.foreachBatch(process)
    writer = writer.option("checkpointLocation", given["checkpoint"])
    spark_groups.start(writer.trigger(availableNow=True)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
