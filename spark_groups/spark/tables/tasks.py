"""Python tasks that stage the rows of a batch: those of ranges, and those of a DataFrame.

Executors import this module, so it imports little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from spark_groups.errors import RecordRefusedError, TableError
from spark_groups.spark.control.jvm_connection import acknowledge_tasks_at_once
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.processing.counts import FateCounts
from spark_groups.spark.processing.kafka_record import records_of
from spark_groups.spark.processing.letters import error_text
from spark_groups.spark.processing.strategies import AtLast
from spark_groups.spark.reading.decoded import DecodedRows, Refuse
from spark_groups.spark.reading.reader import read_decoded
from spark_groups.spark.source.arrow_map import map_in_arrow
from spark_groups.spark.tables.columns import TableColumns, TaskConversion
from spark_groups.spark.tables.halving import Refusal, is_of_all_records, taken
from spark_groups.spark.tables.left_out import (
    LeftOut,
    LeftOutRecords,
    count_undecodable,
    reason_of,
)
from spark_groups.spark.tables.table import Piece, TaskWriter, no_rows
from spark_groups.types import OffsetRange, TopicId

if TYPE_CHECKING:
    # Tasks import this module, and need no DataFrame.
    from pyspark.sql import DataFrame

ArrowTransform = Callable[[pa.RecordBatch], pa.RecordBatch]
CURE: Final = "Change the transform, or give write_table an on_error, which leaves such records out"
_SHOWN_MAX: Final = 5
_REFUSED: Final = re.compile(
    rf"^{TableError.__module__}\.(TableError|RecordRefusedError): (.+)$", re.MULTILINE
)
_NOT_IN_ARROW: Final = {
    "VariantType": "turn it into text with to_json",
    "GeometryType": "turn it into bytes with st_asbinary",
    "GeographyType": "turn it into bytes with st_asbinary",
    "CalendarIntervalType": "cast it to STRING",
    "YearMonthIntervalType": "cast it to STRING or INT",
}
"""The types of Spark that Arrow does not have, or has as a struct of their parts."""
_PIECES: Final = "name string, rows bigint, size_bytes bigint, details string"
"""The fields of a `Piece`."""


@dataclass(frozen=True, slots=True)
class RangesToTable:
    """Reads ranges and stages their rows; pickled to executors.

    Args:
        settings: Settings of the consumer; with secrets, which the repr omits.
        transform: Changes the rows; None: they are written as they are.
        writer: Stages them.
        at_last: What becomes of records that cannot be written; None: the batch fails.
    """

    settings: RangeSettings
    transform: ArrowTransform | None
    writer: TaskWriter
    at_last: AtLast | None = None

    def __call__(self, tasks: Iterable[tuple[OffsetRange, ...]]) -> Iterator[Piece | LeftOut]:
        """Stage the rows of one partition of the RDD, which holds one task.

        Args:
            tasks: The ranges of each task.
        """
        acknowledge_tasks_at_once()
        for ranges in tasks:
            counts = FateCounts()
            if self.at_last is None:
                yield from self._all(ranges, counts)
            else:
                left_out = LeftOutRecords(self.at_last)
                rows = self._good(ranges, counts, left_out)
                yield from self.writer.write(rows, _task_name())
                yield left_out.result()
            yield LeftOut(counts.counts)

    def _read(
        self, ranges: Iterable[OffsetRange], counts: FateCounts, refuse: Refuse | None = None
    ) -> Iterator[DecodedRows]:
        for each in read_decoded(self.settings, ranges, refuse):
            count_undecodable(each, counts)
            yield each

    def _all(self, ranges: Iterable[OffsetRange], counts: FateCounts) -> Iterator[Piece]:
        """Stage the rows of all records; `counts` gets those that were not decoded.

        Raises:
            TableError: A record cannot be written, which it names if it can.
        """
        last: list[DecodedRows] = []
        try:
            yield from self.writer.write(self._rows(ranges, counts, last), _task_name())
        except RecordRefusedError as error:
            raise self._named(last, error) from None
        except TableError as error:
            raise TableError(f"{error}{_read_last(last)}") from None

    def _rows(
        self, ranges: Iterable[OffsetRange], counts: FateCounts, last: list[DecodedRows]
    ) -> Iterator[pa.RecordBatch]:
        """Yield changed rows.

        Args:
            ranges: The ranges to read.
            counts: Gets the records that were not decoded.
            last: Gets the records that the last rows are made of.

        Raises:
            RecordRefusedError: The transform cannot take a record.
        """
        for each in self._read(ranges, counts):
            last[:] = [each]
            try:
                rows = changed(self.transform, each.rows)
            except Exception as error:
                if is_of_all_records(error):
                    raise
                raise RecordRefusedError(reason_of(error)) from None
            yield rows

    def _good(
        self, ranges: Iterable[OffsetRange], counts: FateCounts, left_out: LeftOutRecords
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows of records that can be written; `left_out` gets the others."""

        def leave_out(part: pa.RecordBatch, reason: str) -> None:
            (record,) = records_of([part])
            left_out.add(record, reason)

        for each in self._tried(self._read(ranges, counts, leave_out)):
            if isinstance(each, Refusal):
                leave_out(each.record.records, _problem(each.error) or error_text(each.error))
            else:
                yield each

    def _tried(
        self, batches: Iterable[DecodedRows]
    ) -> Iterator[pa.RecordBatch | Refusal[DecodedRows]]:
        """Yield changed rows as the table takes them, and the records that cannot be written."""
        conversion = TaskConversion(self.writer.columns)
        for each in batches:
            yield from taken(each, lambda part: conversion.of(changed(self.transform, part.rows)))

    def _named(self, last: Sequence[DecodedRows], error: RecordRefusedError) -> TableError:
        """Return an error that names the first record of the last rows that cannot be written."""
        refusals = (each for each in self._tried(last) if isinstance(each, Refusal))
        if (found := next(refusals, None)) is None:
            return RecordRefusedError(f"{error}{_read_last(last)}")
        (record,) = records_of([found.record.records])
        place = f"the record {record.topic}-{record.partition} offset {record.offset}"
        problem = f"the transform cannot take {place}: {reason_of(found.error)}"
        if of_table := _problem(found.error):
            problem = f"{place} does not fit {self.writer.columns.table}: {of_table}"
        return RecordRefusedError(f"{problem}. {CURE}")


@dataclass(frozen=True, slots=True)
class RangesToTables:
    """Reads ranges and stages the rows of several tables in one job; pickled to executors.

    Args:
        works: Reads and stages the ranges of each table.
        table_of: The index of the table that gets a topic.
    """

    works: Sequence[RangesToTable]
    table_of: Mapping[TopicId, int]

    def __call__(
        self, tasks: Iterable[tuple[OffsetRange, ...]]
    ) -> Iterator[tuple[int, Piece | LeftOut]]:
        """Stage the rows of one partition of the RDD, table by table, with the index of each.

        Args:
            tasks: The ranges of each task.
        """
        for ranges in tasks:
            for index in sorted({self.table_of[each.topic_id] for each in ranges}):
                of_table = tuple(each for each in ranges if self.table_of[each.topic_id] == index)
                for found in self.works[index]([of_table]):
                    yield index, found


def _problem(error: Exception) -> str:
    """Return why a table does not take a record; empty: another error."""
    return error.problem if isinstance(error, RecordRefusedError) else ""


def changed(transform: ArrowTransform | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return what a transform makes of records.

    Args:
        transform: The transform; None: there is none.
        batch: The records.

    Raises:
        TableError: It returns something else than a record batch.
    """
    rows = batch if transform is None else transform(batch)
    if not isinstance(rows, pa.RecordBatch):
        raise TableError(
            "the transform of a stream with emit=ranges takes a pyarrow.RecordBatch and returns"
            f" one, not {type(rows).__name__}"
        )
    return rows


@dataclass(frozen=True, slots=True)
class FitsTable:
    """Compares the rows of a DataFrame's partition with a table, for `mapInArrow`; stages nothing.

    Args:
        columns: The columns of the table.
    """

    columns: TableColumns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield nothing.

        Args:
            batches: The rows.
        """
        for _ in self.columns.fitted(batches):
            pass
        yield from ()


@dataclass(frozen=True, slots=True)
class RowsToPieces:
    """Stages the rows of a DataFrame's partition, for `mapInArrow`; pickled to executors.

    Args:
        writer: Stages them.
    """

    writer: TaskWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each piece.

        Args:
            batches: The rows.
        """
        for each in self.writer.write(batches, _task_name()):
            yield pa.RecordBatch.from_pylist([asdict(each)])


def stage_rows(rows: DataFrame, writer: TaskWriter) -> list[Piece]:
    """Stage the rows of a DataFrame with a Spark job.

    Args:
        rows: The rows.
        writer: Stages those of each task.

    Raises:
        TableError: The columns do not fit the table; no job runs.
    """
    empty = no_rows(writer.columns.check(arrow_schema(rows)))
    with refusals_of_tasks():
        staged = map_in_arrow(rows, RowsToPieces(writer), _PIECES).collect()
    return [Piece(*each) for each in staged] or [empty]


@contextmanager
def refusals_of_tasks() -> Iterator[None]:
    """Raise the error with which a task has refused rows, instead of Spark's around it.

    Raises:
        TableError: A task has raised it.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if refused := _REFUSED.search(str(error)):
            kind = RecordRefusedError if refused[1] == "RecordRefusedError" else TableError
            raise kind(refused[2]) from None
        raise


def _read_last(last: Sequence[DecodedRows]) -> str:
    """Return which records the last rows are made of: a transform may drop these columns."""
    if not last or not last[0].num_rows:
        return ""
    records = pa.Table.from_batches([each.records for each in last])
    by_partition = records.group_by(["topic", "partition"])
    found = by_partition.aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    shown = [
        f"{each['topic']}-{each['partition']} offsets {each['offset_min']} to {each['offset_max']}"
        for each in found[:_SHOWN_MAX]
    ]
    return f". The rows were made of {', '.join(shown)}"


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """Return the columns with which tasks get the rows of a DataFrame.

    Raises:
        TableError: Arrow has no such type.
    """
    problems = [p for each in rows.schema for p in _not_in_arrow(each.dataType, each.name)]
    if problems:
        raise TableError(
            f"the batch does not fit any table: {'; '.join(problems)}. Change the transform"
        )
    return rows.limit(0).toArrow().schema


def _not_in_arrow(column: DataType, path: str) -> Iterator[str]:
    """Yield why Arrow, as Spark fills it, cannot have the values of a type.

    Args:
        column: The type.
        path: The column, with the fields that lead to a nested type.
    """
    # By name: Spark 4.0 lacks some of them.
    if cure := _NOT_IN_ARROW.get(type(column).__name__):
        yield f"{path} is {column.simpleString().upper()}, which no table takes: {cure}"
    elif isinstance(column, StructType):
        for each in column:
            yield from _not_in_arrow(each.dataType, f"{path}.{each.name}")
    elif isinstance(column, ArrayType):
        yield from _inside(column.elementType, f"{path}.element", column.containsNull)
    elif isinstance(column, MapType):
        yield from _inside(column.keyType, f"{path}.key", has_null=False)
        yield from _inside(column.valueType, f"{path}.value", column.valueContainsNull)


def _inside(column: DataType, path: str, has_null: bool) -> Iterator[str]:
    if isinstance(column, NullType) and not has_null:
        yield f"{path} has no type: cast it"
    yield from _not_in_arrow(column, path)


def _task_name() -> str:
    """Return a name that no other task of the batch has, nor another try of this one."""
    context = TaskContext.get()
    assert context is not None
    return f"{context.partitionId()}-{context.taskAttemptId()}"
