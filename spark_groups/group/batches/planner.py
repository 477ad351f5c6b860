"""Plans the next micro-batch of a member."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_groups.errors import DataLossError
from spark_groups.group.batches.plan_limit import PlanLimit, divide
from spark_groups.group.batches.warm_up import WarmUp
from spark_groups.group.ledger.positions import Positions
from spark_groups.types import BatchPlan, OffsetRange, TopicIdPartition, TopicPartition

Ranges = dict[TopicIdPartition, tuple[int, int]]
"""The first unread offset and the end, by partition."""


@dataclass(slots=True)
class BatchPlanner:
    """Turns positions and log ends into plans."""

    positions: Positions
    warm_up: WarmUp
    log_ends: dict[TopicIdPartition, int] = field(default_factory=dict, init=False)
    """Log ends, as last listed."""
    _recorded_member_id: str | None = field(default=None, init=False)
    _last_ranges_at: float | None = field(default=None, init=False)
    _last: BatchPlan | None = field(default=None, init=False)
    _targets: dict[TopicIdPartition, int] | None = field(default=None, init=False)

    def prepare_available_now(self) -> None:
        """Read each partition up to its end at the time of its assignment, and no further."""
        self._targets = {}

    def forget(self, key: TopicIdPartition) -> int:
        """Drop a partition that is no longer owned; return its rows that are known to be unread."""
        owned = self.positions.ledger.owned.get(key)
        self.positions.validator.forget(key)
        if self._targets is not None:
            self._targets.pop(key, None)
        return max(0, self.log_ends.pop(key, 0) - owned.position) if owned else 0

    def plan(
        self,
        limit: PlanLimit,
        ends: Mapping[TopicIdPartition, int],
        now: float,
        leader_epochs: Mapping[TopicIdPartition, int],
    ) -> BatchPlan | None:
        """Return the next batch and record it, or None: nothing to read, nothing to record.

        While the run warms up, the batch is that of the warm-up plan.

        Raises:
            DataLossError: A log was truncated and `failOnDataLoss` is true.
        """
        if self.warm_up.is_warming:
            return self._warm_up_plan()
        member = self.positions.member
        positions = self._usable(ends, leader_epochs, now)
        # A doubted end may be that of a topic created again under this name.
        listed = {key: ends[key] for key in positions}
        self.log_ends.update(listed)
        if self._targets is not None:
            self._targets = {**listed, **self._targets}
        divided = self._divide(limit, positions, listed, now)
        if not divided and (
            self._recorded_member_id == member.member_id
            # A plan of this group would hide that the checkpoint came from another.
            or self.positions.resolver.has_unchecked_topics
        ):
            return None
        owned = self.positions.ledger.owned
        plan = BatchPlan(
            member.config.group_id,
            member.member_id,
            member.member_epoch,
            tuple(self._range(key, *offsets) for key, offsets in sorted(divided.items())),
            (*self.positions.topics.read(), *self.positions.topics.unread()),
            marks=tuple(owned[key].mark for key in sorted(divided)),
            cluster_id=self.warm_up.coordinator.cluster_id,
        )
        if plan == self._last:
            # Read again after a truncation. Spark ignores an unchanged offset, so an empty
            # batch goes between.
            plan = replace(plan, ranges=(), marks=())
        self._last = plan
        self.positions.ledger.record(plan, leader_epochs)
        self._recorded_member_id = plan.member_id
        if plan.ranges:
            self._last_ranges_at = now
        return plan

    def unread(self, limit: PlanLimit, ends: Mapping[TopicIdPartition, int], now: float) -> Ranges:
        """Return the ranges of which a plan reads a part; none if it is held back.

        Args:
            limit: Without `until_offsets`.
            ends: Log ends that a plan may use.
            now: Seconds.
        """
        ledger = self.positions.ledger
        ready, undecided = ledger.positions(self.positions.member.assigned), ledger.undecided()
        listed = {key: ends[key] for key in ready if key in ends and key not in undecided}
        return self._divide(replace(limit, max_offsets=None), ready, listed, now)

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """Return the log ends of the member's partitions, as last listed."""
        ends, name = self.log_ends, self.positions.topics.name
        return {TopicPartition(name(e.topic_id) or "", e.partition): ends[e] for e in ends}

    def _warm_up_plan(self) -> BatchPlan:
        member, ledger = self.positions.member, self.positions.ledger
        checkpointed, topics = self.warm_up.checkpointed, self.positions.topics
        if checkpointed is not None:
            ledger.forget_finished(checkpointed)
        plan = BatchPlan(
            member.config.group_id,
            member.member_id,
            member.member_epoch,
            # Not those of now: one that was created again since must look so to the next run, too.
            topics=checkpointed.topics if checkpointed else topics.unread(),
            warm_up_tasks=self.warm_up.tasks,
            cluster_id=self.warm_up.coordinator.cluster_id,
        )
        ledger.record(plan)
        self._recorded_member_id = plan.member_id
        return plan

    def _usable(
        self,
        ends: Mapping[TopicIdPartition, int],
        leader_epochs: Mapping[TopicIdPartition, int],
        now: float,
    ) -> dict[TopicIdPartition, int]:
        ready = self.positions.ledger.positions(self.positions.member.assigned)
        self.positions.topics.note_read({key.topic_id for key in ready})
        positions, resolved = self.positions.validator.usable(ready, ends, leader_epochs, now)
        self.positions.take(resolved)
        if resolved.data_loss is not None:
            raise DataLossError(resolved.data_loss)
        for key in self.positions.ledger.undecided():
            positions.pop(key, None)
        return positions

    def _divide(
        self,
        limit: PlanLimit,
        positions: Mapping[TopicIdPartition, int],
        listed: dict[TopicIdPartition, int],
        now: float,
    ) -> Ranges:
        """Return the ranges to read."""
        ends, until = self._clip(listed), limit.until_offsets
        if self._is_held_back(limit, positions, ends, now):
            return {}
        if until is None:
            return divide(positions, ends, limit.max_offsets)
        kept = {key: min(end, until[key]) for key, end in ends.items() if key in until}
        return divide(positions, kept, None)

    def _is_held_back(
        self,
        limit: PlanLimit,
        positions: Mapping[TopicIdPartition, int],
        ends: Mapping[TopicIdPartition, int],
        now: float,
    ) -> bool:
        """Return whether the backlog is too small for a batch; never under AvailableNow."""
        if self._targets is not None or not limit.may_hold_back:
            return False
        backlog = sum(max(0, end - positions[key]) for key, end in ends.items())
        # The first batch with rows is never held back, as in Spark's own source.
        waited_s = math.inf if self._last_ranges_at is None else now - self._last_ranges_at
        return limit.holds_back(backlog, waited_s)

    def _clip(self, listed: dict[TopicIdPartition, int]) -> dict[TopicIdPartition, int]:
        """Return the listed ends, or the targets of AvailableNow that are below them."""
        targets = self._targets
        if not targets:
            return listed
        return {key: min(end, targets.get(key, end)) for key, end in listed.items()}

    def _range(self, key: TopicIdPartition, from_offset: int, until_offset: int) -> OffsetRange:
        name = self.positions.topics.name(key.topic_id) or ""
        return OffsetRange(key.topic_id, name, key.partition, from_offset, until_offset)
