"""An application that writes a group's records to a table, and can stop at a commit.

    python -m tests.spark.tables.table_application GIVEN

GIVEN is JSON: `options` of the stream, `checkpoint`, `table` (a path: of an Iceberg table if the
directory is called `lake`, else of a Delta table; the arguments of `postgres_table`; or the `port`
of the service of an example), with the columns `merge_on` of its key. With
`hold` ("planned": the table is not yet read; "before" or "after" the table's commit) and `signs` (a
directory), it stops in its second batch: it creates the file `held` in `signs` and waits for the
file `go`. With "task" it does so in a task of its first batch. It creates `refused` when the table
refuses a commit.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import spark_groups
from spark_groups.errors import TableChangedError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.types import TopicId
from tests.spark.cluster_application import HeldTask
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.rest_place import service_on


class HeldTable:
    """A table that waits in the commit of the second batch.

    Args:
        table: The table.
        hold: "planned", "before" the commit, or "after" it.
        signs: The directory of the files `held`, `go` and `refused`.
    """

    def __init__(self, table: FencedTable, hold: str, signs: Path) -> None:
        self._table = table
        self._hold = hold
        self._signs = signs
        self._commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def __str__(self) -> str:
        return str(self._table)

    def read(self, group_id: str, topic_ids: frozenset[TopicId] | None = None) -> TableState:
        """Read the table's fence, and wait once before it."""
        if self._hold == "planned" and self._commits == 1 and not (self._signs / "held").exists():
            self._wait()
        return self._table.read(group_id, topic_ids)

    def commit(
        self, attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        """Commit, and wait once before or after it."""
        is_held = attempt.batch_id == 1 and pieces and not (self._signs / "held").exists()
        if is_held and self._hold == "before":
            self._wait()
        try:
            self._table.commit(attempt, pieces, decision, state)
        except TableChangedError:
            (self._signs / "refused").touch()
            raise
        self._commits += bool(pieces)
        if is_held and self._hold == "after":
            self._wait()

    def _wait(self) -> None:
        (self._signs / "held").touch()
        while not (self._signs / "go").exists():
            time.sleep(0.05)


def main(given: dict[str, Any]) -> None:
    """Write all records of the topic, and end."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    place = given["table"]
    if isinstance(place, dict) and "port" in place:
        service = service_on(int(place["port"]))
        table: Any = spark_groups.own_table("the service", service.read, service.write)
    elif isinstance(place, dict):
        table = spark_groups.postgres_table(**place, merge_on=given["merge_on"])
    elif Path(place).name == "lake":
        table = Lake.at(Path(place)).fenced()
    else:
        table = spark_groups.delta_table(place, merge_on=given.get("merge_on", ()))
    transform: Any = None
    if given.get("hold") == "task":
        task = HeldTask(given["signs"])
        transform = task if given["options"]["emit"] == "ranges" else task.of
    elif "hold" in given:
        table = HeldTable(table, given["hold"], Path(given["signs"]))
    stream = spark.readStream.format("kafka-group").options(**given["options"]).load()
    writer = stream.writeStream.foreachBatch(spark_groups.write_table(table, transform))
    writer = writer.option("checkpointLocation", given["checkpoint"])
    spark_groups.start(writer.trigger(availableNow=True)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
