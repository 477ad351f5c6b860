"""What the next batch may read, and its plan: as long as ownership is proven, and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.planner import BatchPlanner, Ranges
from spark_groups.group.batches.revocation import RevocationBudget
from spark_groups.group.ledger.events import BatchPlanned
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.member.member_states import PLANNING, MemberState
from spark_groups.group.requests.describe import PendingOffsets, TargetAssignment
from spark_groups.group.requests.log_ends import LogEnds
from spark_groups.group.requests.settings import SessionTimeout
from spark_groups.types import BatchPlan, TopicIdPartition


@dataclass(slots=True)
class NextBatch:
    """Decides what the next batch may read, and whether there may be more to read."""

    positions: Positions
    planner: BatchPlanner
    log_ends: LogEnds
    target: TargetAssignment
    pending_offsets: PendingOffsets
    session: SessionTimeout
    budget: RevocationBudget

    def readable(self, now: float) -> dict[TopicIdPartition, int]:
        """Return the partitions that the next plan may read, with their positions."""
        if not self._may_plan(now):
            return {}
        return self.positions.ledger.positions(self.positions.member.assigned)

    def unread(self, limit: PlanLimit, ends: Mapping[TopicIdPartition, int], now: float) -> Ranges:
        """Return the ranges of which the next plan reads a part; none if it is held back."""
        may_read = bool(self.readable(now))
        return self.planner.unread(limit, self.log_ends.usable(ends), now) if may_read else {}

    def ask_for_ends(self, now: float) -> bool:
        """Ask for the log ends of the next plan, and of pending partitions.

        Returns:
            Whether there is any to list.
        """
        if not self._may_plan(now):
            self.log_ends.forget()
            return False
        return self.log_ends.ask(self.positions.still_pending(self.target.pending))

    def plan(
        self,
        limit: PlanLimit,
        ends: Mapping[TopicIdPartition, int],
        now: float,
        leader_epochs: Mapping[TopicIdPartition, int],
    ) -> BatchPlan | None:
        """Return the next batch, or None if there is nothing to read and nothing to record."""
        if not (self.planner.warm_up.is_warming or self._is_ownership_proven(now)):
            return None
        plan = self.planner.plan(limit, self.log_ends.take(ends, now), now, leader_epochs)
        if plan is None:
            return None
        if plan.ranges:
            self.pending_offsets.batch_planned()
        self.budget.batch_began(plan, now)
        self.positions.emit(BatchPlanned(now, plan))
        return plan

    def knows_all_ends(self, ends: Mapping[TopicIdPartition, int], now: float) -> bool:
        """Return whether "nothing to read" is certain: ownership is proven and all ends are known.

        While an end is doubted or a finished run is undecided, there may be more to read.
        """
        positions, ends = self.positions, self.log_ends.usable(ends)
        uncertain = positions.validator.doubted() | positions.ledger.undecided()
        wanted = positions.ledger.positions(positions.member.assigned)
        are_known = all(key in ends and key not in uncertain for key in wanted)
        return self._is_ownership_proven(now) and are_known

    @property
    def is_settled(self) -> bool:
        """True once the member may plan its whole target assignment.

        Without DESCRIBE permission, any non-empty assignment counts as complete.
        """
        member, target = self.positions.member, self.target
        has_target = target.settled(member.member_epoch)
        has_all = has_target or (target.is_refused and bool(member.assigned))
        is_stable = member.state is MemberState.STABLE
        return is_stable and has_all and not self.positions.ledger.unready()

    def _may_plan(self, now: float) -> bool:
        return self.positions.ledger.in_flight is None and self._is_ownership_proven(now)

    def _is_ownership_proven(self, now: float) -> bool:
        member = self.positions.member
        proven_at = member.last_accepted_sent_at
        if member.state not in PLANNING or proven_at is None:
            return False
        return now - proven_at <= self.session.proven_for_s(member.pace.interval_s)
