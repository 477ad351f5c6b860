"""Staging by tasks that get ranges as rows: through Spark Connect, the rows of a batch.

A client of Spark Connect has no RDDs, so the job is made of the batch itself, whose rows are its
ranges. Spark counts the batch as done for every stream that it reads, and not only for the one
whose runner has answered. So all rows are compared with the plan: they show a filter and a union
after `load()`, and two queries of one `load()`.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
        ranges = tuple(_range_of(row) for batch in batches for row in batch.to_pylist())
        if ranges:
            yield _packed(ranges)
        if parts := tuple(_cut(ranges, asked)):
            for found in self.work([parts]):
                yield _packed(found)


def _range_of(row: Mapping[str, Any]) -> OffsetRange:
    topic_id, offsets = parse_topic_id(row["topicId"]), (row["fromOffset"], row["untilOffset"])
    return OffsetRange(topic_id, row["topic"], row["partition"], *offsets)


def _cut(ranges: Iterable[OffsetRange], asked: dict[Any, OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the parts of ranges that are asked for."""
    for each in ranges:
        if (whole := asked.get(each.key)) is not None:
            begin = max(whole.from_offset, each.from_offset)
            end = min(whole.until_offset, each.until_offset)
            if begin < end:
                yield replace(whole, from_offset=begin, until_offset=end)


def _packed(value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"staged": pa.array([pickle.dumps(value)], pa.binary())})


def stage_range_rows(
    batch: DataFrame,
    work: RangesToTables,
    asked: Collection[OffsetRange],
    planned: Collection[OffsetRange],
) -> list[tuple[int, Piece | LeftOut]]:
    """Stage the rows of ranges with a Spark job over the rows of a batch.

    Args:
        batch: The batch: its rows are ranges.
        work: Reads and stages ranges.
        asked: The ranges that the tables lack.
        planned: All ranges of the batch.

    Returns:
        The staged pieces, with the index of their table.

    Raises:
        OptionsError: The batch has other ranges than its plan: the stream is not as loaded.
    """
    job = map_in_arrow(batch, RangeRowsToTables(work, tuple(asked)), "staged binary")
    found = [pickle.loads(row.staged) for row in job.collect()]
    _compare((r for each in found if isinstance(each[0], OffsetRange) for r in each), planned)
    return [each for each in found if not isinstance(each[0], OffsetRange)]


def compare_range_rows(batch: DataFrame, planned: Collection[OffsetRange]) -> None:
    """Compare the rows of a batch, of which the tables lack nothing, with its plan.

    Args:
        batch: The batch: its rows are ranges.
        planned: All ranges of the batch.

    Raises:
        OptionsError: The batch has other ranges than its plan: the stream is not as loaded.
    """
    _compare((_range_of(row.asDict()) for row in batch.collect()), planned)


def _compare(ranges: Iterable[OffsetRange], planned: Collection[OffsetRange]) -> None:
    if joined(each for each in ranges if len(each)) != joined(r for r in planned if len(r)):
        raise OptionsError(
            "the batch has other ranges than its plan: the stream was changed after load(), such"
            " as by a filter or a union, or two queries read it. Load it once for each query, and"
            " pass a function that changes the rows to write_table, as its second argument"
        )


def joined(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return ranges in order, those of a partition that follow each other as one."""
    whole: list[OffsetRange] = []
    for each in sorted(ranges):
        if whole and whole[-1].key == each.key and whole[-1].until_offset == each.from_offset:
            whole[-1] = replace(whole[-1], until_offset=each.until_offset)
        else:
            whole.append(each)
    return whole
