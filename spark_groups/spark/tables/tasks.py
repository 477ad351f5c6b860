"""The task of a batch whose ranges are read and written by Python: no row goes through the JVM.

Executors import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.spark.tables.table import Piece, TaskWriter
from spark_groups.types import OffsetRange

ArrowTransform = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class RangesToTable:
    """Reads ranges and stages their rows; pickled to executors.

    Args:
        settings: How ranges are read; with secrets, which their text does not show.
        transform: What is done with the rows; None: nothing.
        writer: Stages them.
    """

    settings: RangeSettings
    transform: ArrowTransform | None
    writer: TaskWriter

    def __call__(self, tasks: Iterable[tuple[OffsetRange, ...]]) -> Iterator[Piece]:
        """Run the tasks of one of Spark's partitions; there is one.

        Args:
            tasks: The ranges of each.
        """
        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId()}-{context.taskAttemptId()}"
        for ranges in tasks:
            yield from self.writer.write(self._rows(ranges), name)

    def _rows(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        for each in read_ranges(self.settings, ranges):
            rows = each if self.transform is None else self.transform(each)
            if not isinstance(rows, pa.RecordBatch):
                raise TypeError(
                    "the transform of a stream with emit=ranges takes a pyarrow.RecordBatch and"
                    f" returns one, not {type(rows).__name__}"
                )
            yield rows
