"""Counts of records by fate over all batches, which are logged and reported to the metrics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from spark_groups.group.counts import Count
from spark_groups.spark.control.control_messages import RecordsCounted
from spark_groups.spark.control.listener import report_records
from spark_groups.spark.control.running_query import RunningQuery
from spark_groups.spark.control.served_query import batch_channel, is_served
from spark_groups.spark.processing.counts import FateCount
from spark_groups.spark.processing.strategies import Fate

logger = logging.getLogger(__name__)


class RecordTotals:
    """Record counts by fate since the application started."""

    def __init__(self) -> None:
        self._totals: Counter[Fate] = Counter()
        self._unreported: Counter[str] = Counter()
        self._warns = True

    def by_fate(self) -> Mapping[Fate, int]:
        """Return the counts."""
        return dict(self._totals)

    def add(self, counts: Iterable[FateCount], batch_id: int) -> None:
        """Add the counts of a batch, and log those of records that were not processed at WARN.

        Args:
            counts: The counts.
            batch_id: Spark's number for the batch.
        """
        for each in counts:
            self._totals[each.fate] += each.records
            self._unreported[f"RECORDS_{each.fate.name}"] += each.records
            self._unreported[Count.RECORDS_RETRIED.name] += each.retried
            if each.fate is not Fate.PROCESSED:
                logger.warning("batch %d: %s", batch_id, each)

    def report(self, running: RunningQuery) -> None:
        """Add the counts to the metrics of the query's member.

        Args:
            running: The query.
        """
        if not self._unreported:
            return
        if is_served():
            counts = tuple(sorted(self._unreported.items()))
            is_heard = batch_channel().report(RecordsCounted(plan=running.plan, counts=counts))
        else:
            is_heard = report_records(running.plan, self._unreported)
        self._unreported.clear()
        if not is_heard and running.checked.metrics_port is not None and self._warns:
            self._warns = False
            logger.warning(
                "records are not counted in /metrics without a listener: call"
                " spark_groups.listen(spark) before the query starts"
            )
