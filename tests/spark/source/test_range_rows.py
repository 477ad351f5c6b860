"""Ranges as rows of tasks: the parts that a table lacks, and whether all of them were read."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from spark_groups.errors import OptionsError
from spark_groups.spark.reading.rows import range_rows
from spark_groups.spark.source.range_rows import (
    OverRangeRows,
    compare_range_rows,
    joined,
    work_over_rows,
)
from spark_groups.types import OffsetRange

TOPIC = uuid.UUID(int=1)
CURE = "change rows elsewhere"


def of(partition: int, begin: int, end: int) -> OffsetRange:
    return OffsetRange(TOPIC, "orders", partition, begin, end)


@dataclass
class Work:
    """Notes the ranges that it gets."""

    tasks: list[Any] = field(default_factory=list)

    def __call__(self, tasks: Any) -> Iterator[tuple[int, str]]:
        self.tasks += tasks
        yield 0, "a file"


def staged(asked: list[OffsetRange] | None, *rows: OffsetRange) -> tuple[list[Any], list[Any]]:
    work: Any = Work()
    found = OverRangeRows(work, asked)([range_rows(rows)])
    return work.tasks, [pickle.loads(each["found"][0].as_py()) for each in found]


def test_task_reads_the_parts_of_its_ranges_that_a_table_lacks() -> None:
    rows = (of(0, 0, 10), of(1, 10, 20), of(3, 0, 5))
    asked = [of(0, 5, 20), of(1, 0, 30), of(2, 0, 10)]
    tasks, found = staged(asked, *rows)
    assert tasks == [(of(0, 5, 10), of(1, 10, 20))]
    assert found == [(True, rows), (False, (0, "a file"))]
    tasks, found = staged(None, *rows)
    assert tasks == [rows], "without parts, all of them"


def test_task_whose_ranges_a_table_has_reads_nothing_and_names_them() -> None:
    rows = (of(0, 0, 5), of(1, 0, 5))
    assert staged([of(0, 5, 20)], *rows) == ([], [(True, rows)])


class Frame:
    """A batch whose rows are ranges, and its one task."""

    def __init__(self, *rows: OffsetRange) -> None:
        self.batch = range_rows(rows)

    def mapInArrow(self, function: Any, _: str) -> Frame:
        found = function([self.batch])
        self.batch = pa.Table.from_batches(found, pa.schema([("found", pa.binary())]))
        return self

    def collect(self) -> list[Row]:
        return [Row(**each) for each in self.batch.to_pylist()]


@pytest.mark.parametrize(
    "rows",
    [
        (of(0, 0, 5),),
        (of(0, 0, 5), of(1, 0, 5), of(2, 0, 5)),
        (of(0, 0, 5), of(1, 0, 4)),
        (of(0, 0, 5), of(1, 0, 5), of(1, 0, 5)),
        (),
    ],
)
def test_batch_with_other_ranges_than_its_plan_is_refused_even_if_the_table_has_all(
    rows: tuple[OffsetRange, ...],
) -> None:
    planned = [of(0, 0, 5), of(1, 0, 5), of(4, 7, 7)]
    right: Any = Frame(of(1, 2, 5), of(0, 0, 5), of(1, 0, 2))
    compare_range_rows(right, planned, CURE)
    assert work_over_rows(right, Work(), planned, CURE, planned[:1]) == [(0, "a file")]
    wrong: Any = Frame(*rows)
    refused = f"a filter or a union, or two queries.*{CURE}"
    with pytest.raises(OptionsError, match=refused):
        compare_range_rows(wrong, planned, CURE)
    with pytest.raises(OptionsError, match=refused):
        work_over_rows(wrong, Work(), planned, CURE, planned[:1])


def test_parts_that_follow_each_other_are_one_range() -> None:
    parts = [of(0, 5, 9), of(1, 0, 4), of(0, 0, 5)]
    assert joined(parts) == [of(0, 0, 9), of(1, 0, 4)]
    assert joined([of(0, 0, 5), of(0, 6, 9)]) == [of(0, 0, 5), of(0, 6, 9)], "a gap"
    assert joined([of(0, 0, 5), of(0, 0, 5)]) == [of(0, 0, 5)] * 2, "a part twice"
