"""From positions and log ends to the offset ranges of one micro-batch.

The limit is divided as in Spark's Kafka source (KafkaMicroBatchStream.rateLimit): in proportion to
the backlog, rounded up below one record, so that no small partition starves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeVar

from spark_groups.types import TopicIdPartition
from spark_groups.values import dataclass

K = TypeVar("K")
FIRST_BYTES: Final = 1024**3
"""The size of a run's first batch if the query has no limit. A backlog of days in one batch would
commit nothing for hours, and a crash or a revocation would repeat it all."""


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """How much one micro-batch reads.

    Args:
        max_offsets: `maxOffsetsPerTrigger`; None: no limit.
        min_offsets: `minOffsetsPerTrigger`; a smaller backlog waits.
        max_trigger_delay_s: `maxTriggerDelay`: the longest wait.
        max_bytes: `maxBytesPerTrigger`, which the trigger turns into `until_offsets`.
        first_bytes: The size of a run's first batch; None: its batches are as large as the others.
        until_offsets: The end of the batch by partition, instead of max_offsets; others are not
            read.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_s: float = 900.0
    max_bytes: int | None = None
    first_bytes: int | None = None
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
