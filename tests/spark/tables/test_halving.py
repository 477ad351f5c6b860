"""The records that a function cannot take are found by halves, each of them and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.errors import RecordRefusedError, TableError
from spark_groups.spark.tables.batch_rows import RowsToStage, reason_of_job
from spark_groups.spark.tables.halving import (
    Refusal,
    halves,
    refused,
    taken,
    without,
)
from spark_groups.spark.tables.own import own_table
from spark_groups.spark.tables.table import Attempt
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import reads, rows

Take = Callable[[pa.RecordBatch], pa.RecordBatch]
RECORDS = 40


def divided(batch: pa.RecordBatch, take: Take) -> tuple[list[int], list[int]]:
    """Return the offsets of the records that a function cannot take, and of the others."""
    out: list[int] = []
    kept: list[int] = []
    for each in taken(batch, take):
        if isinstance(each, Refusal):
            out += each.record["offset"].to_pylist()
        else:
            kept += each["offset"].to_pylist()
    return out, kept


def taking(bad: set[int], calls: list[int]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def take(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        if bad & set(batch["offset"].to_pylist()):
            raise ValueError("poison")
        return batch

    return take


@given(st.sets(st.integers(0, RECORDS - 1)))
def test_each_record_that_fails_is_refused_and_the_others_stay_in_order(bad: set[int]) -> None:
    calls: list[int] = []
    out, kept = divided(rows(reads(0, RECORDS)), taking(bad, calls))
    assert out == sorted(bad)
    assert kept == [offset for offset in range(RECORDS) if offset not in bad]
    assert len(calls) <= 2 * RECORDS - 1


def test_records_that_can_all_be_taken_are_taken_at_once() -> None:
    calls: list[int] = []
    batch = rows(reads(0, RECORDS))
    assert [*taken(batch, taking(set(), calls))] == [batch]
    assert calls == [RECORDS]


@pytest.mark.parametrize("error", [MemoryError(), TableError("the columns do not fit")])
def test_error_that_is_about_no_record_refuses_none(error: Exception) -> None:
    def take(_: pa.RecordBatch) -> pa.RecordBatch:
        raise error

    with pytest.raises(type(error)):
        [*taken(rows(reads(0, RECORDS)), take)]


def test_value_that_does_not_fit_is_about_a_record() -> None:
    def take(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["offset"][0].as_py() == 0:
            raise RecordRefusedError("it does not fit")
        return batch

    assert divided(rows(reads(0, 2)), take) == ([0], [1])


RANGES = (reads(10, 30), reads(0, 0, partition=1), reads(5, 25, partition=2))


def offsets_of(ranges: tuple[OffsetRange, ...]) -> set[tuple[int, int]]:
    return {
        (each.partition, offset)
        for each in ranges
        for offset in range(each.from_offset, each.until_offset)
    }


@given(st.sets(st.sampled_from(sorted(offsets_of(RANGES)))))
def test_each_offset_that_fails_is_found_in_ranges(bad: set[tuple[int, int]]) -> None:
    calls: list[int] = []

    def fails(ranges: tuple[OffsetRange, ...]) -> str | None:
        calls.append(sum(map(len, ranges)))
        return "poison" if bad & offsets_of(ranges) else None

    found = [each for each, _ in refused(RANGES, fails)]
    assert {(each.partition, each.from_offset) for each in found} == bad
    assert {len(each) for each in found} <= {1}
    assert len(calls) <= 3 * sum(map(len, RANGES))
    assert offsets_of(without(RANGES, found)) == offsets_of(RANGES) - bad
    if len(bad) == 1:
        assert len(calls) <= 2 * 6 + 1


def test_offset_that_fails_once_is_not_refused() -> None:
    failures = iter(["poison"])
    assert [*refused(RANGES, lambda _: next(failures, None))] == []


@given(st.integers(2, 30), st.integers(0, 30))
def test_halves_have_every_offset_once(first: int, second: int) -> None:
    ranges = (reads(3, 3 + first), reads(7, 7 + second, partition=1))
    left, right = halves(ranges)
    assert sum(map(len, left)) == (first + second) // 2
    assert sum(map(len, left)) + sum(map(len, right)) == first + second
    assert offsets_of(left) | offsets_of(right) == offsets_of(ranges)


CAST = (
    "[CAST_INVALID_INPUT] The value 'cancelled' of the type \"STRING\" cannot be cast to"
    ' "INT". SQLSTATE: 22018'
)
PYTHON = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "flights.py", line 12, in parse
    raise Poison("no flight")
flights.Poison: no flight

\tat org.apache.spark.api.python
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"Job aborted: org.apache.spark.SparkNumberFormatException: {CAST}\n at x", CAST),
        (PYTHON, "flights.Poison: no flight"),
        ("[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group", None),
        ("org.apache.spark.SparkException: Python worker failed to connect back.", None),
        ("Job aborted: ExecutorLostFailure (executor 1 exited) [X_Y] z", None),
        (PYTHON.replace("flights.py", "/lib/spark_groups/spark/reading/reader.py"), None),
        ("java.io.IOException: No space left on device", None),
    ],
)
def test_only_errors_of_expressions_and_functions_are_about_rows(
    text: str, reason: str | None
) -> None:
    assert reason_of_job(text) == reason


class Frame:
    """Whether a DataFrame is cached, as DataFrames count it."""

    def __init__(self, *, is_cached: bool) -> None:
        self.is_cached = is_cached
        self.was_cached = is_cached

    def persist(self) -> None:
        self.is_cached = self.was_cached = True

    def unpersist(self) -> None:
        self.is_cached = False


@pytest.mark.parametrize("is_cached", [False, True])
def test_search_caches_a_batch_and_leaves_one_that_serves_other_tables_in_the_cache(
    is_cached: bool,
) -> None:
    def fails(_rows: Any) -> Any:
        raise RecordRefusedError("poison")

    frame: Any = Frame(is_cached=is_cached)
    table: Any = own_table("the shop", lambda _group: {}, lambda *_: True)
    with pytest.raises(TableError, match="took too long"):
        RowsToStage(frame, (reads(0, 9),), fails, table).staged(
            (reads(0, 9),), Attempt("flights", 0, "a"), None, -1.0
        )
    assert frame.was_cached
    assert frame.is_cached == is_cached
