"""Jobs over ranges that tasks get as rows: through Spark Connect, the rows of a batch.

A client of Spark Connect has no RDDs, so a job is made of the batch itself, whose rows are its
ranges. Spark counts the batch as done for every stream that it reads, and not only for the one
whose runner has answered. So all rows are compared with the plan: they show a filter and a union
after `load()`, and two queries of one `load()`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_groups.errors import OptionsError
from spark_groups.spark.control.jvm_connection import acknowledge_tasks_at_once
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.spark.source.arrow_map import map_in_arrow
from spark_groups.types import OffsetRange, parse_topic_id

if TYPE_CHECKING:
    # Tasks import this module, and need no DataFrame.
    from pyspark.sql import DataFrame

WorkOnRanges = Callable[[Iterable[tuple[OffsetRange, ...]]], Iterator[Any]]
"""Gets the ranges of each task, as the rows of a partition of an RDD; pickled to executors."""


@dataclass(frozen=True, slots=True)
class OverRangeRows:
    """Works on the ranges that a task gets, for `mapInArrow`; pickled to executors.

    Args:
        work: Works on ranges, and yields what the driver gets.
        asked: The parts to work on, at most one of a partition; None: all.
    """

    work: WorkOnRanges
    asked: Collection[OffsetRange] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the ranges, and then what the work yields.

        Args:
            batches: Rows of ranges.
        """
        ranges = tuple(_ranges_of(batches))
        if ranges:
            yield _packed(is_ranges=True, value=ranges)
        if parts := tuple(ranges if self.asked is None else _cut(ranges, self.asked)):
            for found in self.work([parts]):
                yield _packed(is_ranges=False, value=found)


@dataclass(frozen=True, slots=True)
class ReadRangeRows:
    """Reads the records of the ranges that a task gets, for `mapInArrow`; pickled to executors.

    Args:
        settings: Settings of the consumer; with secrets, which the repr omits.
    """

    settings: RangeSettings = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the records.

        Args:
            batches: Rows of ranges.
        """
        acknowledge_tasks_at_once()
        if ranges := [*_ranges_of(batches)]:
            yield from read_ranges(self.settings, ranges)


def _ranges_of(batches: Iterable[pa.RecordBatch]) -> Iterator[OffsetRange]:
    return (_range_of(row) for batch in batches for row in batch.to_pylist())


def _range_of(row: Mapping[str, Any]) -> OffsetRange:
    topic_id, offsets = parse_topic_id(row["topicId"]), (row["fromOffset"], row["untilOffset"])
    return OffsetRange(topic_id, row["topic"], row["partition"], *offsets)


def _cut(ranges: Iterable[OffsetRange], asked: Collection[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the parts of ranges that are asked for."""
    by_key = {each.key: each for each in asked}
    for each in ranges:
        if (whole := by_key.get(each.key)) is not None:
            begin = max(whole.from_offset, each.from_offset)
            end = min(whole.until_offset, each.until_offset)
            if begin < end:
                yield replace(whole, from_offset=begin, until_offset=end)


def _packed(*, is_ranges: bool, value: object) -> pa.RecordBatch:
    binary = pa.array([pickle.dumps((is_ranges, value))], pa.binary())
    return pa.RecordBatch.from_pydict({"found": binary})


def work_over_rows(
    batch: DataFrame,
    work: WorkOnRanges,
    planned: Collection[OffsetRange],
    cure: str,
    asked: Collection[OffsetRange] | None = None,
) -> list[Any]:
    """Work on ranges with a Spark job over the rows of a batch.

    Args:
        batch: The batch: its rows are ranges.
        work: See `OverRangeRows`.
        planned: All ranges of the batch.
        cure: Where changes of rows belong instead.
        asked: See `OverRangeRows`.

    Returns:
        What the work has yielded in the tasks.

    Raises:
        OptionsError: The batch has other ranges than its plan: the stream is not as loaded.
    """
    job = map_in_arrow(batch, OverRangeRows(work, asked), "found binary")
    found = [pickle.loads(row.found) for row in job.collect()]
    _compare((r for is_ranges, each in found if is_ranges for r in each), planned, cure)
    return [each for is_ranges, each in found if not is_ranges]


def compare_range_rows(batch: DataFrame, planned: Collection[OffsetRange], cure: str) -> None:
    """Compare the rows of a batch, which no job works on, with its plan.

    Args:
        batch: The batch: its rows are ranges.
        planned: All ranges of the batch.
        cure: Where changes of rows belong instead.

    Raises:
        OptionsError: The batch has other ranges than its plan: the stream is not as loaded.
    """
    _compare((_range_of(row.asDict()) for row in batch.collect()), planned, cure)


def _compare(ranges: Iterable[OffsetRange], planned: Collection[OffsetRange], cure: str) -> None:
    if joined(each for each in ranges if len(each)) != joined(r for r in planned if len(r)):
        raise OptionsError(
            "the batch has other ranges than its plan: the stream was changed after load(), such"
            " as by a filter or a union, or two queries read it. Load it once for each query;"
            f" {cure}"
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
