"""`spark_groups.process_records`: calls a function with each record, with a strategy for failures.

The function runs on executors. The strategy recirculates, dead-letters, skips or retries a failed
record; all records that it writes are acknowledged before the batch ends, so before its offsets are
committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.errors import OptionsError, RelinquishedError
from spark_groups.group.member.messages import found_and_failed
from spark_groups.observation.observe import why_unknown
from spark_groups.spark.control.batch_proof import report_done
from spark_groups.spark.control.jvm_connection import acknowledge_tasks_at_once
from spark_groups.spark.control.running_query import RunningQuery, running_query
from spark_groups.spark.control.served_query import is_served, served_query
from spark_groups.spark.processing.budget import budget_of
from spark_groups.spark.processing.counts import COUNT_COLUMNS, FateCount, counts_of
from spark_groups.spark.processing.destinations import destinations
from spark_groups.spark.processing.kafka_record import record_rows
from spark_groups.spark.processing.letters import Addresses
from spark_groups.spark.processing.strategies import Fate, Relinquish, Strategy
from spark_groups.spark.processing.task import Handle, Task
from spark_groups.spark.processing.totals import RecordTotals
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.spark.source.arrow_map import map_in_arrow
from spark_groups.spark.source.range_rows import work_over_rows
from spark_groups.types import OffsetRange, TopicPartition
from spark_groups.wire.cluster import Cluster

logger = logging.getLogger(__name__)

_CURE: Final = "the function may leave records out"


class RecordProcessing:
    """A function for `foreachBatch`, with its record counts; `process_records` returns one."""

    def __init__(self, handle: Handle, strategy: Strategy) -> None:
        self._handle = handle
        self._strategy = strategy
        self._totals = RecordTotals()
        self._addresses: dict[str, Addresses] = {}
        self._is_relinquished = False

    def __reduce__(self) -> tuple[type[RecordProcessing], tuple[Any, ...]]:
        return RecordProcessing, (self._handle, self._strategy)

    @property
    def totals(self) -> Mapping[Fate, int]:
        """Record counts by fate since the application started."""
        return self._totals.by_fate()

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process a batch.

        Raises:
            OptionsError: The stream's options do not fit the strategy, or its rows have no bytes.
            RelinquishedError: The batch missed its deadline.
        """
        began_at_s = time.time()
        if is_served():
            running = served_query(batch, "process_records", _CURE)
            _check_bytes(running)
        else:
            running = running_query(batch, "process_records")
            batch = record_rows(batch)
        checked = running.checked
        # The last run may have relinquished records: its member has left.
        self._totals.report(running)
        budget = budget_of(self._strategy, checked)
        with running.cluster() as cluster:
            self._learn_addresses(cluster, running)
            is_relinquishing = isinstance(self._strategy, Relinquish)
            committed = _committed_offsets(cluster, running) if is_relinquishing else {}
        task = Task(
            handle=self._handle,
            strategy=self._strategy,
            group_id=checked.group_id,
            addresses=dict(self._addresses),
            record_s=budget.record_s,
            batch_ends_at_s=inf if budget.batch_s == inf else began_at_s + budget.batch_s,
            connection=running.range_settings(),
            committed_offsets=committed,
        )
        if is_served():
            counted = work_over_rows(batch, RangesToCounts(task), running.ranges, _CURE)
        else:
            counted = map_in_arrow(batch, task.run, COUNT_COLUMNS).collect()
        self._count([*counts_of(counted)], batch_id)
        self._totals.report(running)
        report_done(running)

    def run(
        self,
        start: Callable[[], StreamingQuery],
        await_end: Callable[[StreamingQuery], object] = lambda query: query.awaitTermination(),
    ) -> None:
        """Run a query until it ends; restart it each time it relinquishes its partitions.

        Args:
            start: Starts a query that writes with this function, from the same checkpoint.
            await_end: Waits for the query to end; pass `spark_groups.await_end` for a clean end on
                SIGTERM and Ctrl-C.

        Raises:
            StreamingQueryException: The query failed for another reason.
        """
        while True:
            query = start()
            try:
                await_end(query)
            except StreamingQueryException as error:
                # Through Spark Connect, the batch has run in another process.
                if not (self._is_relinquished or f".{RelinquishedError.__name__}: " in str(error)):
                    raise
                logger.warning("the query left its group and is joining again")
                self._is_relinquished = False
            else:
                return

    def _learn_addresses(self, cluster: Cluster, running: RunningQuery) -> None:
        """Add the destinations of the batch's topics."""
        topics = {offset_range.topic for offset_range in running.ranges} - set(self._addresses)
        self._addresses |= destinations(cluster, self._strategy, topics, running.checked)

    def _count(self, counts: Sequence[FateCount], batch_id: int) -> None:
        """Add a batch to the totals, and log failed records.

        Raises:
            RelinquishedError: Some records were relinquished.
        """
        self._totals.add(counts, batch_id)
        if relinquished := [each for each in counts if each.fate is Fate.RELINQUISHED]:
            self._is_relinquished = True
            raise RelinquishedError(
                f"batch {batch_id} missed its deadline, so the member releases its partitions:"
                f" {relinquished[0]}; restart the query to join again"
            )


@dataclass(frozen=True, slots=True)
class RangesToCounts:
    """Reads ranges and processes their records; pickled to executors.

    Args:
        task: Processes them.
    """

    task: Task

    def __call__(self, tasks: Iterable[tuple[OffsetRange, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the counts of records by fate, with the values of COUNT_COLUMNS.

        Args:
            tasks: The ranges of each task.
        """
        acknowledge_tasks_at_once()
        for ranges in tasks:
            for counts in self.task.run(read_ranges(self.task.connection, ranges)):
                yield from (tuple(each.values()) for each in counts.to_pylist())


def _check_bytes(running: RunningQuery) -> None:
    if running.checked.range_settings().formats is not None:
        raise OptionsError(
            "records have bytes: leave keyFormat and valueFormat out of the stream's options, and"
            " decode in the function; or write the columns with write_table"
        )


def process_records(handle: Handle, strategy: Strategy) -> RecordProcessing:
    """Return a function for `writeStream.foreachBatch` that calls `handle` with each record.

    Records of one partition arrive in order, one after the other; partitions run in parallel.
    Delivery is at least once: a batch that runs again repeats all of its records. Through Spark
    Connect, the stream must be loaded with `emit` set to `ranges` and written unchanged, `totals`
    counts on the server's host, and offsets are committed as soon as a batch is processed.

    Args:
        handle: Called on executors with each record, which counts as processed when the call
            returns. May raise `UnprocessableError` for a record that no further attempt can
            process.
        strategy: Applies to a record when `handle` raises or misses the deadline.
    """
    return RecordProcessing(handle, strategy)


def _committed_offsets(cluster: Cluster, running: RunningQuery) -> dict[TopicPartition, int]:
    """Return offsets that other members committed meanwhile: the whole batch runs again."""
    group_id = running.checked.group_id
    names = {offset_range.key: offset_range.topic_partition for offset_range in running.ranges}
    found, failed = found_and_failed(cluster.fetch_all_offsets(group_id))
    unknown = {names[key]: code for key, code in failed.items() if key in names}
    if unknown:
        logger.warning(
            "%s; records there that another member has processed meanwhile are processed again",
            why_unknown(f"committed offset of group {group_id!r}", unknown),
        )
    return {name: found[key].committed_offset for key, name in names.items() if key in found}
