"""The next micro-batch of a member: which partitions, from where, up to where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from spark_groups.client.parts import Parts
from spark_groups.errors import DataLossError
from spark_groups.offsets.events import DataLost
from spark_groups.offsets.planning import PlanLimit, divide
from spark_groups.types import BatchPlan, OffsetRange, TopicIdPartition

REWOUND_PATIENCE_S: Final = 5.0
"""How long a log end below the position is taken for the stale answer of a new leader."""


class BatchPlanner:
    """Turns positions and log ends into plans.

    Args:
        parts: What the client is made of.
        fail_on_data_loss: `failOnDataLoss`.
    """

    def __init__(self, parts: Parts, *, fail_on_data_loss: bool) -> None:
        self.log_ends: dict[TopicIdPartition, int] = {}
        """Ends of what may be read, as last listed."""
        self._parts = parts
        self._fail_on_data_loss = fail_on_data_loss
        self._recorded_member_id: str | None = None
        self._last_ranges_at: float | None = None
        self._targets: dict[TopicIdPartition, int] | None = None
        self._rewound_since: dict[TopicIdPartition, float] = {}

    def prepare_available_now(self) -> None:
        """Read up to what is there when each partition becomes ours, and no further."""
        self._targets = {}

    def forget(self, key: TopicIdPartition) -> int:
        """Drop what is known of a partition that is not ours any more.

        Returns:
            How many rows of it were left unread.
        """
        owned = self._parts.ledger.owned.get(key)
        self._rewound_since.pop(key, None)
        if self._targets is not None:
            self._targets.pop(key, None)
        return max(0, self.log_ends.pop(key, 0) - owned.position) if owned else 0

    def plan(
        self, limit: PlanLimit, ends: Mapping[TopicIdPartition, int], now: float
    ) -> BatchPlan | None:
        """Return the next batch and record it, or None: nothing to read, nothing to record.

        Args:
            limit: How much to read.
            ends: Log ends, listed just now.
            now: Seconds.

        Raises:
            DataLossError: A log was truncated and `failOnDataLoss` is true.
        """
        member = self._parts.member
        topics = self._parts.topics
        self.log_ends.update(ends)
        positions = self._positions(ends, now)
        topics.note_read({key.topic_id for key in positions})
        clipped = self._clip(positions, ends)
        backlog = sum(max(0, clipped[key] - positions[key]) for key in clipped)
        # The first batch with rows is never held back, as in Spark's own source.
        waited_s = math.inf if self._last_ranges_at is None else now - self._last_ranges_at
        held_back = self._targets is None and limit.holds_back(backlog, waited_s)
        divided = {} if held_back else divide(positions, clipped, limit.max_offsets)
        if not divided and self._recorded_member_id == member.member_id:
            return None
        plan = BatchPlan(
            member.config.group_id,
            member.member_id,
            member.member_epoch,
            tuple(sorted(self._range(key, *divided[key]) for key in divided)),
            tuple(topics.read().items()),
        )
        self._parts.ledger.record(plan)
        self._recorded_member_id = plan.member_id
        if plan.ranges:
            self._last_ranges_at = now
        return plan

    def _positions(
        self, ends: Mapping[TopicIdPartition, int], now: float
    ) -> dict[TopicIdPartition, int]:
        positions = self._parts.ledger.positions(self._parts.member.assigned)
        for key, position in positions.items():
            if ends.get(key, position) >= position:
                self._rewound_since.pop(key, None)
                continue
            since = self._rewound_since.setdefault(key, now)
            if now - since < REWOUND_PATIENCE_S:
                continue
            message = (
                f"{self._parts.topics.name(key.topic_id)}-{key.partition} ends at {ends[key]},"
                f" but this group has read it up to {position}: the log was truncated. Set"
                f" failOnDataLoss=false to go on from {ends[key]}"
            )
            self._parts.events.append(DataLost(now, message))
            if self._fail_on_data_loss:
                self._parts.data_loss = message
                raise DataLossError(message)
            self._parts.ledger.owned[key].position = positions[key] = ends[key]
        return positions

    def _clip(
        self,
        positions: Mapping[TopicIdPartition, int],
        ends: Mapping[TopicIdPartition, int],
    ) -> dict[TopicIdPartition, int]:
        listed = {key: ends[key] for key in positions if key in ends}
        if self._targets is None:
            return listed
        return {key: min(end, self._targets.setdefault(key, end)) for key, end in listed.items()}

    def _range(self, key: TopicIdPartition, from_offset: int, until_offset: int) -> OffsetRange:
        name = self._parts.topics.name(key.topic_id) or ""
        return OffsetRange(key.topic_id, name, key.partition, from_offset, until_offset)
