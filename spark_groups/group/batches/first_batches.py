"""Keeps the first batches of a run small, so that its first offsets are committed early.

Until then, the partitions that the run has taken over lag behind, and a crash repeats what it has
read. There are two limits; where both apply, the smaller batch counts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from spark_groups.group.batches.batch_bytes import BytesSearch
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.events import BatchLimited, FirstBatchLimited
from spark_groups.group.member.events import Event
from spark_groups.types import BatchPlan, TopicIdPartition

FIRST_OFFSETS_PER_TASK: Final = 10_000
SHORT_TRIGGER_S: Final = 5.0
"""A query with a longer trigger interval has no small batches: each costs an interval."""
BATCH_S: Final = 1.0
"""How long a growing batch takes at least, at the rate of the one before."""
_OWN_LIMIT: Final = "maxBytesPerTrigger limits all batches"
_FIRST_LIMIT: Final = (
    "without a limit, the first batches of a run are kept small, and each may be twice as large as"
    " the one before. maxBytesPerTrigger or maxOffsetsPerTrigger limits all batches;"
    " maxBytesPerTrigger=none reads the whole backlog at once"
)


class FirstOffsets:
    """The limit in offsets, which needs a known, short trigger interval.

    It grows with the measured rate until a batch has the whole backlog.
    """

    def __init__(self) -> None:
        self._max_offsets: float | None = None
        """None before the first batch; infinite: the first batches are over."""
        self._running: tuple[int, float] | None = None
        """The offsets of the last batch, and when it was planned; None once it is finished."""

    def limited(self, limit: PlanLimit, tasks: int, trigger_interval_s: float | None) -> PlanLimit:
        """Return the limit of the next batch: the query's own once the first batches are over.

        Args:
            tasks: The number of tasks that read at once.
            trigger_interval_s: Seconds between batch starts, 0 if not fixed; None: unknown.
        """
        if self._max_offsets is None:
            self._max_offsets = tasks * FIRST_OFFSETS_PER_TASK
        first = self._max_offsets
        if trigger_interval_s is None or trigger_interval_s >= SHORT_TRIGGER_S:
            return limit
        if limit.may_hold_back or first >= (limit.max_offsets or math.inf):
            return limit
        return replace(limit, max_offsets=int(first))

    def planned(self, plan: BatchPlan, limit: PlanLimit, now: float) -> None:
        """Note a batch; the first one that reads the whole backlog ends the limit."""
        if not plan.ranges or self._max_offsets is None:
            return
        offsets = sum(map(len, plan.ranges))
        # The share of each partition is rounded.
        has_whole_backlog = offsets + len(plan.ranges) <= self._max_offsets
        if limit.max_offsets != self._max_offsets or has_whole_backlog:
            self._max_offsets = math.inf
        self._running = (offsets, now)

    def finished(self, trigger_interval_s: float | None, now: float) -> None:
        """Raise the limit after the noted batch; idempotent."""
        if self._running is None or self._max_offsets is None or self._max_offsets == math.inf:
            return
        (offsets, began_at), self._running = self._running, None
        rate = offsets / max(now - began_at, 1e-3)
        wanted = rate * max(BATCH_S, trigger_interval_s or 0.0)
        self._max_offsets = max(2 * self._max_offsets, math.floor(wanted))


class FirstBatches:
    """Both limits of the first batches of a run."""

    def __init__(self) -> None:
        self._own = self._limit = PlanLimit()
        """The query's limit, and that of the next batch."""
        self._in_offsets = FirstOffsets()
        self._is_in_offsets = False
        """Whether the next batch may have a limit in offsets."""
        self._bytes_factor: int | None = 1
        """How many times as large as the first one a batch may be; None: there is no limit."""
        self._has_said_own = False
        self._finished_at: float | None = None

    def limited(self, own: PlanLimit, tasks: int, trigger_interval_s: float | None) -> PlanLimit:
        """Return the limit of the next batch, which is larger once the last one is finished.

        Args:
            own: The query's own.
            tasks: The number of tasks that read at once; 0: there is no limit in offsets.
            trigger_interval_s: Seconds between batch starts, 0 if not fixed; None: unknown.
        """
        if self._finished_at is not None:
            self._in_offsets.finished(trigger_interval_s, self._finished_at)
            self._finished_at = None
        self._own = limit = own
        if own.first_bytes is not None and self._bytes_factor is not None:
            limit = replace(own, max_bytes=own.first_bytes * self._bytes_factor)
        self._is_in_offsets = tasks > 0
        if self._is_in_offsets:
            limit = self._in_offsets.limited(limit, tasks, trigger_interval_s)
        self._limit = limit
        return limit

    def planned(
        self, plan: BatchPlan, sizes: BytesSearch[TopicIdPartition] | None, now: float
    ) -> list[Event]:
        """Note a batch; return what the log says about its limits.

        Args:
            sizes: How the batch was limited in bytes; None: it was not.
        """
        # A late report of the batch before must not count as one of this batch.
        self._finished_at = None
        if not plan.ranges:
            return []
        said: list[Event] = []
        if sizes is not None:
            said = self._sized(sum(map(len, plan.ranges)), sizes, now)
        if self._is_in_offsets:
            max_offsets = self._limit.max_offsets
            if max_offsets is not None and max_offsets != self._own.max_offsets:
                said.append(FirstBatchLimited(now, max_offsets))
            self._in_offsets.planned(plan, self._limit, now)
        return said

    def finished(self, now: float) -> None:
        """Note that the last batch is proven finished."""
        if self._finished_at is None:
            self._finished_at = now

    def _sized(self, offsets: int, sizes: BytesSearch[TopicIdPartition], now: float) -> list[Event]:
        factor = self._bytes_factor if self._own.first_bytes is not None else None
        if factor is not None:
            if sizes.is_limiting:
                self._bytes_factor = 2 * factor
            elif offsets >= sizes.unread_offsets:
                self._bytes_factor = None
        if not sizes.is_limiting or (self._has_said_own and factor is None):
            return []
        self._has_said_own = True
        reason = _OWN_LIMIT if factor is None else _FIRST_LIMIT
        size_mib = sizes.size_bytes / 1024**2
        return [BatchLimited(now, offsets, sizes.unread_offsets, size_mib, reason)]
