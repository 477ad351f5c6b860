"""The event loop of one partition of `__consumer_offsets`: requests and timers in, answers out.

A write sees the latest state, is applied and appended at once, and is answered when it is
replicated. A read sees what is replicated and is answered at once. There is one copy of the state:
what an append may have to take back is kept beside it, newest last. A new `Shard` over the same log
is a fail-over (kafka_protocol.md 2.5; CoordinatorRuntime).
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
from spark_groups.lab.coordinator.messages import (
    CoordinatorRequest,
    CoordinatorResponse,
    DeleteGroupsRequest,
    InstallAssignmentRequest,
    KipHeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    PrepareAssignmentRequest,
    error_answer,
)
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

Read = Callable[[ConsumerGroup, Any, Profile, RequestContext], CoordinatorResponse]
Write = Callable[[ConsumerGroup, Any, Profile, RequestContext], Outcome[Any]]
Fired = Callable[[ConsumerGroup, Timer, Profile, RequestContext], Outcome[None]]
OfGroup = Callable[[ConsumerGroup, Profile, RequestContext], Outcome[None]]

READS: Final[Mapping[type, Read]] = {DescribeGroupRequest: admin_requests.describe}
"""What is answered from what is replicated, at once."""
WRITES: Final[Mapping[type, Write]] = {
    DeleteGroupsRequest: admin_requests.delete_group,
    HeartbeatRequest: heartbeat.heartbeat,
    KipHeartbeatRequest: heartbeat.heartbeat,
    LeaveGroupRequest: admin_requests.remove_members,
    OffsetCommitRequest: offsets.commit,
    OffsetDeleteRequest: offsets.delete,
    # With requireStable a fetch waits for the commits before it (GroupCoordinatorService).
    OffsetFetchRequest: offsets.fetch,
    PrepareAssignmentRequest: client_assignment.prepare,
    InstallAssignmentRequest: client_assignment.install,
}
"""What is answered from the latest state, once its records are replicated."""
FIRED: Final[Mapping[TimerKind, Fired]] = {
    TimerKind.SESSION: leaving.timed_out,
    TimerKind.REBALANCE: leaving.timed_out,
    TimerKind.CLIENT_ASSIGNMENT: client_assignment.given_up,
    TimerKind.REGEX: lambda group, _timer, *rest: subscriptions.look_up_patterns(group, *rest),
    TimerKind.ASSIGNMENT: heartbeat.target_due,
}
"""What a timer does."""
LOADED: Final[tuple[OfGroup, ...]] = (leaving.timers_once_loaded, subscriptions.loaded)
"""What is done, in this order, for each group of a log that another coordinator wrote."""


@dataclass(slots=True)
class Timers:
    """Timers that are set; those of one instant fire in the order in which they were set.

    A timer that is set anew leaves its old place in the queue behind, which is skipped later.
    """

    _by_key: dict[TimerKey, tuple[int, Timer]] = field(default_factory=dict)
    _queue: list[tuple[float, int, TimerKey]] = field(default_factory=list)
    _count: int = 0

    def get(self, key: TimerKey) -> Timer | None:
        """Return the timer of a key, None if it is not set."""
        found = self._by_key.get(key)
        return found[1] if found else None

    def put(self, timer: Timer) -> None:
        """Set a timer, or stop it."""
        if timer.at is None:
            self._by_key.pop(timer.key, None)
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
        """Take out the next timer that is due."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, _, key = heapq.heappop(self._queue)
        return self._by_key.pop(key)[1]


TIMER_RETRY_S: Final = 0.5
"""When a timer fires again whose records could not be appended (CoordinatorTimer)."""
EXPIRY_CHECK_S: Final = 600.0
"""How often old offsets are looked for (`offsets.retention.check.interval.ms`)."""
EXPIRY: Final = TimerKey(TimerKind.EXPIRY, "")
RECORDS_APART: Final = 1000
"""So many tombstones fit into a batch, however long their names are."""
MEMBER_IDS: Final = uuid.UUID("5f0c3a4e-6a51-4f0e-9b0e-5f6f6d656d62")
"""The name space of the member ids that a shard makes."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from."""

    client_id: str = ""
    client_host: str = "/127.0.0.1"


NOBODY: Final = Origin()


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that a shard took; `response` is None until it is answered."""

    request: CoordinatorRequest
    response: CoordinatorResponse | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    """What is applied and not replicated yet.

    Args:
        ticket: Who waits for it; None for a timer.
        timers_before: What its timers were, in the order in which they were set.
    """

    ticket: Ticket | None
    response: Any
    timers_before: tuple[tuple[TimerKey, Timer | None], ...]


@dataclass(slots=True)
class Shard:
    """One partition's coordinator.

    Args:
        log: The partition's log, which is replayed.
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
        # What a new coordinator finds in the log is never taken back.
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
        """The groups that have records, with what is not replicated yet."""
        return self.memory.groups

    def submit(
        self,
        request: CoordinatorRequest,
        now: float,
        origin: Origin = NOBODY,
        api_version: int = NEWEST_API_VERSION,
    ) -> Ticket:
        """Take a request.

        Args:
            origin: Where it comes from.

        Returns:
            Its ticket, answered already where nothing has to be replicated first.
        """
        self.now = now
        ticket = Ticket(request)
        if isinstance(request, ListGroupsRequest):
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
        request: CoordinatorRequest,
        now: float,
        origin: Origin = NOBODY,
        api_version: int = NEWEST_API_VERSION,
    ) -> CoordinatorResponse:
        """Take a request, replicate everything at once, and return the answer."""
        ticket = self.submit(request, now, origin, api_version)
        if ticket.response is None:
            self.replicate(now)
        assert ticket.response is not None
        return ticket.response

    def replicate(self, now: float) -> list[Ticket]:
        """Replicate everything that is appended.

        Returns:
            What is answered by it, in the order in which it was asked.
        """
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
        """Take back, exactly, everything that is not replicated.

        Returns:
            What is answered by it, in the order in which it was asked.
        """
        self.now = now
        self.log.truncate()
        self.memory.take_back()
        refused = []
        for write in reversed(self._writes):
            for key, timer in reversed(write.timers_before):
                self._timers.put(timer or Timer(key, None))
            if write.ticket:
                write.ticket.response = error_answer(
                    write.ticket.request, ErrorCode.COORDINATOR_NOT_AVAILABLE
                )
                refused.append(write.ticket)
        self._writes.clear()
        return refused[::-1]

    def next_wakeup(self) -> float | None:
        """Return when the next timer fires, in seconds; None if none is set."""
        return self._timers.next_at()

    def wake(self, now: float) -> set[TimerKey]:
        """Fire every timer that is due.

        Returns:
            Those that fired.
        """
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
        """Take a new image of the cluster's topics; offsets of deleted ones are forgotten."""
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
        """Take changed settings; they count from the next request or timer on."""
        self.now = now
        self.settings = settings

    def _expire(self) -> None:
        """Forget old offsets and groups; what does not fit into one batch goes in several."""
        for group_id in (*self.groups, *sorted(self.memory.bare)):
            group = self.memory.group(group_id)
            outcome = expire(group, self.profile, self._context(group_id))
            self._write_apart(group_id, outcome.records)
        self._timers.put(Timer(EXPIRY, self.now + EXPIRY_CHECK_S))

    def _write_apart(self, group_id: str, records: tuple[Record, ...]) -> None:
        for start in range(0, len(records), RECORDS_APART):
            self._write(group_id, Outcome(None, records[start : start + RECORDS_APART]))

    def _context(
        self, group_id: str, origin: Origin = NOBODY, api_version: int = NEWEST_API_VERSION
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
        """Make an id that is new for ever: who is told one has a record at this offset."""
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
        """Let a batch be that is too large; a timer tries again (RecordTooLargeException)."""
        if ticket:
            ticket.response = error_answer(ticket.request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if fired:
            self._timers.put(replace(fired, at=self.now + TIMER_RETRY_S))
