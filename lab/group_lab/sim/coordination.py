"""The group's coordinator on its nodes: it answers once records are replicated, crashes, moves.

The next node replays the log: all replicated records and, by chance, unreplicated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from itertools import takewhile
from typing import Final, cast

from group_lab.coordinator.classic.group import ClassicState
from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    ClassicHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from group_lab.coordinator.design_0_9.messages import (
    LOADING_ERRORS,
    DesignErrorCode,
    DesignHeartbeatRequest,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.coordinator.effects import CoordinatorErrorCode, TimerKey, TimerKind
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import Log
from group_lab.coordinator.messages import (
    CoordinatorRequest,
    LeaveGroupRequest,
    OffsetDeleteResponse,
    error_answer,
)
from group_lab.coordinator.metrics import Counted, Sensors, metrics
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.records import OffsetCommitKey, OffsetCommitValue
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Origin, Shard, Ticket
from group_lab.sim.chance import Chance
from group_lab.sim.embedded_protocols import assignments_of
from group_lab.sim.network import Reply
from group_lab.sim.schedule import Schedule
from group_lab.sim.storage import Storage
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Outgoing
from spark_groups.types import TopicIdPartition
from spark_groups.values import dataclass

FIRST_NODE: Final = m.Node(1, "broker", 9092)
PASSING_ERRORS: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

_KEEPING_ALIVE: Final = (
    m.HeartbeatResponse,
    ClassicHeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
"""Responses to requests that start the session of a member again."""
_OF_CLASSIC_MEMBERS: Final = (
    JoinGroupRequest,
    SyncGroupRequest,
    ClassicHeartbeatRequest,
    LeaveGroupRequest,
    DesignJoinGroupRequest,
    DesignHeartbeatRequest,
)
"""Requests that change a group in memory without a record."""
STABLE_STATES: Final = ("Stable", "Empty", "Steady", "Ready")
"""The states of a group that does not rebalance; the last two are those of the 0.9 design."""
_REBALANCE_COMPLETES: Final = (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
_ACCEPTED: Final = (ErrorCode.NONE, CoordinatorErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class AcceptedOffset:
    """A commit of one partition that the coordinator accepted.

    Args:
        at: Seconds of the coordinator's clock.
        before: The committed offset before, if any.
        holder: The member that held the partition then, if any.
    """

    at: float
    member_id: str
    key: TopicIdPartition
    committed_offset: int
    before: int | None
    holder: str | None


@dataclass(slots=True)
class _Waiting:
    """A request that is answered when its records are replicated."""

    ticket: Ticket
    reply: Reply
    asked_at: float
    accepted: tuple[AcceptedOffset, ...] = ()
    client_id: str = ""


@dataclass(slots=True)
class Watch:
    """Callbacks for what the coordinator does.

    Args:
        taken_back: Called with an instant: all changes since then were lost before replication.
    """

    changed: Callable[[ConsumerGroup], None] = lambda _: None
    committed: Callable[[AcceptedOffset], None] = lambda _: None
    deleted: Callable[[TopicIdPartition], None] = lambda _: None
    replaced: Callable[[], None] = lambda: None
    taken_back: Callable[[float], None] = lambda _: None


@dataclass(slots=True)
class Coordination:
    """One group's coordinator, on whichever node.

    Args:
        replication_s: The longest replication of a record.
    """

    group_id: str
    profile: Profile
    settings: Settings
    storage: Storage
    schedule: Schedule
    chance: Chance
    replication_s: float
    watch: Watch = field(default_factory=Watch)
    node: m.Node = FIRST_NODE
    former_node: m.Node = FIRST_NODE
    log: Log = field(default_factory=Log)
    removed_for_slowness: set[str] = field(default_factory=set)
    """Members removed because they took too long to revoke."""
    removed_at: dict[str, float] = field(default_factory=dict)
    """When each member was removed by a timeout; seconds."""
    last_heartbeat_at: dict[str, float] = field(default_factory=dict)
    """When each member sent its last accepted heartbeat, or another node took over."""
    failing_until: float = 0.0
    """Appends to the log fail until then."""
    classic_owners: dict[TopicIdPartition, tuple[str, str, int]] = field(default_factory=dict)
    """The runs of classic members that own a partition in their own view, with the member id and
    the generation."""
    sensors: Sensors = field(init=False)
    _shard: Shard = field(init=False)
    _loading: bool = False
    _waiting: list[_Waiting] = field(default_factory=list)
    _parked: list[_Waiting] = field(default_factory=list)
    """JoinGroup and SyncGroup requests that wait for other members."""
    _runs: dict[str, str] = field(default_factory=dict)
    """The run of each consumer of the 0.9 design, by consumer id."""
    _flushing: bool = False
    _appended_at: float | None = None
    """When the first unreplicated record was appended."""
    _wakes_at: float | None = None
    _doomed: Callable[[], None] | None = None
    """Called right after the node's next append."""

    def __post_init__(self) -> None:
        self.sensors = Sensors(self.schedule.now)
        self._shard = self._new_shard()

    def _new_shard(self) -> Shard:
        now = self.schedule.now
        return Shard(self.profile, self.settings, self.storage.image, self.log, now)

    @property
    def group(self) -> ConsumerGroup:
        """The group in the coordinator's memory, replicated or not."""
        return self._shard.memory.group(self.group_id)

    @property
    def state(self) -> str:
        """The state of the group, by the name of its protocol."""
        group = self.group
        return str((group.in_memory or group).state.value)

    @property
    def _classic_state(self) -> ClassicState | None:
        classic = self.group.classic
        return classic.state if classic else None

    @property
    def computing_member_id(self) -> str | None:
        """The member that computes the target now, if any does."""
        timer = self._shard.timer(TimerKey(TimerKind.CLIENT_ASSIGNMENT, self.group_id))
        return timer.computation.member_id if timer and timer.computation else None

    @property
    def epochs(self) -> str:
        """Its generation; of a consumer group the group epoch and the assignment epoch."""
        group = self.group
        if group.in_memory:
            return str(group.in_memory.generation_id)
        return f"{group.group_epoch}/{group.assignment_epoch}"

    @property
    def member_ids(self) -> AbstractSet[str]:
        """The ids of its members."""
        group = self.group
        return (group.in_memory or group).members.keys()

    @property
    def assigned(self) -> dict[TopicIdPartition, str]:
        """The member of each assigned partition, in the coordinator's view.

        The coordinator of a classic group carries assignments without reading them.
        """
        group = self.group
        if not group.in_memory:
            members = group.members.values()
            return {key: member.member_id for member in members for key in member.assigned}
        by_name = self.storage.image.by_name
        return {
            TopicIdPartition(by_name[each.topic].topic_id, each.partition): member_id
            for member_id, partitions in assignments_of(group.in_memory).items()
            for each in partitions
            if each.topic in by_name
        }

    @property
    def passing_errors(self) -> Sequence[int]:
        """The errors with which a broker refuses a request for a moment."""
        if not self.profile.assigns_in_join:
            return PASSING_ERRORS
        return [
            passing_error
            for passing_error in PASSING_ERRORS
            if int(passing_error) in {*DesignErrorCode}
        ]

    def shown_id(self, member_id: str) -> str:
        """Return a member id that begins with the run; a consumer id of the 0.9 design does not."""
        run = self._runs.get(member_id)
        return f"{run}-{member_id}" if run else member_id

    @property
    def answers(self) -> bool:
        """False while its node is still reading the log."""
        return not self._loading

    def holder(self, key: TopicIdPartition) -> str | None:
        """Return the member that has a partition, or has not released it yet.

        In a classic group only the members know it.
        """
        group = self.group
        if group.in_memory:
            _, owner, _ = self.classic_owners.get(key, ("", None, 0))
            return owner
        for member in group.members.values():
            if key in member.assigned or key in member.pending_revocation:
                return member.member_id
        return None

    def committed(self, key: TopicIdPartition) -> int | None:
        """Return the committed offset of a partition, if any."""
        kept = self.kept(key)
        return kept.committed_offset if kept else None

    def kept(self, key: TopicIdPartition) -> OffsetCommitValue | None:
        """Return the committed offset of a partition with its metadata, if any."""
        name = self.storage.name_of(key.topic_id)
        value = self.group.offsets.get((name or "", key.partition))
        is_of_topic = value is not None and value.topic_id in (None, key.topic_id)
        return value if is_of_topic else None

    def metrics(self) -> dict[str, float]:
        """Return the coordinator's metrics by the names of its profile."""
        groups = [self.group] if self.group.exists else []
        now = self.schedule.now
        return metrics(self.sensors, groups, self.profile, now, is_loading=self._loading)

    # Requests.

    def serve(self, outgoing: Outgoing, origin: Origin, error_code: int, reply: Reply) -> None:
        """Submit a request to the coordinator.

        Args:
            error_code: An error to refuse the request with, or NONE.
            reply: Called with the answer, or with None if the node died first.
        """
        if outgoing.node != self.node:
            error_code = ErrorCode.NOT_COORDINATOR
        elif self._loading:
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            error_code = LOADING_ERRORS.get(type(outgoing.request), loading)
        if error_code:
            reply(error_answer(outgoing.request, error_code))
            return
        request = cast(CoordinatorRequest, outgoing.request)
        accepted: tuple[AcceptedOffset, ...] = ()
        if isinstance(request, m.OffsetCommitRequest):
            accepted = tuple(self._accepted(request))
        is_classic = isinstance(request, _OF_CLASSIC_MEMBERS)
        before = self.group.in_memory if is_classic else None
        ticket = self._shard.submit(request, self.schedule.now, origin)
        waiting = _Waiting(ticket, reply, self.schedule.now, accepted, origin.client_id)
        if ticket.response is not None:
            self._answer(waiting)
        elif is_classic and not isinstance(request, LeaveGroupRequest):
            self._parked.append(waiting)
            self._changed()
        else:
            self._waiting.append(waiting)
            self._changed()
        if is_classic and before is not self.group.in_memory:
            # It changes without records as well.
            self._changed()
        if self._parked:
            self._answer_parked()

    def _answer_parked(self) -> None:
        """Answer the parked requests for which the coordinator has an answer by now."""
        parked, self._parked = self._parked, []
        for each in parked:
            if each.ticket.response is None:
                self._parked.append(each)
            else:
                each.asked_at = self.schedule.now
                self._answer(each)

    def _accepted(self, request: m.OffsetCommitRequest) -> list[AcceptedOffset]:
        return [
            AcceptedOffset(
                self.schedule.now,
                request.member_id,
                key,
                offset.committed_offset,
                self.committed(key),
                self.holder(key),
            )
            for key, offset in request.offsets.items()
        ]

    def _answer(self, waiting: _Waiting) -> None:
        response = waiting.ticket.response
        self._note(waiting)
        waiting.reply(response)  # type: ignore[arg-type]

    def _note(self, waiting: _Waiting) -> None:
        response, request = waiting.ticket.response, waiting.ticket.request
        if isinstance(response, m.OffsetCommitResponse):
            for each in waiting.accepted:
                if response.errors.get(each.key) == ErrorCode.NONE:
                    self.watch.committed(each)
        elif isinstance(response, _KEEPING_ALIVE) and response.error_code in _ACCEPTED:
            member_id = getattr(response, "member_id", "") or getattr(request, "member_id", "")
            if member_id in self.group.members:
                self.last_heartbeat_at[member_id] = waiting.asked_at
        elif isinstance(response, OffsetDeleteResponse):
            deleted = sorted(name for name, code in response.errors.items() if not code)
            self.sensors.count(Counted.DELETIONS, self.schedule.now, len(deleted))
            for name in deleted:
                topic = self.storage.image.by_name.get(name.topic)
                if topic is not None:
                    self.watch.deleted(TopicIdPartition(topic.topic_id, name.partition))
        elif isinstance(response, DesignJoinGroupResponse) and response.consumer_id:
            self._runs[response.consumer_id] = waiting.client_id

    def _changed(self) -> None:
        if self._appended_at is None:
            self._appended_at = self.schedule.now
        for member_id in self.last_heartbeat_at.keys() - self.group.members.keys():
            # If the member returns, its session starts from the beginning.
            del self.last_heartbeat_at[member_id]
        self.watch.changed(self.group)
        if not self._flushing:
            self._flushing = True
            self.schedule.after(self.chance.uniform(0.0, self.replication_s), self._flush)
        if self._doomed is not None:
            self.schedule.after(0.0, self._doomed)
            self._doomed = None
        self._set_alarm()

    def _flush(self) -> None:
        self._flushing = False
        if self._loading:
            return
        now, before = self.schedule.now, self.group.in_memory
        waiting = self._settled(is_lost=now < self.failing_until)
        if self.group.in_memory is not before:
            # A generation is in force before its members learn of it.
            self.watch.changed(self.group)
        for each in waiting:
            self._answer(each)
        self._answer_parked()
        if now < self.failing_until:
            self.watch.changed(self.group)
        self._set_alarm()

    def _settled(self, *, is_lost: bool) -> list[_Waiting]:
        """Replicate the appended records, or lose them; return the requests that waited."""
        waiting, self._waiting = self._waiting, []
        appended_at, self._appended_at = self._appended_at, None
        if not is_lost:
            self._measure(waiting)
            before = self._classic_state
            self._shard.replicate(self.schedule.now)
            if (before, self._classic_state) == _REBALANCE_COMPLETES:
                self.sensors.count(Counted.CLASSIC_REBALANCES, self.schedule.now)
            return waiting
        self._shard.fail_append(self.schedule.now)
        if appended_at is not None:
            self.watch.taken_back(appended_at)
        return waiting

    def _measure(self, waiting: list[_Waiting]) -> None:
        now = self.schedule.now
        for each in waiting:
            self.sensors.purgatory.record(now, now - each.asked_at)
        for batch in reversed(self.log.batches):
            if batch.base_offset < self.log.high_watermark:
                break
            self.sensors.replicated(batch.records, self.profile, now)

    # Timers.

    def _set_alarm(self) -> None:
        due_at = self._shard.next_wakeup()
        if due_at is not None and due_at != self._wakes_at:
            self._wakes_at = due_at
            self.schedule.at(due_at, lambda: self._wake(due_at))

    def _wake(self, due_at: float) -> None:
        if self._loading or self._wakes_at != due_at:
            return
        self._wakes_at = None
        now, before = self.schedule.now, set(self.member_ids)
        end_offset = self.log.end_offset
        fired = self._shard.wake(now)
        self.sensors.count(Counted.EXPIRATIONS, now, self._removed_offsets(end_offset))
        for member_id in before - self.member_ids:
            self.removed_at[member_id] = now
            if TimerKey(TimerKind.REBALANCE, self.group_id, member_id) in fired:
                self.removed_for_slowness.add(member_id)
        if self.log.end_offset != end_offset or self.group.in_memory:
            self._changed()
        else:
            self._set_alarm()
        self._answer_parked()

    def _removed_offsets(self, since_offset: int) -> int:
        """Return how many committed offsets the batches from an offset of the log on remove."""
        batches = takewhile(lambda each: each.base_offset >= since_offset, self.log.batches[::-1])
        records = (record for batch in batches for record in batch.records)
        return sum(isinstance(each.key, OffsetCommitKey) and each.value is None for each in records)

    # What happens to it.

    @property
    def forgets_deleted_topics(self) -> bool:
        """False while deleting a topic would leave its offsets behind.

        Kafka tries once to delete them (onPartitionsDeleted). Until 4.1, offsets are stored by
        topic name: those left behind then belong to the next topic of this name.
        """
        is_able = not self._loading and self.schedule.now >= self.failing_until
        return is_able or self.profile.commits_topic_ids

    def topics_changed(self) -> None:
        """Give the coordinator the current topics."""
        if not self._loading:
            self._shard.set_topics(self.storage.image, self.schedule.now)
            self._changed()
            self._flush()

    def move(self, loading_s: float, *, crash: bool) -> None:
        """Move the coordinator to another node.

        Args:
            crash: Whether the node dies and may lose unreplicated records, instead of resigning
                in order.
        """
        if self._loading:
            return
        is_lost = crash and self.chance.random() < 0.5
        waiting = self._settled(is_lost=is_lost)
        for each in waiting:
            if not is_lost:
                self._note(each)
            each.reply(None if crash else each.ticket.response)  # type: ignore[arg-type]
        parked, self._parked = self._parked, []
        for each in parked:
            answer = error_answer(each.ticket.request, ErrorCode.NOT_COORDINATOR)
            each.reply(None if crash else each.ticket.response or answer)  # type: ignore[arg-type]
        if self.chance.random() < 0.5:
            self.log.compact(self.chance.randint(0, self.log.end_offset))
        self.former_node = self.node
        self.node = replace(self.node, node_id=self.node.node_id + 1)
        self._loading, self._wakes_at = True, None
        self.watch.changed(self.group)
        self.watch.replaced()
        self.schedule.after(loading_s, lambda: self._loaded(loading_s))

    def die_at_next_append(self, loading_s: float) -> None:
        """Crash the node between its next append and the replication."""
        self._doomed = lambda: self.move(loading_s, crash=True)

    def _loaded(self, loading_s: float) -> None:
        self._loading = False
        now = self.schedule.now
        self.sensors.load.record(now, loading_s)
        self._shard = self._new_shard()
        self.last_heartbeat_at = dict.fromkeys(self.group.members, now)
        self._changed()
