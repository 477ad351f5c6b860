"""The event loop of one partition of `__consumer_offsets`: requests and timers in, answers out.

A write sees the latest state, is applied and appended at once, and is answered after replication. A
read sees the replicated state and is answered at once. A new `Shard` over the same log is a
failover (kafka_protocol.md 2.5; CoordinatorRuntime).
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import (
    admin_requests,
    client_assignment,
    heartbeat,
    leaving,
    offsets,
    subscriptions,
)
from spark_groups.lab.coordinator import messages as m
from spark_groups.lab.coordinator.admin_requests import list_groups
from spark_groups.lab.coordinator.effects import (
    NEWEST_API_VERSION,
    Outcome,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.log import MAX_BATCH_BYTES, Log, Memory, batch_bytes
from spark_groups.lab.coordinator.offsets import expire, forget
from spark_groups.lab.coordinator.profile import Profile
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.lab.coordinator.subscriptions import is_touched, topics_changed
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.protocol.messages import (
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

READS: Final[Mapping[type, Read]] = {DescribeGroupRequest: admin_requests.describe}
"""Answered at once from the replicated state."""
WRITES: Final[Mapping[type, Write]] = {
    m.DeleteGroupsRequest: admin_requests.delete_group,
    HeartbeatRequest: heartbeat.heartbeat,
    m.KipHeartbeatRequest: heartbeat.heartbeat,
    m.LeaveGroupRequest: admin_requests.remove_members,
    OffsetCommitRequest: offsets.commit,
    m.OffsetDeleteRequest: offsets.delete,
    # With requireStable a fetch waits for the commits before it (GroupCoordinatorService).
    OffsetFetchRequest: offsets.fetch,
    m.PrepareAssignmentRequest: client_assignment.prepare,
    m.InstallAssignmentRequest: client_assignment.install,
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
}
LOADED: Final[tuple[OfGroup, ...]] = (leaving.timers_once_loaded, subscriptions.loaded)
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
    """A request under way; `response` is None until it is answered."""

    request: m.CoordinatorRequest
    response: m.CoordinatorResponse | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    """A write that is applied but not replicated.

    Args:
        ticket: The request; None for a timer.
        timers_before: The previous state of its timers, in the order in which they were set.
    """

    ticket: Ticket | None
    response: Any
    timers_before: tuple[tuple[TimerKey, Timer | None], ...]


@dataclass(slots=True)
class Shard:
    """The coordinator of one partition.

    Args:
        log: The partition's log, replayed at the start.
    """

    profile: Profile
    settings: Settings
    topics: TopicsImage
    log: Log
    now: float
    partition: int = 0
    memory: Memory = field(init=False)
    _loaded_at: float = field(init=False)
    _timers: Timers = field(default_factory=Timers)
    _writes: list[_Write] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._loaded_at = self.now
        self.memory = Memory(self.profile.first_group_epoch)
        # Records found in the log are never undone.
        self.log.replicate()
        for record in self.log.replay():
            self.memory.load(record)
        self.memory.keep()
        for group_id in tuple(self.groups):
            for loaded in LOADED:
                group = self.memory.group(group_id)
                self._write(group_id, loaded(group, self.profile, self._context(group_id)))
        self._timers.put(Timer(EXPIRY, self.now + EXPIRY_CHECK_S))

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        """Groups with records, including writes that are not replicated yet."""
        return self.memory.groups

    def submit(
        self,
        request: m.CoordinatorRequest,
        now: float,
        origin: Origin = DEFAULT_ORIGIN,
        api_version: int = NEWEST_API_VERSION,
    ) -> Ticket:
        """Accept a request; its ticket is answered already if nothing must be replicated first."""
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
        """Accept a request, replicate everything at once, and return the answer."""
        ticket = self.submit(request, now, origin, api_version)
        if ticket.response is None:
            self.replicate(now)
        assert ticket.response is not None
        return ticket.response

    def replicate(self, now: float) -> list[Ticket]:
        """Replicate all records, and return the answered requests in their order."""
        self.now = now
        self.log.replicate()
        if self._writes:
            self.memory.keep()
        answered = []
        for write in self._writes:
            if write.ticket:
                write.ticket.response = write.response
                answered.append(write.ticket)
        self._writes.clear()
        return answered

    def fail_append(self, now: float) -> list[Ticket]:
        """Undo all writes that are not replicated, and return their requests in order."""
        self.now = now
        self.log.truncate()
        self.memory.take_back()
        refused = []
        for write in reversed(self._writes):
            for key, timer in reversed(write.timers_before):
                self._timers.put(timer or Timer(key, None))
            if write.ticket:
                write.ticket.response = m.error_answer(
                    write.ticket.request, ErrorCode.COORDINATOR_NOT_AVAILABLE
                )
                refused.append(write.ticket)
        self._writes.clear()
        return refused[::-1]

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
        )

    def _computing(self, group_id: str) -> Timer | None:
        if not self.profile.kip_heartbeats:
            return None
        return self._timers.get(TimerKey(TimerKind.CLIENT_ASSIGNMENT, group_id))

    def _new_member_id(self) -> str:
        """Make a unique id: the record of its member will be at this log offset."""
        return topic_id_text(uuid.uuid5(MEMBER_IDS, f"{self.partition}-{self.log.end_offset}"))

    def _write(
        self,
        group_id: str,
        outcome: Outcome[Any],
        *,
        ticket: Ticket | None = None,
        fired: Timer | None = None,
    ) -> None:
        if batch_bytes(outcome.records) > MAX_BATCH_BYTES:
            self._refuse(ticket, fired)
            return
        timers_before = [(each.key, self._timers.get(each.key)) for each in outcome.timers]
        if fired:
            again = replace(fired, at=self.now + TIMER_RETRY_S)
            timers_before.insert(0, (fired.key, again))
        for timer in outcome.timers:
            self._timers.put(timer)
        if outcome.records:
            self.memory.write(outcome.records)
            self.log.append(outcome.records)
        elif outcome.makes_group:
            self.memory.make(group_id)
        if outcome.topics_version is not None:
            self.memory.group(group_id).topics_version = outcome.topics_version
        if outcome.records or self._writes:
            self._writes.append(_Write(ticket, outcome.response, tuple(timers_before)))
        elif ticket:
            ticket.response = outcome.response

    def _refuse(self, ticket: Ticket | None, fired: Timer | None) -> None:
        """Refuse a batch that is too large (RecordTooLargeException); a timer is retried."""
        if ticket:
            ticket.response = m.error_answer(ticket.request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if fired:
            self._timers.put(replace(fired, at=self.now + TIMER_RETRY_S))
