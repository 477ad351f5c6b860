"""`spark_groups.process_records`: calls a function with each record, with a strategy for failures.

The function runs on executors. The strategy recirculates, dead-letters, skips or retries a failed
record; all records that it writes are acknowledged before the batch ends, so before its offsets are
committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.errors import RelinquishedError
from spark_groups.group.member.messages import found_and_failed
from spark_groups.observation.observe import why_unknown
from spark_groups.spark.control.batch_proof import report_done
from spark_groups.spark.control.running_query import RunningQuery, running_query
from spark_groups.spark.processing.arrow_map import map_in_arrow
from spark_groups.spark.processing.budget import budget_of
from spark_groups.spark.processing.counts import COUNT_COLUMNS, FateCount, counts_of
from spark_groups.spark.processing.destinations import destinations
from spark_groups.spark.processing.kafka_record import record_rows
from spark_groups.spark.processing.letters import Addresses
from spark_groups.spark.processing.strategies import Fate, Relinquish, Strategy
from spark_groups.spark.processing.task import Handle, Task
from spark_groups.spark.processing.totals import RecordTotals
from spark_groups.types import TopicPartition
from spark_groups.wire.cluster import Cluster

logger = logging.getLogger(__name__)


class RecordProcessing:
    """A function for `foreachBatch`, with its record counts; `process_records` returns one."""

    def __init__(self, handle: Handle, strategy: Strategy) -> None:
        self._handle = handle
        self._strategy = strategy
        self._totals = RecordTotals()
        self._addresses: dict[str, Addresses] = {}
        self._is_relinquished = False

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
        running = running_query(batch, "process_records")
        checked, rows = running.checked, record_rows(batch)
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
        counted = map_in_arrow(rows, task.run, COUNT_COLUMNS).collect()
        self._count([*counts_of(counted)], batch_id)
        self._totals.report(running)
        report_done(running)

    def run(
        self,
        start: Callable[[], StreamingQuery],
        await_end: Callable[[StreamingQuery], object] = StreamingQuery.awaitTermination,
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
            except StreamingQueryException:
                if not self._is_relinquished:
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


def process_records(handle: Handle, strategy: Strategy) -> RecordProcessing:
    """Return a function for `writeStream.foreachBatch` that calls `handle` with each record.

    Records of one partition arrive in order, one after the other; partitions run in parallel.
    Delivery is at least once: a batch that runs again repeats all of its records.

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
