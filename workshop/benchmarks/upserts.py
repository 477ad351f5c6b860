"""The cost of changes to a Delta table by key: staged by a task, reduced, merged with the fence.

    python -m workshop.benchmarks.upserts [--rows 1000000] [--changes 20000] [--batches 6]

There is no Spark and no Kafka: the process does the work of a task and of the driver's commit.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from spark_groups.fence.compare import compare
from spark_groups.spark.tables.delta import DeltaTable, delta_table
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.upserts import DELETED, PLACE
from spark_groups.types import OffsetRange

_GROUP = "changes"
_TOPIC = uuid.UUID(int=1)
_SCHEMA = pa.schema(
    [
        *PLACE.items(),
        *(("id", pa.int64()), ("name", pa.string()), ("city", pa.string())),
        (DELETED, pa.bool_()),
    ]
)


def main() -> None:
    """Write a table, and change some of its rows in each batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=20_000, help="Of a batch.")
    parser.add_argument("--batches", type=int, default=6)
    given = parser.parse_args()
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        table = delta_table(Path(directory) / "changes", merge_on="id")
        write(table, _rows(range(given.rows), 0, chance))
        readings = [
            write(
                table,
                _rows(
                    chance.choices(range(given.rows), k=given.changes),
                    given.rows + number * given.changes,
                    chance,
                ),
            )
            for number in range(given.batches)
        ]
    cpu_s, wall_s = (statistics.median(each) for each in zip(*readings, strict=True))
    sys.stdout.write(
        f"{given.changes} changes of {given.rows} rows: {cpu_s:.2f} s of CPU, {wall_s:.2f} s\n"
    )


def write(table: DeltaTable, rows: pa.RecordBatch) -> tuple[float, float]:
    """Write a batch; return the seconds of CPU and of the clock that it took.

    Args:
        table: The table.
        rows: The rows, in the order of their offsets.
    """
    first = rows["offset"][0].as_py()
    cpu_s, at_s = time.process_time(), time.monotonic()
    state = table.read(_GROUP)
    planned = OffsetRange(_TOPIC, "changes", 0, first, first + rows.num_rows)
    decision = compare(_GROUP, [planned], state, table=str(table))
    attempt = Attempt(_GROUP, first, uuid.uuid4().hex[:12])
    pieces = [*table.task_writer(attempt).write([rows], "0")]
    table.commit(attempt, pieces, decision, state)
    return time.process_time() - cpu_s, time.monotonic() - at_s


def _rows(ids: Sequence[int], first: int, chance: random.Random) -> pa.RecordBatch:
    count = len(ids)
    columns = [
        pa.repeat("changes", count),
        pa.repeat(pa.scalar(0, pa.int32()), count),
        pa.array(range(first, first + count), pa.int64()),
        pa.array(ids, pa.int64()),
        pa.array([f"name of {each}" for each in ids]),
        pa.array([f"city {each % 50}" for each in ids]),
        pa.array([chance.random() < 0.05 for _ in ids]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


if __name__ == "__main__":
    main()
