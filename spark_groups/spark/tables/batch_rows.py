"""The rows of a batch as a DataFrame, and the records among them that cannot be written.

Spark does not say which record an expression has failed at. So the batch is tried again in halves,
in jobs that write nothing, until single records are left.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, lit

from spark_groups.errors import RecordRefusedError, TableError
from spark_groups.spark.processing.kafka_record import Record, record_rows, records_of
from spark_groups.spark.processing.strategies import AtLast
from spark_groups.spark.source.arrow_map import map_in_arrow
from spark_groups.spark.tables.columns import TableColumns
from spark_groups.spark.tables.halving import Ranges, refused, without
from spark_groups.spark.tables.left_out import LeftOut, LeftOutRecords
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.tasks import CURE, FitsTable, refusals_of_tasks
from spark_groups.types import OffsetRange

logger = logging.getLogger(__name__)

RowsTransform = Callable[[DataFrame], DataFrame]

NAMING_MAX_S: Final = 60.0
"""How long a batch that fails anyway is searched for the record at fault, in seconds."""
_NOT_OF_ROWS: Final = re.compile(
    r"\[SPARK_JOB_CANCELLED\]|Job \d+ cancelled|ExecutorLostFailure|Python worker failed to connect"
    r"|Python worker exited|OutOfMemoryError|\[UNABLE_TO_ACQUIRE_MEMORY|\[FAILED_READ_FILE"
    r"|\[INTERNAL_ERROR|/spark_groups/"
    r"|spark_groups\.errors\.\w+Error"
)
"""What errors say that are about no record: the query is stopped, or a process is lost, or rows
cannot be read or stored."""
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\][^\n]*")
"""The condition of an error of Spark, with its text."""
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n|\n)*(\S.*)")
"""The last line of a traceback of Python."""


@dataclass(frozen=True, slots=True)
class RowsToStage:
    """The rows of a batch, which a transform changes before they are staged.

    Args:
        batch: The rows as Spark has passed them, with the stream's columns.
        planned: The ranges of the batch.
        transform: Changes the rows; None: they are written as they are.
        table: The table.
    """

    batch: DataFrame
    planned: Ranges
    transform: RowsTransform | None
    table: FencedTable

    def staged(
        self, ranges: Ranges, attempt: Attempt, at_last: AtLast | None, search_max_s: float
    ) -> tuple[Sequence[Piece], LeftOut]:
        """Stage the rows of some ranges with Spark jobs.

        Args:
            ranges: The ranges.
            attempt: The attempt.
            at_last: What becomes of records that cannot be written; None: the batch fails.
            search_max_s: How long such records are searched for, in seconds.

        Raises:
            TableError: Rows cannot be staged. It names the record at fault where it was found.
        """
        try:
            with _refusals_of_rows():
                return self.table.write_rows(self._changed(ranges), attempt), LeftOut()
        except RecordRefusedError as error:
            first = error
        logger.info("some of %d offsets cannot be written: %s", sum(map(len, ranges)), first)
        # Else each job of the search would read the batch from Kafka again.
        was_cached = self.batch.is_cached
        if not was_cached:
            self.batch.persist()
        try:
            search = self._refused(ranges, str(first), time.monotonic() + search_max_s)
            if at_last is None:
                raise self._named(search, first) from None
            left_out = LeftOutRecords(at_last)
            found: list[OffsetRange] = []
            for each, reason in search:
                found.append(each)
                left_out.add(self._record(each), reason)
            if not found:
                raise first
            rows = self._changed(without(ranges, found))
            with _refusals_of_rows():
                return self.table.write_rows(rows, attempt), left_out.result()
        finally:
            # One that was cached before serves other tables, too.
            if not was_cached:
                self.batch.unpersist()

    def _refused(
        self, ranges: Ranges, reason: str, ends_at_s: float
    ) -> Iterator[tuple[OffsetRange, str]]:
        """Yield each record that cannot be written, as a range of one offset, and the reason.

        Args:
            ranges: Ranges with such records.
            reason: The first error.
            ends_at_s: When the search gives up, on the monotonic clock.

        Raises:
            TableError: The search takes too long; the message has the ranges that are left.
        """
        columns = self.table.check()

        def fails(part: Ranges) -> str | None:
            if time.monotonic() > ends_at_s:
                shown = ", ".join(
                    f"{each.topic_partition} offsets {each.from_offset} to {each.until_offset - 1}"
                    for each in part[:5]
                )
                raise TableError(
                    f"some records cannot be written: {reason}. The search for them took too"
                    f" long; it was at {shown}. Load the stream with emit=ranges: its tasks find"
                    " such records at once. With on_error, the search may also take longer where"
                    " kafka.max.poll.interval.ms is larger"
                )
            return self._why_refused(part, columns)

        yield from refused(ranges, fails)

    def _named(
        self, search: Iterator[tuple[OffsetRange, str]], first: RecordRefusedError
    ) -> TableError:
        """Return the error of a batch, with the record at fault if it can be found in time."""
        if re.search(r"the record \S+ offset \d", str(first)):
            # The rows have the columns that name their record.
            return first
        try:
            found = next(search, None)
        except TableError as error:
            return error
        if found is None:
            return first
        each, reason = found
        return RecordRefusedError(
            f"the record {each.topic_partition} offset {each.from_offset} cannot be written:"
            f" {reason}. {CURE}"
        )

    def _why_refused(self, ranges: Ranges, columns: TableColumns | None) -> str | None:
        """Return why the rows of ranges cannot be written; None: they can."""
        rows = self._changed(ranges)
        try:
            with _refusals_of_rows():
                if columns is None:
                    rows.write.format("noop").mode("overwrite").save()
                else:
                    map_in_arrow(rows, FitsTable(columns), "none int").collect()
        except RecordRefusedError as error:
            return error.problem or str(error)
        return None

    def _changed(self, ranges: Ranges) -> DataFrame:
        rows = rows_of(self.batch, self.planned, ranges)
        return rows if self.transform is None else self.transform(rows)

    def _record(self, of: OffsetRange) -> Record:
        """Return the record of a range of one offset.

        Raises:
            TableError: It is not there.
        """
        rows = record_rows(rows_of(self.batch, self.planned, (of,))).toArrow()
        for record in records_of(rows.to_batches()):
            return record
        raise TableError(f"the record {of.topic_partition} offset {of.from_offset} is gone")


@contextmanager
def _refusals_of_rows() -> Iterator[None]:
    """Raise an error of a job that is about its rows as a RecordRefusedError.

    Raises:
        RecordRefusedError: An expression or a function of the transform cannot take a row, or the
            table cannot.
    """
    try:
        with refusals_of_tasks():
            yield
    except AnalysisException:
        # The plan is wrong, for any rows.
        raise
    except (PySparkException, Py4JJavaError) as error:
        reason = reason_of_job(str(error))
        if reason is None:
            raise
        raise RecordRefusedError(reason) from error


def reason_of_job(text: str) -> str | None:
    """Return why a job has failed at its rows, in one line; None: it has failed otherwise.

    Args:
        text: The error as Spark shows it.
    """
    if _NOT_OF_ROWS.search(text):
        return None
    if raised := _RAISED.search(text):
        return raised[1]
    found = _CONDITION.search(text)
    return found[0].strip() if found else None


def rows_of(
    rows: DataFrame, planned: Sequence[OffsetRange], wanted: Sequence[OffsetRange]
) -> DataFrame:
    """Return the rows of some ranges of a batch.

    Args:
        rows: The rows of the batch, with the stream's columns.
        planned: The ranges of the batch.
        wanted: Parts of these ranges.

    Raises:
        TableError: A topic was deleted and created again within the batch.
    """
    if set(wanted) == {each for each in planned if len(each)}:
        return rows
    names = {each.topic_partition for each in planned}
    if len(names) < len(planned):
        raise TableError(
            "a topic was deleted and created again within one batch, so rows of the old and the"
            " new one have the same topic name; write this batch with emit=ranges"
        )
    # Spark may run the transform's own conditions before a join, on records that are left out.
    return rows.where(_is_in_one(wanted) if wanted else lit(False))


def _is_in_one(wanted: Sequence[OffsetRange]) -> Column:
    """Return whether a row is from one of some ranges: a shallow tree, however many there are."""
    if len(wanted) == 1:
        return _is_in(wanted[0])
    half = len(wanted) // 2
    return _is_in_one(wanted[:half]) | _is_in_one(wanted[half:])


def _is_in(wanted: OffsetRange) -> Column:
    """Return whether a row is from a range."""
    offset = col("offset")
    return (
        (col("topic") == wanted.topic)
        & (col("partition") == wanted.partition)
        & (offset >= wanted.from_offset)
        & (offset < wanted.until_offset)
    )
