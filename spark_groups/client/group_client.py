"""GroupClient: one Spark query as one member of a group; everything that is decided on the driver.

In: answers to its requests, what Spark proves (`finish`, `replay`), what Spark wants (`plan`,
`leave`); each with `now`. Out: requests to send (`poll_requests`), events, and the next instant at
which it wants to be woken. It has no socket, no clock and no thread, and runs unchanged in the
simulation. Whoever drives it calls one method at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from spark_groups.client.attendance import LEAVE_S, Attendance
from spark_groups.client.available_now import AvailableNowEnd
from spark_groups.client.client_config import ClientConfig
from spark_groups.client.exchange import Exchange
from spark_groups.client.hold import RevocationHold
from spark_groups.client.lanes import Outgoing
from spark_groups.client.parts import Parts
from spark_groups.client.planner import BatchPlanner
from spark_groups.client.releases import Releases
from spark_groups.client.revocation import RevocationBudget, timeout_for_gap
from spark_groups.client.settings import SettingsWatch
from spark_groups.client.target import TargetWatch
from spark_groups.errors import CheckpointError, DataLossError, GroupError
from spark_groups.offsets.commits import CommitQueue
from spark_groups.offsets.events import (
    BatchFinished,
    BatchPlanned,
    PartitionsGivenUp,
    RangesInherited,
    RangesLost,
    RangesOverruled,
    RebalanceTimeoutRaised,
)
from spark_groups.offsets.known_topics import TopicDirectory
from spark_groups.offsets.ledger import NOT_KNOWN, NOTHING_INHERITED, Inheritance, Ledger
from spark_groups.offsets.planning import PlanLimit
from spark_groups.offsets.resolution import PositionResolver
from spark_groups.offsets.validation import PositionValidator
from spark_groups.protocol.events import (
    EpochChanged,
    Event,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from spark_groups.protocol.member import Member
from spark_groups.protocol.membership import MemberState
from spark_groups.protocol.messages import RequestFailed, Response
from spark_groups.types import Assignment, BatchPlan, TopicIdPartition

_REVOCABLE: Final = (MemberState.RECONCILING, MemberState.PREPARE_LEAVING)
_PLANNING: Final = (MemberState.STABLE, MemberState.RECONCILING, MemberState.ACKNOWLEDGING)


class GroupClient:
    """A member, its ledger, and the decisions between them.

    Args:
        config: How it behaves.
        new_member_id: Gives a fresh member id (a UUID) each time it is called.
        checkpointed: The plan that Spark's checkpoint ended at; its member id is released.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        new_member_id: Callable[[], str],
        checkpointed: BatchPlan | None = None,
    ) -> None:
        self.config = config
        self.member = Member(config.member, new_member_id)
        self.ledger, self.commits, self.topics = Ledger(), CommitQueue(), TopicDirectory()
        self.target = TargetWatch()
        resolver = PositionResolver(
            self.ledger,
            self.commits,
            self.topics,
            config.starting_offsets,
            group_id=config.member.group_id,
            read_committed=config.read_committed,
            fail_on_data_loss=config.fail_on_data_loss,
            command_options=config.command_options,
        )
        releases = Releases(config.member.group_id, config.member.instance_id)
        self.parts = Parts(
            self.member,
            self.ledger,
            self.commits,
            self.topics,
            resolver,
            PositionValidator(self.ledger, self.topics, config.fail_on_data_loss),
            self.target,
            releases,
            SettingsWatch(config.member.session_timeout_ms),
        )
        if checkpointed is not None:
            self._take_checkpoint(checkpointed)
        self.exchange = Exchange(self.parts)
        self.planner = BatchPlanner(self.parts)
        self.attendance = Attendance(self.parts, config.liveness)
        self.available_now = AvailableNowEnd(self.parts, config.settling)
        self.last_called_at: float | None = None
        self._budget = RevocationBudget()
        self._hold = RevocationHold()
        self._leave_by: float | None = None

    def _take_checkpoint(self, plan: BatchPlan) -> None:
        """Note what the checkpoint says of the group and its topics.

        What a group has committed, its counts, and its members are nothing to another group.
        """
        for each in plan.topics:
            self.topics.remember(each.name, each.topic_id)
        if plan.group_id != self.config.member.group_id:
            self.parts.resolver.came_from(plan.group_id, (each.name for each in plan.topics))
            return
        self.parts.releases.add(plan.member_id)
        for each in plan.topics:
            if each.known_count is not None:
                self.topics.note_count(each.topic_id, each.known_count)

    # What the driver carries.

    def start(self, now: float) -> None:
        """Become a member of the group."""
        self.member.join(now)

    def poll_requests(self, now: float) -> list[Outgoing]:
        """Return the requests to send now; each is answered or failed before its lane is free."""
        self._advance(now)
        return self.exchange.poll(now)

    def handle_response(self, outgoing: Outgoing, response: Response, now: float) -> None:
        """Take the answer to a request of `poll_requests`."""
        self.exchange.handle_response(outgoing, response, now)
        self._advance(now)

    def handle_failure(self, outgoing: Outgoing, failed: RequestFailed, now: float) -> None:
        """Take it that a request of `poll_requests` got no answer."""
        self.exchange.handle_failure(outgoing, failed, now)
        self._advance(now)

    def next_wakeup(self, now: float) -> float | None:
        """Return when to poll again although nothing came in."""
        next_at = self.exchange.next_wakeup(now)
        told_at = self.member.revocation_told_at
        mark_at = None
        if told_at is not None:
            mark_at = self._budget.next_mark(told_at, self.member.revocation_timeout_s, now)
        for due_at in (self._leave_by, self.attendance.next_wakeup(), mark_at):
            if due_at is not None and due_at > now and (next_at is None or due_at < next_at):
                next_at = due_at
        return next_at

    def poll_events(self) -> list[Event]:
        """Return and forget what happened since the last call."""
        return self.parts.poll_events()

    # What Spark proves and wants.

    def called(self, now: float) -> None:
        """Note that Spark called; calls too far apart ask the coordinator for more time.

        A member that had left because nobody called joins again.
        """
        self.attendance.called(now)
        if self.last_called_at is not None:
            wanted_ms = timeout_for_gap(now - self.last_called_at, self.member.rebalance_timeout_ms)
            if wanted_ms is not None:
                self.member.raise_rebalance_timeout(wanted_ms, now)
                self.parts.events.append(RebalanceTimeoutRaised(now, wanted_ms))
        self.last_called_at = now
        self._advance(now)

    def call_ended(self, now: float) -> None:
        """Note that Spark was answered: its silence counts from now on."""
        self.attendance.call_ended(now)

    def replay(self, plan: BatchPlan, now: float) -> None:
        """Take it that Spark runs an old plan again; one of another group is none of ours."""
        if plan.group_id == self.config.member.group_id:
            self.ledger.replay(plan)
        self._advance(now)

    def finish(self, plan: BatchPlan, now: float) -> None:
        """Take it as proven that a batch is finished; idempotent.

        What it read is committed with its own member epoch, unless its partitions were lost.
        """
        if plan.group_id != self.config.member.group_id:
            return
        ran = plan == self.ledger.in_flight
        finished = self.ledger.finish(plan)
        self.commits.add(finished.commits)
        if finished.lost:
            reason = "lost while the batch ran"
            self.parts.events.append(RangesLost(now, finished.lost, reason))
        if ran:
            self._budget.batch_finished(now)
            self.parts.events.append(BatchFinished(now, plan))
            if plan.ranges:
                self.member.pace.at_boundary(now)
        self._advance(now)

    def readable(self, now: float) -> frozenset[TopicIdPartition]:
        """Return the partitions whose ends are to be listed for the next plan."""
        if self.ledger.in_flight is not None or not self._ownership_is_proven(now):
            return frozenset()
        return frozenset(self.ledger.positions(self.member.assigned))

    def plan(
        self,
        limit: PlanLimit,
        ends: Mapping[TopicIdPartition, int],
        now: float,
        leader_epochs: Mapping[TopicIdPartition, int] = NOT_KNOWN,
    ) -> BatchPlan | None:
        """Return the next batch, or None if there is nothing to read and nothing to record.

        The first plan of each member id is returned even without ranges, so that the checkpoint
        names the member. A plan that was not proven finished is returned again.

        Args:
            limit: How much to read.
            ends: Log ends (last stable offsets under read_committed), listed just now.
            now: Seconds.
            leader_epochs: Under which leader epoch each end was listed.

        Raises:
            GroupError: The member was refused for good.
            CheckpointError: The checkpoint is of another group.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
        """
        self.check()
        if self.ledger.in_flight is not None:
            return self.ledger.in_flight
        if not self._ownership_is_proven(now):
            return None
        self.parts.validator.compare(ends, leader_epochs)
        self._advance(now)
        plan = self.planner.plan(limit, ends, now, leader_epochs)
        if plan is None:
            return None
        self._budget.batch_began(plan, now)
        self.parts.events.append(BatchPlanned(now, plan))
        return plan

    def prepare_available_now(self) -> None:
        """Read up to what is there when each partition becomes ours, and no further."""
        self.planner.prepare_available_now()
        self.available_now.prepare()

    def hold_revocations(self, is_wanted: bool, now: float) -> None:
        """Hold each revocation until it is released, or its budget is over; or do so no more.

        Args:
            is_wanted: Whether a rebalance listener wants to be told before partitions are gone.
            now: Seconds.
        """
        self._hold.is_wanted = is_wanted
        self._advance(now)

    def release_revocation(self, number: int, now: float) -> None:
        """Let a held revocation go.

        Args:
            number: That of its `RevocationHeld`.
            now: Seconds.
        """
        self._hold.release(number)
        self._advance(now)

    def leave(self, now: float, *, leave_by: float, will_return: bool = False) -> None:
        """Commit what is finished, then leave the group.

        Args:
            now: Seconds.
            leave_by: When to stop waiting, in seconds.
            will_return: True for a static member that keeps its partitions.
        """
        self.attendance.leaves()
        if self.member.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            return
        self.member.leave(now, will_return=will_return)
        self._leave_by = leave_by
        self._advance(now)

    # What can be seen.

    def check(self) -> None:
        """Raise what makes it impossible to go on.

        Raises:
            GroupError: The member was refused for good.
            CheckpointError: The checkpoint is of another group.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            AvailableNowError: A topic that is named does not exist, under AvailableNow.
        """
        if self.member.failure is not None:
            raise GroupError(
                f"group {self.config.member.group_id!r} refused this query: {self.member.failure}"
            )
        if self.parts.refusal is not None:
            raise CheckpointError(self.parts.refusal)
        if self.parts.data_loss is not None:
            raise DataLossError(self.parts.data_loss)
        self.available_now.check()

    @property
    def may_begin_available_now(self) -> bool:
        """True once AvailableNow knows what it is to read, and that all of it exists."""
        return self.is_settled and not self.available_now.is_in_doubt

    def is_available_now_over(self, waited_s: float, now: float) -> bool:
        """Tell whether AvailableNow ends, where nothing is left to read and that can be believed.

        Args:
            waited_s: For how many seconds nothing could be read.
            now: Seconds.

        Raises:
            AvailableNowError: Partitions did not come, and `availableNowUnsettled` is not `warn`.
        """
        return not self.available_now.is_in_doubt and self.available_now.is_over(
            is_settled=self.is_settled, waited_s=waited_s, now=now
        )

    def can_tell(self, ends: Mapping[TopicIdPartition, int], now: float) -> bool:
        """Tell whether "nothing to read" can be believed: ownership is proven, all ends are known.

        An end that is doubted may be that of an old leader, and a finished run that is not settled
        keeps its partition from being planned: then there may be more.

        Args:
            ends: The ends that were listed for `readable`.
            now: Seconds.
        """
        wanted = self.ledger.positions(self.member.assigned)
        uncertain = self.parts.validator.doubted() | self.ledger.undecided()
        are_known = all(key in ends and key not in uncertain for key in wanted)
        return self._ownership_is_proven(now) and are_known

    @property
    def is_settled(self) -> bool:
        """True once the member has all it is meant to have and may plan all of it.

        Where nobody may describe the group, what it has must be taken for all, if it is anything.
        """
        told = self.target.settled(self.member.member_epoch)
        has_all = told or (self.target.is_refused and bool(self.member.assigned))
        return self.member.state is MemberState.STABLE and has_all and not self.ledger.unready()

    @property
    def has_left(self) -> bool:
        return self.member.state is MemberState.UNSUBSCRIBED

    # What follows from every input.

    def _advance(self, now: float) -> None:
        # Mostly there is nothing to do: each part is asked in the cheapest way whether there is.
        member = self.member
        if member.events:
            self._take_member_events(now)
        if self.attendance.must_leave(now):
            # A static member is kept its place until its session is over.
            self.leave(now, leave_by=now + LEAVE_S, will_return=True)
        elif self.attendance.may_return():
            self._leave_by = self.exchange.failing_since = None
            self._drop(Assignment(frozenset(self.ledger.owned)), "the member had left", now)
            member.return_to_group(now)
        # What an earlier run finished is committed before its partition is given up.
        inheritance = self.ledger.inherit(member.member_epoch)
        if inheritance is not NOTHING_INHERITED:
            self._take_inheritance(inheritance, now)
        if member.revoking.partitions and member.state in _REVOCABLE:
            self._try_to_acknowledge(now)
        if not member.revoking.partitions:
            self._hold.forget()
        if self._leave_by is not None:
            self._go_on_leaving(now, self._leave_by)
        if member.events:
            self._take_member_events(now)

    def _take_inheritance(self, inheritance: Inheritance, now: float) -> None:
        self.commits.add(inheritance.commits)
        if inheritance.taken:
            self.parts.events.append(RangesInherited(now, inheritance.taken))
        if inheritance.overruled:
            self.parts.events.append(RangesOverruled(now, inheritance.overruled))

    def _take_member_events(self, now: float) -> None:
        for event in self.member.poll_events():
            self.parts.events.append(event)
            match event:
                case PartitionsAssigned(partitions=partitions):
                    self.ledger.assign(partitions, event.member_epoch)
                    self.parts.assigned_at = now
                    for key in partitions:
                        self.parts.unread_left.pop(key, None)
                    self.target.changed(now)
                case PartitionsRevoked(partitions=partitions):
                    self._drop(partitions, "given up before they were committed", now)
                    self.target.changed(now)
                case PartitionsLost(partitions=partitions, reason=reason):
                    self._drop(partitions, reason, now)
                    self.target.changed(now)
                case EpochChanged():
                    self.target.changed(now)

    def _drop(self, partitions: Assignment, reason: str, now: float) -> None:
        for key in partitions:
            self.parts.unread_left[key] = self.planner.forget(key)
        self.ledger.drop(partitions)
        dropped = {each.key for each in self.commits.drop(partitions)}
        ranges = [self.ledger.uncommitted(key) for key in sorted(dropped)]
        unsettled = tuple(each for each in ranges if each is not None)
        if unsettled:
            self.parts.events.append(RangesLost(now, unsettled, reason))

    def _try_to_acknowledge(self, now: float) -> None:
        contested = self.ledger.contested(
            self.member.revoking,
            self.commits.pending(),
            settle_first=self.parts.resolver.settle_first,
        )
        told_at = self.member.revocation_told_at
        timeout_s = self.member.revocation_timeout_s
        if contested and told_at is not None:
            self.parts.events.extend(self._budget.warnings(told_at, timeout_s, contested, now))
            if not self._budget.is_over(told_at, timeout_s, now):
                return
            self.parts.events.append(PartitionsGivenUp(now, tuple(contested)))
        elif told_at is not None and not self._budget.is_over(told_at, timeout_s, now):
            release_by = self._budget.give_up_at(told_at, timeout_s)
            held = self._hold.begin(self.member.revoking, release_by, now)
            if held is not None:
                self.parts.events.append(held)
            if self._hold.holds():
                return
        self.member.acknowledge(now)
        self._take_member_events(now)

    def _go_on_leaving(self, now: float, leave_by: float) -> None:
        if self.member.state is MemberState.PREPARE_LEAVING and (
            not self.commits.is_pending or now >= leave_by
        ):
            self.member.leave_now(now)
        elif self.member.state is MemberState.LEAVING and now >= leave_by:
            self.member.give_up_leaving(now)

    def _ownership_is_proven(self, now: float) -> bool:
        member, proven_at = self.member, self.member.last_accepted_sent_at
        if member.state not in _PLANNING or proven_at is None:
            return False
        return now - proven_at <= self.parts.settings.proven_for_s(member.pace.interval_s)
