"""The event loop of one partition of `__consumer_offsets`: requests and timers in, answers out.

A write sees the latest state, is applied and appended at once, and is answered after replication. A
read sees the replicated state and is answered at once. A new `Shard` over the same log is a
failover (kafka_protocol.md 2.5; CoordinatorRuntime).

JoinGroup and SyncGroup of classic groups, and JoinGroup of the 0.9 design, may be parked: their
tickets have no response until another request, a timer, an append or `unload` answers them, and
then `take_answered` returns them.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Final

from group_lab.coordinator import (
    admin_requests,
    client_assignment,
    heartbeat,
    leaving,
    offsets,
    subscriptions,
)
from group_lab.coordinator import messages as m
from group_lab.coordinator.admin_requests import list_groups
from group_lab.coordinator.classic import join, membership, rebalance, sync
from group_lab.coordinator.classic.group import ClassicGroup
from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)
from group_lab.coordinator.design_0_9 import join as design_join
from group_lab.coordinator.design_0_9 import membership as design_membership
from group_lab.coordinator.design_0_9 import rebalance as design_rebalance
from group_lab.coordinator.design_0_9.messages import DesignHeartbeatRequest, DesignJoinGroupRequest
from group_lab.coordinator.effects import (
    NEWEST_API_VERSION,
    Appended,
    Outcome,
    Parked,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import MAX_BATCH_BYTES, Log, Memory, batch_bytes
from group_lab.coordinator.offsets import expire, forget
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.records import ClassicGroupMetadataKey, Record
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.subscriptions import is_touched, topics_changed
from group_lab.coordinator.topic_images import TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from spark_groups.types import topic_id_text
from spark_groups.values import dataclass

Read = Callable[[ConsumerGroup, Any, Profile, RequestContext], m.CoordinatorResponse]
Write = Callable[[ConsumerGroup, Any, Profile, RequestContext], Outcome[Any]]
Fired = Callable[[ConsumerGroup, Timer, Profile, RequestContext], Outcome[None]]
OfGroup = Callable[[ConsumerGroup, Profile, RequestContext], Outcome[None]]

READS: Final[Mapping[type, Read]] = {
    DescribeGroupRequest: admin_requests.describe,
    DescribeGroupsRequest: admin_requests.describe_classic,
}
"""Answered at once from the replicated state."""
WRITES: Final[Mapping[type, Write]] = {
    m.DeleteGroupsRequest: admin_requests.delete_group,
    HeartbeatRequest: heartbeat.heartbeat,
    m.KipHeartbeatRequest: heartbeat.heartbeat,
    ClassicHeartbeatRequest: membership.heartbeat,
    DesignHeartbeatRequest: design_membership.heartbeat,
    DesignJoinGroupRequest: design_join.join,
    JoinGroupRequest: join.join,
    m.LeaveGroupRequest: membership.leave,
    OffsetCommitRequest: offsets.commit,
    m.OffsetDeleteRequest: offsets.delete,
    # With requireStable a fetch waits for the commits before it (GroupCoordinatorService).
    OffsetFetchRequest: offsets.fetch,
    m.PrepareAssignmentRequest: client_assignment.prepare,
    m.InstallAssignmentRequest: client_assignment.install,
    SyncGroupRequest: sync.sync,
}
"""Answered from the latest state, after replication."""
FIRED: Final[Mapping[TimerKind, Fired]] = {
    TimerKind.SESSION: leaving.timed_out,
    TimerKind.REBALANCE: leaving.timed_out,
    TimerKind.JOIN: leaving.timed_out,
    TimerKind.SYNC: leaving.timed_out,
    TimerKind.CLIENT_ASSIGNMENT: client_assignment.timed_out,
    TimerKind.REGEX: lambda group, _timer, *rest: subscriptions.look_up_patterns(group, *rest),
    TimerKind.ASSIGNMENT: heartbeat.target_due,
    **rebalance.FIRED,
    **design_rebalance.FIRED,
}
IN_MEMORY: Final = rebalance.FIRED.keys() | design_rebalance.FIRED.keys()
"""Timers of groups in memory, which a failed append does not undo."""
LOADED: Final[tuple[OfGroup, ...]] = (
    leaving.timers_once_loaded,
    subscriptions.loaded,
    rebalance.loaded,
    design_rebalance.loaded,
)
"""Applied in this order to each group of a loaded log."""


@dataclass(slots=True)
class Timers:
    """Timers that are set; those due at the same time fire in the order in which they were set.

    The queue entry of a replaced timer stays, and is skipped later.
    """

    _by_key: dict[TimerKey, tuple[int, Timer]] = field(default_factory=dict)
    _queue: list[tuple[float, int, TimerKey]] = field(default_factory=list)
    _count: int = 0

    def get(self, key: TimerKey) -> Timer | None:
        """Return the timer with a key, if set."""
        found = self._by_key.get(key)
        return found[1] if found else None

    def put(self, timer: Timer) -> None:
        """Set or stop a timer."""
        if timer.at is None:
            self._by_key.pop(timer.key, None)
            return
        if timer.keeps_earlier and timer.key in self._by_key:
            return
        self._count += 1
        self._by_key[timer.key] = (self._count, timer)
        heapq.heappush(self._queue, (timer.at, self._count, timer.key))

    def next_at(self) -> float | None:
        """Return when the next timer fires, in seconds."""
        while self._queue:
            at, number, key = self._queue[0]
            found = self._by_key.get(key)
            if found is not None and found[0] == number:
                return at
            heapq.heappop(self._queue)
        return None

    def pop_due(self, now: float) -> Timer | None:
        """Remove and return the next due timer."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._queue)
        return self._by_key.pop(key)[1]


TIMER_RETRY_S: Final = 0.5
"""Delay before a timer is retried after a failed append (CoordinatorTimer)."""
EXPIRY_CHECK_S: Final = 600.0
"""`offsets.retention.check.interval.ms`."""
EXPIRY: Final = TimerKey(TimerKind.EXPIRY, "")
RECORDS_APART: Final = 1000
"""Tombstones per batch; they fit even with the longest names."""
MEMBER_IDS: Final = uuid.UUID("5f0c3a4e-6a51-4f0e-9b0e-5f6f6d656d62")
"""The UUID namespace of generated member ids."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The client of a request."""

    client_id: str = ""
    client_host: str = "/127.0.0.1"


DEFAULT_ORIGIN: Final = Origin()


@dataclass(slots=True, eq=False)
class Ticket:
    """A request under way; `response` is None until it is answered.

    A request of a classic member may be parked for minutes, see `Shard.take_answered`.
    """

    request: m.CoordinatorRequest
    response: m.CoordinatorResponse | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    """A write that is applied but not replicated.

    Args:
        ticket: The request; None for a timer, and for a request that is parked or answered.
        timers_before: The previous state of its timers, in the order in which they were set.
        classic_before: The classic group that its tombstone removed from memory, if any.
        makes_classic: It made a classic group of a consumer group.
        parked: The request and its key, if it is parked.
    """

    group_id: str
    ticket: Ticket | None
    response: Any
    timers_before: tuple[tuple[TimerKey, Timer | None], ...]
    appended: Appended | None = None
    classic_before: ClassicGroup | None = None
    makes_classic: bool = False
    parked: tuple[Parked, Ticket] | None = None


@dataclass(slots=True)
class Shard:
    """The coordinator of one partition.

    Args:
        log: The partition's log, replayed at the start.
        make_classic_id: Makes the member id of a classic member from its client id or instance id;
            by default ids that are the same for the same requests.
    """

    profile: Profile
    settings: Settings
    topics: TopicsImage
    log: Log
    now: float
    partition: int = 0
    make_classic_id: Callable[[str], str] | None = None
    memory: Memory = field(init=False)
    _loaded_at: float = field(init=False)
    _timers: Timers = field(default_factory=Timers)
    _writes: list[_Write] = field(default_factory=list)
    _parked: dict[Parked, Ticket] = field(default_factory=dict)
    _answered: list[Ticket] = field(default_factory=list)
    _classic_ids: int = 0

    def __post_init__(self) -> None:
        self._loaded_at = self.now
        self.memory = Memory(self.profile.first_group_epoch)
        # Records found in the log are never undone.
        self.log.replicate()
        for record in self.log.replay():
            self.memory.load(record)
        self.memory.keep()
        self.memory.load_in_memory()
        for group_id in tuple(self.groups):
            for loaded in LOADED:
                group = self.memory.group(group_id)
                self._write(group_id, loaded(group, self.profile, self._context(group_id)))
        self._timers.put(Timer(EXPIRY, self.now + EXPIRY_CHECK_S))

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        """Groups with records, including writes that are not replicated yet."""
        return self.memory.groups

    @property
    def parked(self) -> Mapping[Parked, Ticket]:
        """The JoinGroup and SyncGroup requests that wait for an answer."""
        return self._parked

    def submit(
        self,
        request: m.CoordinatorRequest,
        now: float,
        origin: Origin = DEFAULT_ORIGIN,
        api_version: int = NEWEST_API_VERSION,
    ) -> Ticket:
        """Accept a request; its ticket is answered already if nothing must be replicated first.

        The tickets of other, parked requests that it answers come from `take_answered`.
        """
        self.now = now
        ticket = Ticket(request)
        if isinstance(request, m.ListGroupsRequest):
            ticket.response = list_groups(self.memory.all_replicated(), request)
            return ticket
        group_id = request.group_id
        context = self._context(group_id, origin, api_version)
        if read := READS.get(type(request)):
            ticket.response = read(self.memory.replicated(group_id), request, self.profile, context)
            return ticket
        write = WRITES[type(request)]
        outcome = write(self.memory.group(group_id), request, self.profile, context)
        self._write(group_id, outcome, ticket=ticket)
        return ticket

    def ask(
        self,
        request: m.CoordinatorRequest,
        now: float,
        origin: Origin = DEFAULT_ORIGIN,
        api_version: int = NEWEST_API_VERSION,
    ) -> m.CoordinatorResponse:
        """Accept a request, replicate everything at once, and return the answer.

        A JoinGroup or SyncGroup that is parked has none: submit it.
        """
        ticket = self.submit(request, now, origin, api_version)
        if ticket.response is None:
            self.replicate(now)
        assert ticket.response is not None
        return ticket.response

    def replicate(self, now: float) -> list[Ticket]:
        """Replicate all records, and return the answered requests in their order.

        The parked requests that it answers come from `take_answered`.
        """
        self.now = now
        self.log.replicate()
        if self._writes:
            self.memory.keep()
        answered = []
        writes, self._writes = self._writes, []
        for write in writes:
            if write.ticket:
                write.ticket.response = write.response
                answered.append(write.ticket)
            self._settle(write, ErrorCode.NONE)
        return answered

    def fail_append(self, now: float) -> list[Ticket]:
        """Undo all writes that are not replicated, and return their requests in order.

        The parked requests that it answers come from `take_answered`.
        """
        self.now = now
        self.log.truncate()
        self.memory.take_back()
        refused = []
        writes, self._writes = self._writes, []
        for write in reversed(writes):
            for key, timer in reversed(write.timers_before):
                self._timers.put(timer or Timer(key, None))
            if write.makes_classic:
                self._settle(write, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._forget_classic(write.group_id)
            if write.classic_before:
                self.memory.set_classic(write.group_id, write.classic_before)
            if write.ticket:
                write.ticket.response = m.error_answer(
                    write.ticket.request, ErrorCode.COORDINATOR_NOT_AVAILABLE
                )
                refused.append(write.ticket)
        for write in writes:
            if not write.makes_classic:
                self._settle(write, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if write.parked:
                self._refuse_parked(*write.parked)
        return refused[::-1]

    def take_answered(self) -> list[Ticket]:
        """Return the parked requests answered since the last call, in the order of their answers.

        Call it after every other call: `submit`, `replicate`, `fail_append`, `wake`, `set_topics`,
        `unload`. A parked request stays unanswered for ever if its member sends another one, or
        leaves while its SyncGroup is parked, unless records that it waits for are lost.
        """
        answered, self._answered = self._answered, []
        return answered

    def unload(self, now: float) -> None:
        """Answer all parked requests NOT_COORDINATOR: another node takes over."""
        self.now = now
        for parked, ticket in self._parked.items():
            ticket.response = m.error_answer(ticket.request, ErrorCode.NOT_COORDINATOR)
            if isinstance(ticket.response, JoinGroupResponse):
                ticket.response = replace(ticket.response, member_id=parked.member_id)
            self._answered.append(ticket)
        self._parked.clear()

    def timer(self, key: TimerKey) -> Timer | None:
        """Return a timer, if it is set."""
        return self._timers.get(key)

    def next_wakeup(self) -> float | None:
        """Return when the next timer fires, in seconds; None without timers."""
        return self._timers.next_at()

    def wake(self, now: float) -> set[TimerKey]:
        """Fire all due timers and return their keys."""
        self.now = now
        fired: set[TimerKey] = set()
        while timer := self._timers.pop_due(now):
            fired.add(timer.key)
            if timer.key == EXPIRY:
                self._expire()
                continue
            group_id = timer.key.group_id
            fire = FIRED[timer.key.kind]
            outcome = fire(
                self.memory.group(group_id), timer, self.profile, self._context(group_id)
            )
            self._write(group_id, outcome, fired=timer)
        return fired

    def set_topics(self, topics: TopicsImage, now: float) -> None:
        """Use new topics; the offsets of deleted ones are deleted."""
        self.now = now
        before, self.topics = self.topics, topics
        deleted = topics.deleted_since(before)
        for group_id, group in tuple(self.groups.items()):
            if group.topics_version == before.version and not is_touched(group, before, topics):
                group.topics_version = topics.version
            if deleted:
                self._write_apart(group_id, forget(group, deleted))
            changed = topics_changed(
                self.memory.group(group_id), self.profile, self._context(group_id)
            )
            if changed.records:
                self._write(group_id, changed)
            rebalanced = design_rebalance.topics_changed(group.design, self._context(group_id))
            if rebalanced.design:
                self._write(group_id, rebalanced)

    def set_settings(self, settings: Settings, now: float) -> None:
        """Use new settings from the next request or timer on."""
        self.now = now
        self.settings = settings

    def _expire(self) -> None:
        """Delete old offsets and groups, in several batches if necessary."""
        for group_id in (*self.groups, *sorted(self.memory.bare)):
            group = self.memory.group(group_id)
            outcome = expire(group, self.profile, self._context(group_id))
            self._write_apart(group_id, outcome.records)
        self._timers.put(Timer(EXPIRY, self.now + EXPIRY_CHECK_S))

    def _write_apart(self, group_id: str, records: tuple[Record, ...]) -> None:
        for start in range(0, len(records), RECORDS_APART):
            self._write(group_id, Outcome(None, records[start : start + RECORDS_APART]))

    def _context(
        self, group_id: str, origin: Origin = DEFAULT_ORIGIN, api_version: int = NEWEST_API_VERSION
    ) -> RequestContext:
        return RequestContext(
            now=self.now,
            topics=self.topics,
            settings=self.settings,
            client_id=origin.client_id,
            client_host=origin.client_host,
            new_member_id=self._new_member_id,
            api_version=api_version,
            computing=self._computing(group_id),
            loaded_at=self._loaded_at,
            new_classic_id=self.make_classic_id or self._new_classic_id,
        )

    def _computing(self, group_id: str) -> Timer | None:
        if not self.profile.kip_heartbeats:
            return None
        return self.timer(TimerKey(TimerKind.CLIENT_ASSIGNMENT, group_id))

    def _new_member_id(self) -> str:
        """Make a unique id: the record of its member will be at this log offset."""
        return topic_id_text(uuid.uuid5(MEMBER_IDS, f"{self.partition}-{self.log.end_offset}"))

    def _new_classic_id(self, prefix: str) -> str:
        """Make a member id as Kafka does: no other coordinator of the partition makes it again."""
        self._classic_ids += 1
        place = f"{self.partition}-{self._loaded_at}-{self.log.end_offset}"
        name = f"classic-{place}-{self._classic_ids}"
        return f"{prefix}-{uuid.uuid5(MEMBER_IDS, name)}"

    def _write(
        self,
        group_id: str,
        outcome: Outcome[Any],
        *,
        ticket: Ticket | None = None,
        fired: Timer | None = None,
    ) -> None:
        makes_classic = bool(outcome.classic) and self.memory.group(group_id).is_consumer_group
        parked = (outcome.parks, ticket) if ticket and outcome.parks else None
        ticket = self._answer(group_id, outcome, ticket)
        if batch_bytes(outcome.records) > MAX_BATCH_BYTES:
            self._refuse(group_id, outcome, ticket, fired)
            if makes_classic:
                self._forget_classic(group_id)
            return
        timers_before = [
            (each.key, self._timers.get(each.key))
            for each in outcome.timers
            if each.key.kind not in IN_MEMORY
        ]
        if fired and fired.key.kind not in IN_MEMORY:
            again = replace(fired, at=self.now + TIMER_RETRY_S)
            timers_before.insert(0, (fired.key, again))
        for timer in outcome.timers:
            self._timers.put(timer)
        classic_before = self._remove_classic(group_id, outcome)
        if outcome.records:
            self.memory.write(outcome.records)
            self.log.append(outcome.records)
        elif outcome.makes_group:
            self.memory.make(group_id)
        if outcome.topics_version is not None:
            self.memory.group(group_id).topics_version = outcome.topics_version
        if outcome.records or self._writes:
            self._writes.append(
                _Write(
                    group_id,
                    ticket,
                    outcome.response,
                    tuple(timers_before),
                    outcome.appended,
                    classic_before,
                    makes_classic,
                    parked,
                )
            )
        elif ticket:
            ticket.response = outcome.response

    def _answer(self, group_id: str, outcome: Outcome[Any], ticket: Ticket | None) -> Ticket | None:
        """Change a classic group, and answer what it answers; return the ticket left to answer."""
        if outcome.classic:
            self.memory.set_classic(group_id, outcome.classic)
        if outcome.design:
            self.memory.set_design(outcome.design)
        if ticket and outcome.parks:
            self._parked[outcome.parks] = ticket
            ticket = None
        elif ticket and outcome.answers_at_once:
            ticket.response = outcome.response
            ticket = None
        for answer in outcome.answers:
            waiting = self._parked.pop(answer.parked, None)
            if waiting and answer.response:
                waiting.response = answer.response
                self._answered.append(waiting)
        return ticket

    def _remove_classic(self, group_id: str, outcome: Outcome[Any]) -> ClassicGroup | None:
        """Forget a classic group that is deleted or converted, and return it."""
        deletes = any(
            isinstance(record.key, ClassicGroupMetadataKey) and record.value is None
            for record in outcome.records
        )
        if not (deletes or outcome.removes_classic):
            return None
        before = self.memory.classic.get(group_id)
        self._forget_classic(group_id)
        return before

    def _forget_classic(self, group_id: str) -> None:
        """Remove a classic group from memory; nothing answers its parked requests any more."""
        self.memory.set_classic(group_id, None)
        for each in [each for each in self._parked if each.group_id == group_id]:
            del self._parked[each]

    def _settle(self, write: _Write, error_code: int) -> None:
        """Tell a group that is in memory that its records are replicated or lost."""
        memory, group_id = self.memory, write.group_id
        in_memory = memory.classic.get(group_id) or memory.designs.get(group_id)
        if write.appended and in_memory:
            outcome = write.appended(in_memory, error_code, self._context(group_id))
            # Kafka drops the records of a rebalance that a failed append begins.
            self._write(write.group_id, replace(outcome, records=()))

    def _refuse_parked(self, key: Parked, ticket: Ticket) -> None:
        """Refuse a parked request: its own records, or those before it, are lost.

        Its member still counts as one that waits, as in Kafka.
        """
        # One that has replaced it is refused as well: it waits for the same records.
        self._parked.pop(key, None)
        if ticket.response is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            ticket.response = m.error_answer(ticket.request, code)
            self._answered.append(ticket)

    def _refuse(
        self, group_id: str, outcome: Outcome[Any], ticket: Ticket | None, fired: Timer | None
    ) -> None:
        """Refuse a batch that is too large (RecordTooLargeException); a timer is retried."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if ticket:
            ticket.response = m.error_answer(ticket.request, code)
        if fired:
            self._timers.put(replace(fired, at=self.now + TIMER_RETRY_S))
        if outcome.classic or outcome.design:
            for timer in outcome.timers:
                self._timers.put(timer)
            self._settle(_Write(group_id, None, None, (), outcome.appended), code)
