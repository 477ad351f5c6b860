"""An application whose source can stop at a step of its warm-up, to be killed there.

    python -m tests.spark.warm_application GIVEN

GIVEN is JSON: `options` of the stream, `directory` (for `rows` and `checkpoint`), and `listens`. It
ends when the file `stop` of the directory exists. The environment names a step in HOLD_AT and a
directory in SIGNS: at this step the runner creates the file `held` and waits. Each worker process
creates `warm-PID` after a warm-up task, and `rows-PID` after a task that read rows, with the names
of the modules that it has imported since its warm-up.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

import spark_groups
from spark_groups.spark.source.source import (
    KafkaGroupDataSource,
    KafkaGroupStreamReader,
    WarmUpPartition,
)

HELD = "held-group"
_warm: set[str] = set()
"""The modules of this worker after its warm-up."""


class Step(Enum):
    """A step of a warm-up at which an application can be killed."""

    PLANNED = "the plan is not in the offset log"
    LOGGED = "the plan is in the offset log, and no task has run"
    COMMITTED = "the batch is in the commit log, and the member has not joined"
    JOINED = "the member has joined, and its first plan is not in the offset log"


def hold_at(step: Step) -> None:
    if os.environ.get("HOLD_AT") == step.name:
        Path(os.environ["SIGNS"], "held").touch()
        time.sleep(3600)


class HeldReader(KafkaGroupStreamReader):
    """The reader, which stops at a step."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Return the next plan."""
        was_warm_up = "warm_up_tasks" in start
        if was_warm_up:
            hold_at(Step.COMMITTED)
        end = super().latestOffset(start, limit)
        if "warm_up_tasks" in end and end != start:
            hold_at(Step.PLANNED)
        elif was_warm_up:
            hold_at(Step.JOINED)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        if "warm_up_tasks" in end:
            hold_at(Step.LOGGED)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run a task, and note the worker that did."""
        yield from super().read(partition)
        if isinstance(partition, WarmUpPartition):
            _warm.update(sys.modules)
            Path(os.environ["SIGNS"], f"warm-{os.getpid()}").touch()
        else:
            imported = sorted(sys.modules.keys() - _warm) if _warm else ["everything"]
            Path(os.environ["SIGNS"], f"rows-{os.getpid()}").write_text(" ".join(imported))


class HeldSource(KafkaGroupDataSource):
    """The source with that reader."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return HELD

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of one query."""
        return HeldReader(self._load)


def main(given: dict[str, Any]) -> None:
    """Write the rows that the group's coordinator gives to this application."""
    # Not the class of __main__: workers import it.
    from tests.spark.warm_application import HeldSource as Source

    directory = Path(given["directory"])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.dataSource.register(Source)
    if given["listens"]:
        spark_groups.listen(spark)
    writer = spark.readStream.format(HELD).options(**given["options"]).load().writeStream
    query = spark_groups.start(
        writer.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .option("path", str(directory / "rows"))
    )
    while not query.awaitTermination(1):
        if (directory / "stop").exists():
            query.stop()
            break
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
