"""Staging by tasks that get ranges as rows: through Spark Connect, the rows of a batch.

A client of Spark Connect has no RDDs, so the job is made of the batch itself, whose rows are its
ranges. What a filter has removed between `load()` and the function is not read: the ranges that
the tasks report show it.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_groups.errors import OptionsError
from spark_groups.spark.processing.arrow_map import map_in_arrow
from spark_groups.spark.tables.left_out import LeftOut
from spark_groups.spark.tables.table import Piece
from spark_groups.spark.tables.tasks import RangesToTables
from spark_groups.types import OffsetRange, parse_topic_id

if TYPE_CHECKING:
    # Tasks import this module, and need no DataFrame.
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class RangeRowsToTables:
    """Stages the rows of the ranges that a task gets, for `mapInArrow`; pickled to executors.

    Args:
        work: Reads and stages ranges.
        asked: The ranges that the tables lack, at most one of a partition.
    """

    work: RangesToTables
    asked: Sequence[OffsetRange]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the ranges, and then the staged pieces, with the index of their table.

        Args:
            batches: Rows of ranges.
        """
        asked = {each.key: each for each in self.asked}
        ranges = tuple(cut for batch in batches for cut in _cut(batch.to_pylist(), asked))
        if ranges:
            yield _packed(ranges)
            for found in self.work([ranges]):
                yield _packed(found)


def _cut(rows: Iterable[dict[str, Any]], asked: dict[Any, OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the parts of the rows' ranges that are asked for."""
    for row in rows:
        if (whole := asked.get((parse_topic_id(row["topicId"]), row["partition"]))) is not None:
            begin = max(whole.from_offset, row["fromOffset"])
            end = min(whole.until_offset, row["untilOffset"])
            if begin < end:
                yield replace(whole, from_offset=begin, until_offset=end)


def _packed(value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"staged": pa.array([pickle.dumps(value)], pa.binary())})


def stage_range_rows(
    batch: DataFrame, work: RangesToTables, asked: Collection[OffsetRange]
) -> list[tuple[int, Piece | LeftOut]]:
    """Stage the rows of ranges with a Spark job over the rows of a batch.

    Args:
        batch: The batch: its rows are ranges.
        work: Reads and stages ranges.
        asked: The ranges that the tables lack.

    Returns:
        The staged pieces, with the index of their table.

    Raises:
        OptionsError: The batch lacks some of the ranges: the stream is not as loaded.
    """
    job = map_in_arrow(batch, RangeRowsToTables(work, tuple(asked)), "staged binary")
    found = [pickle.loads(row.staged) for row in job.collect()]
    ranges = [r for each in found if isinstance(each[0], OffsetRange) for r in each]
    if joined(ranges) != [each for each in sorted(asked) if len(each)]:
        raise OptionsError(
            "the batch has other ranges than its plan: the stream was changed after load(), such"
            " as by a filter. Pass a function that changes the rows to write_table, as its second"
            " argument"
        )
    return [each for each in found if not isinstance(each[0], OffsetRange)]


def joined(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return ranges in order, those of a partition that follow each other as one."""
    whole: list[OffsetRange] = []
    for each in sorted(ranges):
        if whole and whole[-1].key == each.key and whole[-1].until_offset == each.from_offset:
            whole[-1] = replace(whole[-1], until_offset=each.until_offset)
        else:
            whole.append(each)
    return whole
