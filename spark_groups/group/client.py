"""GroupClient: one Spark query as one member of a group; its inputs and outputs, and nothing else.

In, each with `now` in seconds: responses, and what Spark does (`plan`, `finish`, `replay`,
`leave`). Out: requests to send (`poll_requests`), events, and the time of the next poll. It has no
socket, no clock and no thread, and runs unchanged in the simulation. Calls must not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_groups.errors import AccessError, CheckpointError, GroupError
from spark_groups.group.after_input import AfterInput
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.revocation import timeout_for_gap
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import (
    BatchFinished,
    RangesLost,
    RebalanceTimeoutRaised,
    RequestUnanswered,
)
from spark_groups.group.ledger.ledger import NO_LEADER_EPOCHS
from spark_groups.group.member.events import Event
from spark_groups.group.member.messages import RequestFailed, Response
from spark_groups.group.requests.channels import Channel, Outgoing, check_kind
from spark_groups.types import BatchPlan, TopicIdPartition


class GroupClient:
    """A member's inputs and outputs; after each input, everything that follows from it is done."""

    def __init__(self, parts: ClientParts) -> None:
        self.parts = parts
        self._after_input = AfterInput(parts)
        self._emit = parts.positions.emit
        if parts.warm_up.checkpointed is not None:
            self._take_checkpoint(parts.warm_up.checkpointed)

    # Requests and events.

    def start(self, now: float) -> None:
        """Join the group, or warm up first."""
        self.parts.warm_up.start(now)

    def poll_requests(self, now: float) -> list[Outgoing]:
        """Return the requests to send now; a response or a failure frees the channel."""
        parts = self.parts
        self._after_input.advance(now)
        member = parts.member
        parts.metrics.follow(member.state, now, has_uncommitted=parts.commits.is_pending)
        parts.deleted.look()
        parts.events += parts.open_requests.said(now)
        return parts.channels.poll(now, parts.search.node)

    def handle_response(self, outgoing: Outgoing, response: Response, now: float) -> None:
        """Process the response to a request of `poll_requests`."""
        parts, request = self.parts, outgoing.request
        asked = parts.channels.free(outgoing)
        if asked is not None:
            requester, sent_at = asked
            parts.metrics.answered(request, response, now - sent_at, now)
            check_kind(request, response)
            requester.answered(request, response, now)
            # A listing without some of the ends is awaited as one without a response.
            problem = parts.log_ends.problem if requester is parts.log_ends else ""
            parts.channels.ended(outgoing, sent_at, now, problem)
        self._after_input.advance(now)

    def handle_failure(self, outgoing: Outgoing, failed: RequestFailed, now: float) -> None:
        """Note that a request of `poll_requests` got no response."""
        parts = self.parts
        asked, request = parts.channels.free(outgoing), outgoing.request
        if asked is not None:
            requester, sent_at = asked
            parts.channels.ended(outgoing, sent_at, now, failed.reason)
            parts.metrics.unanswered(request)
            if outgoing.channel is not Channel.TRIGGER:
                # A leader without an answer says nothing about the group.
                parts.search.unreachable(failed.reason, now)
                self._emit(RequestUnanswered(now, type(request).__name__, failed.reason))
            requester.failed(request, failed, now)
        self._after_input.advance(now)

    def next_wakeup(self, now: float) -> float | None:
        """Return when to poll again without input."""
        parts = self.parts
        next_at: float | None = None
        for due_at in (
            parts.member.next_wakeup(),
            parts.commits.next_wakeup(),
            parts.target.due_at,
            parts.session.due_at,
            parts.search.pause.not_before,
            parts.cluster_pause.not_before,
            parts.absent.due_at(),
            parts.offsets_pause.not_before,
            self._after_input.decide_by,
            self._after_input.leave_by,
            parts.liveness.next_wakeup(),
            parts.revocation.next_wakeup(now),
            parts.warm_up.next_wakeup(),
            parts.open_requests.next_wakeup(),
        ):
            if due_at is not None and due_at > now and (next_at is None or due_at < next_at):
                next_at = due_at
        return next_at

    def poll_events(self) -> list[Event]:
        """Return, count and forget the events since the last call."""
        events = list(self.parts.events)
        self.parts.events.clear()
        for event in events:
            self.parts.metrics.happened(event)
        return events

    # Calls of Spark.

    def called(self, now: float) -> None:
        """Note that Spark called: an absent member rejoins.

        If calls are far apart, the rebalance timeout is raised to match.
        """
        liveness, member = self.parts.liveness, self.parts.member
        last_called_at = liveness.activity.last_called_at
        liveness.called(now)
        if last_called_at is not None:
            wanted_ms = timeout_for_gap(now - last_called_at, member.rebalance_timeout_ms)
            if wanted_ms is not None:
                member.raise_rebalance_timeout(wanted_ms, now)
                self._emit(RebalanceTimeoutRaised(now, wanted_ms))
        self._after_input.advance(now)

    def replay(self, plan: BatchPlan, now: float) -> None:
        """Note that Spark runs an old plan again; a plan of another group is ignored."""
        self.parts.warm_up.end("Spark runs a batch again, which warms this run up", now)
        if plan.group_id == self.parts.config.member.group_id:
            self.parts.ledger.replay(plan)
        self._after_input.advance(now)

    def finish(self, plan: BatchPlan, now: float) -> None:
        """Note that a batch is proven finished; idempotent.

        Its offsets are committed with its own member epoch, unless its partitions were lost.
        """
        parts = self.parts
        if plan.group_id != parts.config.member.group_id:
            return
        ran = plan == parts.ledger.in_flight
        finished = parts.ledger.finish(plan)
        parts.commits.add(finished.commits)
        if finished.lost:
            self._emit(RangesLost(now, finished.lost, "lost while the batch ran"))
        if ran:
            parts.revocation.budget.batch_finished(now)
            self._emit(BatchFinished(now, plan))
            if plan.ranges:
                parts.member.pace.at_batch_end(now)
            if plan.warm_up_tasks:
                parts.warm_up.end("the warm-up is over", now)
        self._after_input.advance(now)

    def plan(
        self,
        limit: PlanLimit,
        ends: Mapping[TopicIdPartition, int],
        now: float,
        leader_epochs: Mapping[TopicIdPartition, int] = NO_LEADER_EPOCHS,
    ) -> BatchPlan | None:
        """Return the next batch, or None if there is nothing to read and nothing to record.

        The first plan of each member id is returned even without ranges, so that the checkpoint
        names the member; before a warm join it is the warm-up plan. A plan that was not proven
        finished is returned again.

        Args:
            ends: Log ends (last stable offsets under read_committed) that were compared with
                positions before (`PositionValidator.compare`).

        Raises as `check` does.
        """
        self.check()
        if self.parts.ledger.in_flight is not None:
            return self.parts.ledger.in_flight
        self._after_input.advance(now)
        return self.parts.next_batch.plan(limit, ends, now, leader_epochs)

    def hold_revocations(self, is_wanted: bool, now: float) -> None:
        """Hold each revocation for a rebalance listener, within its time budget."""
        self.parts.revocation.hold.is_wanted = is_wanted
        self._after_input.advance(now)

    def release_revocation(self, number: int, now: float) -> None:
        """Release a held revocation by the number of its `RevocationHeld`."""
        self.parts.revocation.hold.release(number)
        self._after_input.advance(now)

    def leave(self, now: float, *, leave_by: float, will_return: bool = False) -> None:
        """Commit finished batches, then leave the group.

        Args:
            leave_by: When to stop waiting, in seconds.
            will_return: True for a static member that keeps its partitions.
        """
        self._after_input.leave(now, leave_by=leave_by, will_return=will_return)

    def expect_calls_every(self, gap_s: float) -> None:
        """Note that the query's trigger calls every `gap_s` seconds."""
        self.parts.liveness.activity.expect_calls_every(gap_s)

    def fail(self, error: AccessError | CheckpointError, now: float) -> None:
        """Fail for good: brokers refuse the credentials, or are not those of the checkpoint."""
        if isinstance(error, CheckpointError):
            self.parts.positions.refusal = error
        else:
            self.parts.member.fail(str(error), now)

    def check(self) -> None:
        """Raise what prevents the query from continuing.

        Raises:
            GroupError: The member failed for good.
            CheckpointError, OptionsError: The query cannot start here; see `Positions.check`.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            AvailableNowError: A named topic does not exist, under AvailableNow.
        """
        parts = self.parts
        if parts.member.failure is not None:
            raise GroupError(
                f"group {parts.config.member.group_id!r} refused this query: {parts.member.failure}"
            )
        parts.positions.check()
        parts.log_ends.check()
        parts.available_now.check()

    def _take_checkpoint(self, plan: BatchPlan) -> None:
        """Remember the checkpoint's topics.

        If it was written in this group, also release its member id and remember its partition
        counts.
        """
        parts = self.parts
        is_own = plan.group_id == parts.config.member.group_id
        parts.topics.remember(plan.topics, of_this_group=is_own)
        parts.topics.note_partitions(offset_range.key for offset_range in plan.ranges)
        if is_own:
            parts.releases.add(plan.member_id)
        else:
            read = (topic.name for topic in plan.topics if topic.is_read)
            parts.resolver.came_from(plan.group_id, read)
