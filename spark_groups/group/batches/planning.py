"""From positions and log ends to the offset ranges of one micro-batch.

The limit is divided as in Spark's Kafka source (KafkaMicroBatchStream.rateLimit): in proportion to
the backlog, rounded up below one record, so that no small partition starves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from spark_groups.types import BatchPlan, TopicIdPartition
from spark_groups.values import dataclass

K = TypeVar("K")
FIRST_OFFSETS_PER_TASK: Final = 10_000
FIRST_BYTES: Final = 1024**3
"""The size of a run's first batch if the query has no limit. A backlog of days in one batch would
commit nothing for hours, and a crash or a revocation would repeat it all."""
SHORT_TRIGGER_S: Final = 5.0
"""A query with a longer trigger interval has no small batches: each costs an interval."""
BATCH_S: Final = 1.0
"""How long a growing batch takes at least, at the rate of the one before."""


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """How much one micro-batch reads.

    Args:
        max_offsets: `maxOffsetsPerTrigger`; None: no limit.
        min_offsets: `minOffsetsPerTrigger`; a smaller backlog waits.
        max_trigger_delay_s: `maxTriggerDelay`: the longest wait.
        max_bytes: `maxBytesPerTrigger`, which the driver turns into `until_offsets`.
        until_offsets: The end of the batch by partition, instead of max_offsets; others are not
            read.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_s: float = 900.0
    max_bytes: int | None = None
    until_offsets: Mapping[TopicIdPartition, int] | None = None

    @property
    def may_hold_back(self) -> bool:
        """Whether a small backlog waits: then the first batches are as large as the query's own."""
        return self.min_offsets is not None

    def holds_back(self, backlog: int, waited_s: float) -> bool:
        """Return whether a backlog must wait for more; `waited_s` counts from the last batch."""
        return (
            self.min_offsets is not None
            and backlog < self.min_offsets
            and waited_s < self.max_trigger_delay_s
        )


def divide(
    positions: Mapping[K, int], ends: Mapping[K, int], max_offsets: int | None
) -> dict[K, tuple[int, int]]:
    """Return the ranges [from, until) to read, for the partitions with a backlog.

    Args:
        positions: Next offset to read, by partition.
        ends: Log end by partition; one without an end is left out.
        max_offsets: How many offsets in all, None for no limit.
    """
    backlog = [
        (key, position, end - position)
        for key, position in positions.items()
        if (end := ends.get(key, position)) > position
    ]
    total = sum(size for _, _, size in backlog)
    ranges = {}
    for key, position, size in backlog:
        share = float(size)
        if max_offsets is not None and total > max_offsets:
            share = max_offsets * (size / total)
        count = min(size, math.ceil(share) if share < 1 else math.floor(share))
        ranges[key] = (position, position + count)
    return ranges


class FirstBatches:
    """Keeps the first batches of a run small, so that its first offsets are committed early.

    Until then, the partitions that the run has taken over lag behind, and a crash repeats what it
    has read. The limit grows with the measured rate until a batch has the whole backlog.

    Args:
        tasks: The number of tasks that read at once.
    """

    def __init__(self, tasks: int) -> None:
        self._max_offsets: int | None = tasks * FIRST_OFFSETS_PER_TASK
        self._running: tuple[int, float] | None = None

    def limited(self, limit: PlanLimit, trigger_interval_s: float | None) -> PlanLimit:
        """Return the limit of the next batch: the query's own once the first batches are over.

        Args:
            trigger_interval_s: Seconds between batch starts, 0 if not fixed; None: unknown.
        """
        own = self._max_offsets
        if own is None or trigger_interval_s is None or trigger_interval_s >= SHORT_TRIGGER_S:
            return limit
        if limit.may_hold_back or own >= (limit.max_offsets or math.inf):
            return limit
        return replace(limit, max_offsets=own)

    def planned(self, plan: BatchPlan, limit: PlanLimit, now: float) -> None:
        """Note a batch; one that is not limited to fewer offsets than there are is the last."""
        if not plan.ranges or self._max_offsets is None:
            return
        offsets = sum(map(len, plan.ranges))
        # The share of each partition is rounded.
        has_whole_backlog = offsets + len(plan.ranges) <= self._max_offsets
        if limit.max_offsets != self._max_offsets or has_whole_backlog:
            self._max_offsets = None
        self._running = (offsets, now)

    def finished(self, trigger_interval_s: float | None, now: float) -> None:
        """Raise the limit after the noted batch; idempotent."""
        if self._running is None or self._max_offsets is None:
            return
        (offsets, began_at), self._running = self._running, None
        rate = offsets / max(now - began_at, 1e-3)
        wanted = rate * max(BATCH_S, trigger_interval_s or 0.0)
        self._max_offsets = max(2 * self._max_offsets, math.floor(wanted))
