"""GroupClient: one Spark query as one member of a group; makes all decisions of the driver.

In, each with `now` in seconds: responses, and what Spark does (`plan`, `finish`, `replay`,
`leave`). Out: requests to send (`poll_requests`), events, and the time of the next poll. It has no
socket, no clock and no thread, and runs unchanged in the simulation. Calls must not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from spark_groups.errors import AccessError, CheckpointError, GroupError
from spark_groups.group.batches.available_now import AvailableNowEnd
from spark_groups.group.batches.liveness import LEAVE_S, Liveness, QueryActivity
from spark_groups.group.batches.planner import BatchPlanner, Ranges
from spark_groups.group.batches.planning import PlanLimit
from spark_groups.group.batches.revocation import Revocation, timeout_for_gap
from spark_groups.group.batches.warm_up import WarmUp
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.ledger.commits import CommitQueue
from spark_groups.group.ledger.events import (
    BatchFinished,
    BatchPlanned,
    RangesInherited,
    RangesLost,
    RangesOverruled,
    RebalanceTimeoutRaised,
    RequestUnanswered,
    WithheldRange,
)
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import (
    NO_LEADER_EPOCHS,
    NOTHING_INHERITED,
    Ledger,
    OwnedPartition,
)
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.ledger.resolution import PositionResolver
from spark_groups.group.ledger.validation import PositionValidator
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.events import (
    EpochChanged,
    Event,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from spark_groups.group.member.member import Member
from spark_groups.group.member.membership import ACTIVE, PLANNING, MemberState
from spark_groups.group.member.messages import Node, RequestFailed, Response
from spark_groups.group.metrics import Metrics
from spark_groups.group.requests.channels import (
    Asked,
    Channel,
    Channels,
    InTurn,
    Outgoing,
    check_kind,
    in_order,
)
from spark_groups.group.requests.describe import (
    Descriptions,
    PendingFetch,
    PendingOffsets,
    TargetAssignment,
)
from spark_groups.group.requests.find_coordinator import Coordinator
from spark_groups.group.requests.heartbeat import Heartbeats, Releases
from spark_groups.group.requests.leader_epochs import LeaderEpochs
from spark_groups.group.requests.list_offsets import DoubtedEnds, StartOffsets
from spark_groups.group.requests.metadata import AbsentTopics, DeletedTopics, TopicNames
from spark_groups.group.requests.offset_commit import OffsetCommits
from spark_groups.group.requests.offset_fetch import OffsetFetches
from spark_groups.group.requests.open_requests import OpenRequests
from spark_groups.group.requests.settings import GroupSettings, SessionTimeout
from spark_groups.group.requests.trigger_requests import LogEnds, RecordSamples
from spark_groups.types import Assignment, BatchPlan, TopicId, TopicIdPartition, TopicPartition

_LOOKING_UP: Final = (MemberState.WARMING_UP, *ACTIVE)
_REVOCABLE: Final = (MemberState.RECONCILING, MemberState.PREPARE_LEAVING)


class GroupClient:
    """A member, its ledger, and the decisions between them.

    Args:
        new_member_id: Returns a new member id (a UUID) with each call.
        checkpointed: The last plan in Spark's checkpoint; if it is of this group, the member that
            it names is released first.
        warm_up_tasks: How many tasks warm this run up before it joins, if other members read
            meanwhile; 0: it joins at once.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        new_member_id: Callable[[], str],
        checkpointed: BatchPlan | None = None,
        warm_up_tasks: int = 0,
    ) -> None:
        self.config = config
        self.member = Member(config.member, new_member_id)
        self.ledger, self.commits = Ledger(run_id=self.member.member_id), CommitQueue()
        self.topics, self.absent = TopicDirectory(), AbsentTopics()
        self.target, self.pending_offsets = TargetAssignment(), PendingOffsets()
        self.session = SessionTimeout(config.member.session_timeout_ms)
        self.metrics = Metrics()
        self._events: list[Event] = []
        emit = self._emit = self._events.append
        self.resolver = PositionResolver(
            self.ledger,
            self.commits,
            self.topics,
            config.starting_offsets,
            group_id=config.member.group_id,
            read_committed=config.read_committed,
            fail_on_data_loss=config.fail_on_data_loss,
            command_options=config.command_options,
        )
        self.validator = PositionValidator(self.ledger, self.topics, config.fail_on_data_loss)
        self.positions = Positions(
            self.member, self.ledger, self.commits, self.topics, self.resolver, self.validator, emit
        )
        self.deleted = DeletedTopics(self.ledger, self.topics)
        self.search = Coordinator(self.member, emit)
        self.releases = Releases(self.member, self.search)
        if checkpointed is not None:
            self._take_checkpoint(checkpointed)
        reads_committed = config.read_committed
        self.log_ends = LogEnds(
            self.positions, self.pending_offsets, read_committed=reads_committed
        )
        self.samples = RecordSamples(self.positions, read_committed=reads_committed)
        self._cluster_pause, self._fetch_pause = Backoff(), Backoff()
        self.open_requests = OpenRequests(config.request_timeout_s)
        self._channels = Channels(
            {
                Channel.SEARCH: in_order(self.search),
                Channel.CLUSTER: self._cluster_questions(),
                Channel.HEARTBEAT: in_order(
                    self.releases,
                    Heartbeats(self.member, self.search, self.releases, self.session),
                ),
                Channel.OFFSETS: self._offsets_questions(warm_up_tasks, checkpointed),
                Channel.TRIGGER: in_order(self.log_ends, self.samples),
            },
            self.open_requests,
        )
        self.planner = BatchPlanner(self.positions, self.warm_up)
        self.revocation = Revocation(self.positions)
        self.liveness = Liveness(self.member, self.ledger, QueryActivity(config.liveness), emit)
        self.available_now = AvailableNowEnd(
            config.available_now_wait,
            self.positions,
            self.absent,
            self.target,
            self.pending_offsets,
            self.session,
        )
        self.last_called_at: float | None = None
        self._assigned_at = float("-inf")
        self._leave_by: float | None = None

    def _take_checkpoint(self, plan: BatchPlan) -> None:
        """Remember the checkpoint's topics.

        If it was written in this group, also release its member id and remember its partition
        counts.
        """
        is_own = plan.group_id == self.config.member.group_id
        self.topics.remember(plan.topics, of_this_group=is_own)
        self.topics.note_partitions(each.key for each in plan.ranges)
        if is_own:
            self.releases.add(plan.member_id)
        else:
            read = (each.name for each in plan.topics if each.is_read)
            self.resolver.came_from(plan.group_id, read)

    def _cluster_questions(self) -> Callable[[float], Asked | None]:
        """Return a function that picks the next request to any broker; they share one backoff."""
        member, positions, search = self.member, self.positions, self.search
        pause = self._cluster_pause
        names = self._names = TopicNames(
            positions, self.target, self.absent, self.deleted, search, pause
        )
        starts = StartOffsets(positions, search, pause)
        epochs = LeaderEpochs(positions, search, pause)
        doubted = DoubtedEnds(positions, search, pause)
        in_turn = InTurn(
            (names, self.absent.next_request),
            (names, names.next_request),
            (starts, starts.next_request),
            (epochs, epochs.next_request),
            (doubted, doubted.next_request),
            (names, self.deleted.next_request),
        )
        last = in_order(GroupSettings(member, self.session, search, self._emit))

        def next_request(now: float) -> Asked | None:
            if member.state not in _LOOKING_UP or now < pause.not_before:
                return None
            baseline = names.ask_baseline(now)
            if baseline is not None:
                return names, baseline
            if member.state is MemberState.WARMING_UP:
                return None
            asked = None if positions.must_fail else in_turn.next(now)
            return asked or last(now)

        return next_request

    def _offsets_questions(
        self, tasks: int, checkpointed: BatchPlan | None
    ) -> Callable[[float], Asked | None]:
        """Make `warm_up`, and return the function that picks the next request about offsets."""
        positions, search, pending = self.positions, self.search, self.pending_offsets
        self.warm_up = WarmUp(
            self.member, search, self.releases, self._names, self._emit, tasks, checkpointed
        )
        return in_order(
            OffsetCommits(positions, search, self._fetch_pause),
            OffsetFetches(positions, search, self._fetch_pause),
            Descriptions(positions, self.target, pending, search, self._names.end_initial_topics),
            PendingFetch(positions, pending),
            self.warm_up,
        )

    # Requests and events.

    def start(self, now: float) -> None:
        """Join the group, or warm up first."""
        self.warm_up.start(now)

    def poll_requests(self, now: float) -> list[Outgoing]:
        """Return the requests to send now; a response or a failure frees the channel."""
        self._advance(now)
        member = self.member
        self.metrics.follow(member.state, now, has_uncommitted=self.commits.is_pending)
        self.deleted.look()
        self._events += self.open_requests.said(now)
        return self._channels.poll(now, self.search.node)

    def handle_response(self, outgoing: Outgoing, response: Response, now: float) -> None:
        """Process the response to a request of `poll_requests`."""
        asked, request = self._channels.ended(outgoing, now), outgoing.request
        if asked is not None:
            requester, sent_at = asked
            self.metrics.answered(request, response, now - sent_at, now)
            check_kind(request, response)
            requester.answered(request, response, now)
        self._advance(now)

    def handle_failure(self, outgoing: Outgoing, failed: RequestFailed, now: float) -> None:
        """Note that a request of `poll_requests` got no response."""
        asked, request = self._channels.ended(outgoing, now, failed), outgoing.request
        if asked is not None:
            self.metrics.unanswered(request)
            self.search.unreachable(failed.reason, now)
            self._emit(RequestUnanswered(now, type(request).__name__, failed.reason))
            asked[0].failed(request, failed, now)
        self._advance(now)

    def next_wakeup(self, now: float) -> float | None:
        """Return when to poll again without input."""
        next_at: float | None = None
        for due_at in (
            self.member.next_wakeup(),
            self.commits.next_wakeup(),
            self.target.due_at,
            self.session.due_at,
            self.search.pause.not_before,
            self._cluster_pause.not_before,
            self.absent.due_at(),
            self._fetch_pause.not_before,
            self._leave_by,
            self.liveness.next_wakeup(),
            self.revocation.next_wakeup(now),
            self.warm_up.next_wakeup(),
            self.open_requests.next_wakeup(),
        ):
            if due_at is not None and due_at > now and (next_at is None or due_at < next_at):
                next_at = due_at
        return next_at

    def poll_events(self) -> list[Event]:
        """Return, count and forget the events since the last call."""
        events = list(self._events)
        self._events.clear()
        for each in events:
            self.metrics.happened(each)
        return events

    # Calls of Spark.

    def called(self, now: float) -> None:
        """Note that Spark called: an absent member rejoins.

        If calls are far apart, the rebalance timeout is raised to match.
        """
        self.liveness.called(now)
        if self.last_called_at is not None:
            wanted_ms = timeout_for_gap(now - self.last_called_at, self.member.rebalance_timeout_ms)
            if wanted_ms is not None:
                self.member.raise_rebalance_timeout(wanted_ms, now)
                self._emit(RebalanceTimeoutRaised(now, wanted_ms))
        self.last_called_at = now
        self._advance(now)

    def call_ended(self, now: float) -> None:
        """Note that Spark's call returned: idle time counts from now."""
        self.liveness.activity.call_ended(now)

    def replay(self, plan: BatchPlan, now: float) -> None:
        """Note that Spark runs an old plan again; a plan of another group is ignored."""
        self.warm_up.end("Spark runs a batch again, which warms this run up", now)
        if plan.group_id == self.config.member.group_id:
            self.ledger.replay(plan)
        self._advance(now)

    def finish(self, plan: BatchPlan, now: float) -> None:
        """Note that a batch is proven finished; idempotent.

        Its offsets are committed with its own member epoch, unless its partitions were lost.
        """
        if plan.group_id != self.config.member.group_id:
            return
        ran = plan == self.ledger.in_flight
        finished = self.ledger.finish(plan)
        self.commits.add(finished.commits)
        if finished.lost:
            self._emit(RangesLost(now, finished.lost, "lost while the batch ran"))
        if ran:
            self.revocation.budget.batch_finished(now)
            self._emit(BatchFinished(now, plan))
            if plan.ranges:
                self.member.pace.at_batch_end(now)
            if plan.warm_up_tasks:
                self.warm_up.end("the warm-up is over", now)
        self._advance(now)

    def readable(self, now: float) -> dict[TopicIdPartition, int]:
        """Return the partitions that the next plan may read, with their positions."""
        if self.ledger.in_flight is not None or not self._ownership_is_proven(now):
            return {}
        return self.ledger.positions(self.member.assigned)

    def unread(self, limit: PlanLimit, ends: Mapping[TopicIdPartition, int], now: float) -> Ranges:
        """Return the ranges of which the next plan reads a part; none if it is held back."""
        may_plan = bool(self.readable(now))
        return self.planner.unread(limit, self.log_ends.usable(ends), now) if may_plan else {}

    def ask_for_ends(self, now: float) -> bool:
        """Ask for the log ends of the next plan; return whether any are listed."""
        self.log_ends.forget()
        may_plan = self.ledger.in_flight is None and self._ownership_is_proven(now)
        return may_plan and self.log_ends.ask(self.pending)

    def listed(
        self, ends: Mapping[TopicIdPartition, int], leader_epochs: Mapping[TopicIdPartition, int]
    ) -> bool:
        """Note the log ends for the next plan.

        Args:
            ends: Log ends of the partitions that `ask_for_ends` asked for.
            leader_epochs: The leader epoch under which each end was listed.

        Returns:
            True if new leaders must confirm positions first; `is_validating` is true until they
                have.
        """
        return self.validator.compare(ends, leader_epochs)

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
            ends: Log ends (last stable offsets under read_committed) that were given to `listed`.

        Raises as `check` does.
        """
        self.check()
        if self.ledger.in_flight is not None:
            return self.ledger.in_flight
        self._advance(now)
        if not (self.is_warming_up or self._ownership_is_proven(now)):
            return None
        ends = self.log_ends.take(ends, now)
        plan = self.planner.plan(limit, ends, now, leader_epochs)
        if plan is None:
            return None
        if plan.ranges:
            self.pending_offsets.batch_planned()
        self.revocation.budget.batch_began(plan, now)
        self._emit(BatchPlanned(now, plan))
        return plan

    def prepare_available_now(self) -> None:
        """Read each partition up to its end at the time of its assignment, and no further."""
        self.warm_up.tasks = 0
        self.planner.prepare_available_now()
        self.available_now.prepare()

    def hold_revocations(self, is_wanted: bool, now: float) -> None:
        """Hold each revocation for a rebalance listener, within its time budget."""
        self.revocation.hold.is_wanted = is_wanted
        self._advance(now)

    def release_revocation(self, number: int, now: float) -> None:
        """Release a held revocation by the number of its `RevocationHeld`."""
        self.revocation.hold.release(number)
        self._advance(now)

    def leave(self, now: float, *, leave_by: float, will_return: bool = False) -> None:
        """Commit finished batches, then leave the group.

        Args:
            leave_by: When to stop waiting, in seconds.
            will_return: True for a static member that keeps its partitions.
        """
        self.liveness.leaves()
        if self.member.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            return
        self.member.leave(now, will_return=will_return)
        self._leave_by = leave_by
        self._advance(now)

    def expect_calls_every(self, gap_s: float) -> None:
        """Note that the query's trigger calls every `gap_s` seconds."""
        self.liveness.activity.expect_calls_every(gap_s)

    def fail(self, error: AccessError | CheckpointError, now: float) -> None:
        """Fail for good: brokers refuse the credentials, or are not those of the checkpoint."""
        if isinstance(error, CheckpointError):
            self.positions.refusal = error
        else:
            self.member.fail(str(error), now)

    # State.

    @property
    def member_id(self) -> str:
        return self.member.member_id

    @property
    def member_epoch(self) -> int:
        return self.member.member_epoch

    @property
    def state(self) -> MemberState:
        return self.member.state

    @property
    def assigned(self) -> Assignment:
        """The coordinator's current assignment."""
        return self.member.assigned

    @property
    def owned(self) -> Assignment:
        """The assigned partitions, and those to revoke."""
        return self.member.owned

    @property
    def partitions(self) -> Mapping[TopicIdPartition, OwnedPartition]:
        """The state of each owned partition."""
        return self.ledger.owned

    @property
    def instance_deadline(self) -> float | None:
        """When the wait for the instance id ends, None without a wait."""
        return self.member.instance_deadline

    @property
    def coordinator(self) -> Node | None:
        """The group's coordinator, None if unknown."""
        return self.search.node

    @property
    def failing_since(self) -> float | None:
        """Since when the group cannot be reached, None while heartbeats are accepted."""
        return self.search.failing_since

    @property
    def last_failure(self) -> str:
        return self.search.last_failure

    @property
    def is_member(self) -> bool:
        """True from the answer to a join until the member leaves because its query is idle."""
        return self.liveness.is_member

    @property
    def is_warming_up(self) -> bool:
        """True while the next plan is the warm-up plan, or its batch runs before the join."""
        return self.warm_up.is_warming

    @property
    def is_absent(self) -> bool:
        """True while the member is out of the group because its query is idle."""
        return self.liveness.is_absent

    @property
    def may_describe(self) -> bool:
        """False while ConsumerGroupDescribe is refused: pending partitions are not visible."""
        return not self.target.is_refused

    @property
    def is_validating(self) -> bool:
        """True while a new leader must confirm positions."""
        return self.validator.is_waiting

    @property
    def uncommitted(self) -> frozenset[TopicIdPartition]:
        """The partitions with a commit that is not known to be accepted."""
        return self.commits.pending()

    @property
    def pending(self) -> Assignment:
        """Target partitions that their owners have not released, as of the last description."""
        return self.positions.to_read(self.target.pending - self.member.owned)

    def withheld(self) -> tuple[WithheldRange, ...]:
        """Return the unread offsets of the pending partitions."""
        return self.pending_offsets.withheld(self.pending)

    @property
    def is_in_doubt(self) -> bool:
        """True while it is unknown whether all topics of AvailableNow exist and are assigned."""
        return self.available_now.is_in_doubt

    def latest_offsets(self) -> dict[TopicPartition, int]:
        """Return the log ends of the member's partitions, as last listed."""
        ends, name = self.planner.log_ends, self.topics.name
        return {TopicPartition(name(e.topic_id) or "", e.partition): ends[e] for e in ends}

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic id, None if it is unknown."""
        return self.topics.name(topic_id)

    def is_heartbeat_under_way(self, since: float) -> bool:
        """Return whether a heartbeat sent since `since` is unanswered: it may assign partitions."""
        sent_at = self.member.pace.last_sent_at
        is_asking = self._channels.is_under_way(Channel.HEARTBEAT)
        return is_asking and sent_at is not None and sent_at >= since

    def is_resolving(self, since: float) -> bool:
        """Return whether a partition assigned since `since` is not ready."""
        return self._assigned_at >= since and bool(self.ledger.unready())

    def check(self) -> None:
        """Raise what prevents the query from continuing.

        Raises:
            GroupError: The member failed for good.
            CheckpointError, OptionsError: The query cannot start here; see `Positions.check`.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
            AvailableNowError: A named topic does not exist, under AvailableNow.
        """
        if self.member.failure is not None:
            raise GroupError(
                f"group {self.config.member.group_id!r} refused this query: {self.member.failure}"
            )
        self.positions.check()
        self.log_ends.check()
        self.available_now.check()

    @property
    def may_begin_available_now(self) -> bool:
        """True once the member owns its whole target assignment and all named topics exist."""
        return self.is_settled and not self.available_now.is_in_doubt

    def is_available_now_over(self, waited_s: float, now: float) -> bool:
        """Return whether AvailableNow ends, given that there is nothing to read.

        Args:
            waited_s: How long nothing could be read, in seconds.

        Raises:
            AvailableNowError: Partitions are missing, and `availableNowUnsettled` is not `warn`.
        """
        return not self.available_now.is_in_doubt and self.available_now.is_over(
            is_settled=self.is_settled, waited_s=waited_s, now=now
        )

    def knows_all_ends(self, ends: Mapping[TopicIdPartition, int], now: float) -> bool:
        """Return whether "nothing to read" is certain: ownership is proven and all ends are known.

        While an end is doubted or a finished run is unsettled, there may be more to read.
        """
        wanted, ends = self.ledger.positions(self.member.assigned), self.log_ends.usable(ends)
        uncertain = self.validator.doubted() | self.ledger.undecided()
        are_known = all(key in ends and key not in uncertain for key in wanted)
        return self._ownership_is_proven(now) and are_known

    @property
    def is_settled(self) -> bool:
        """True once the member may plan its whole target assignment.

        Without DESCRIBE permission, any non-empty assignment counts as complete.
        """
        has_target = self.target.settled(self.member.member_epoch)
        has_all = has_target or (self.target.is_refused and bool(self.member.assigned))
        return self.member.state is MemberState.STABLE and has_all and not self.ledger.unready()

    @property
    def has_left(self) -> bool:
        return self.member.state is MemberState.UNSUBSCRIBED

    # After every input.

    def _advance(self, now: float) -> None:
        # Usually there is nothing to do: each part has a cheap check for that.
        member = self.member
        self.warm_up.look(now)
        if member.events:
            self._take_member_events(now)
        if self.liveness.must_leave(now):
            # A static member keeps its partitions until its session expires.
            self.leave(now, leave_by=now + LEAVE_S, will_return=True)
        elif self.liveness.may_rejoin():
            self._leave_by = None
            self.search.reached()
            self._drop(Assignment(frozenset(self.ledger.owned)), "the member had left", now)
            member.return_to_group(now)
        # Offsets of an earlier run are committed before their partition is released.
        inheritance = self.ledger.inherit(member.member_epoch)
        if inheritance is not NOTHING_INHERITED:
            self.commits.add(inheritance.commits)
            if inheritance.taken:
                self._emit(RangesInherited(now, inheritance.taken))
            if inheritance.overruled:
                self._emit(RangesOverruled(now, inheritance.overruled))
        is_revoking = bool(member.revoking.partitions) and member.state in _REVOCABLE
        if is_revoking and self.revocation.may_be_acknowledged(now):
            member.acknowledge(now)
            self._take_member_events(now)
        if not member.revoking.partitions:
            self.revocation.hold.forget()
        if self._leave_by is not None:
            self._continue_leaving(now, self._leave_by)
        if member.events:
            self._take_member_events(now)

    def _take_member_events(self, now: float) -> None:
        for event in self.member.poll_events():
            self._emit(event)
            match event:
                case PartitionsAssigned(partitions=partitions):
                    self.positions.assign(partitions, event.member_epoch, now)
                    self._assigned_at = now
                    for key in partitions:
                        self.deleted.unread_when_dropped.pop(key, None)
                    self.target.changed(now)
                case PartitionsRevoked(partitions=partitions):
                    self._drop(partitions, "revoked before they were committed", now)
                    self.target.changed(now)
                case PartitionsLost(partitions=partitions, reason=reason):
                    self._drop(partitions, reason, now)
                    self.target.changed(now)
                case EpochChanged():
                    self.target.changed(now)

    def _drop(self, partitions: Assignment, reason: str, now: float) -> None:
        for key in partitions:
            self.deleted.unread_when_dropped[key] = self.planner.forget(key)
        self.ledger.drop(partitions)
        dropped = {each.key for each in self.commits.drop(partitions)}
        ranges = [self.ledger.uncommitted(key) for key in sorted(dropped)]
        unsettled = tuple(each for each in ranges if each is not None)
        if unsettled:
            self._emit(RangesLost(now, unsettled, reason))

    def _continue_leaving(self, now: float, leave_by: float) -> None:
        if self.member.state is MemberState.PREPARE_LEAVING and (
            not self.commits.is_pending or now >= leave_by
        ):
            self.member.leave_now(now)
        elif self.member.state is MemberState.LEAVING and now >= leave_by:
            self.member.give_up_leaving(now)

    def _ownership_is_proven(self, now: float) -> bool:
        member, proven_at = self.member, self.member.last_accepted_sent_at
        if member.state not in PLANNING or proven_at is None:
            return False
        return now - proven_at <= self.session.proven_for_s(member.pace.interval_s)
