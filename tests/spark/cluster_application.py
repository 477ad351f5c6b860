"""An application on a Spark cluster that holds one task of its first batch, for a fault.

    python -m tests.spark.cluster_application GIVEN

GIVEN is JSON: `master`, `conf` of Spark, `options` of the stream, `checkpoint`, `signs` (a
directory) and `sink`: a directory for a Delta table, a file that ends in `.db` for a table of
SQLite, or a file that ends in `.json` for a function of `foreachBatch` without a fence.

Each task appends a line to the file `attempts` in `signs`: the process that starts the Python
workers of its executor, the number of its attempt, and the partition and offset of its first
record. The first attempt of task 0 writes the same to the file `held` and waits for the file `go`.
Another attempt of task 0 creates the file `again`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import spark_groups


@dataclass(frozen=True)
class HeldTask:
    """Lets the rows of a task through, and holds the first attempt of task 0 once.

    Args:
        signs: The directory of the files `attempts`, `held`, `go` and `again`.
    """

    signs: str

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, perhaps after a wait."""
        task, signs = TaskContext.get(), Path(self.signs)
        if task is None or not rows.num_rows:
            return rows
        place = [rows.column(name)[0].as_py() for name in ("partition", "offset")]
        attempt = json.dumps([os.getppid(), task.attemptNumber(), *place])
        with (signs / "attempts").open("a") as attempts:
            attempts.write(f"{attempt}\n")
        if task.partitionId() == 0 and task.attemptNumber() > 0:
            (signs / "again").touch()
        elif task.partitionId() == 0 and not (signs / "held").exists():
            (signs / "holding").write_text(attempt)
            (signs / "holding").rename(signs / "held")
            while not (signs / "go").exists():
                time.sleep(0.05)
        return rows

    def each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a whole task."""
        return map(self, batches)

    def of(self, rows: DataFrame) -> DataFrame:
        """Return a DataFrame whose tasks are held."""
        return rows.mapInArrow(self.each, rows.schema)


def sink_of(given: dict[str, Any]) -> Any:
    """Return the function for `foreachBatch`."""
    task, place = HeldTask(given["signs"]), Path(given["sink"])
    if place.suffix == ".json":

        def append(batch: DataFrame, _: int) -> None:
            rows = task.of(batch).select("partition", "offset").collect()
            with place.open("a") as seen:
                seen.writelines(f"{json.dumps(list(row))}\n" for row in rows)

        return append
    if place.suffix == ".db":
        table: Any = spark_groups.sqlite_table(place, "rows")
    else:
        table = spark_groups.delta_table(str(place))
    is_ranges = given["options"].get("emit") == "ranges"
    return spark_groups.write_table(table, task if is_ranges else task.of)


def main(given: dict[str, Any]) -> None:
    """Write all records of the topic, and end."""
    builder = SparkSession.builder.master(given["master"]).config("spark.ui.enabled", "false")
    for name, value in given["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    stream = spark.readStream.format("kafka-group").options(**given["options"]).load()
    writer = stream.writeStream.foreachBatch(sink_of(given))
    writer = writer.option("checkpointLocation", given["checkpoint"])
    spark_groups.start(writer.trigger(availableNow=True)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
