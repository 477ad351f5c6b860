"""A member of a classic group, as in Kafka's Java consumer, without sockets, clock or threads.

In: `poll` whenever the application polls, answers to requests, `prepared` and `revoked` once the
application has committed what it read. Out: at most one request at a time (`next_request`), and
events. An eager member releases all partitions before it joins; a cooperative member keeps them,
releases what it was not assigned again, and joins once more.

Source: AbstractCoordinator, ConsumerCoordinator (org.apache.kafka.clients.consumer.internals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from group_lab.coordinator.classic import messages as c
from group_lab.coordinator.effects import CoordinatorErrorCode
from group_lab.coordinator.messages import LeaveGroupRequest, LeaveGroupResponse, LeavingMember
from group_lab.sim.embedded_protocols import EmbeddedProtocol, Partitions, Received
from spark_groups.errors import ErrorCode
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.embedded import NO_GENERATION

ClassicRequest = (
    c.JoinGroupRequest | c.SyncGroupRequest | c.ClassicHeartbeatRequest | LeaveGroupRequest
)
ClassicResponse = (
    c.JoinGroupResponse | c.SyncGroupResponse | c.ClassicHeartbeatResponse | LeaveGroupResponse
)
NONE: Final[Partitions] = frozenset()
JOIN_LAPSE_S: Final = 5.0
"""How much longer than the rebalance timeout a member waits for the answer to JoinGroup."""


class Phase(Enum):
    """Where a member stands in a rebalance (AbstractCoordinator.MemberState)."""

    UNJOINED = "in no generation, or about to join the next one"
    PREPARING_REBALANCE = "joins the next generation"
    COMPLETING_REBALANCE = "has joined a generation, and waits for its assignment"
    STABLE = "has the assignment of its generation"
    LEAVING = "leaves the group"
    LEFT = "has left the group"
    FATAL = "was refused for good"


class After(Enum):
    """What a member does about an error."""

    RETRY = "repeat the request after a pause"
    REDISCOVER = "look up the coordinator, then repeat the request"
    REJOIN = "join the next generation"
    RESET_GENERATION = "the partitions are lost: join under the same member id"
    RESET_MEMBER = "the partitions are lost: join under a new member id"
    FAIL = "fail"


AFTER: Final[Mapping[int, After]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: After.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: After.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: After.REDISCOVER,
    ErrorCode.REQUEST_TIMED_OUT: After.REDISCOVER,
    ErrorCode.UNKNOWN_SERVER_ERROR: After.RETRY,
    CoordinatorErrorCode.REBALANCE_IN_PROGRESS: After.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: After.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: After.RESET_MEMBER,
}
"""Other errors are final. Kafka's consumer fails with UNKNOWN_SERVER_ERROR as well; here it stands
for a broker that fails for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConfig:
    """The settings of a classic member.

    Args:
        rebalance_timeout_s: `max.poll.interval.ms`.
    """

    group_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    rebalance_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member was assigned partitions in a generation; `added` are new to it."""

    partitions: Partitions
    added: Partitions


@dataclass(frozen=True, slots=True)
class Revoked:
    """The member released partitions that it still owned."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lost:
    """The member is in no generation any more, so others may own its partitions."""

    partitions: Partitions
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The coordinator refused the member for good."""

    error: str


ClassicEvent = Assigned | Revoked | Lost | Failed


class Membership(Protocol):
    """One run of a consumer in a group that forms generations, as its application drives it."""

    member_id: str
    generation_id: int
    owned: Partitions
    events: list[ClassicEvent]

    @property
    def phase(self) -> Phase:
        """Where it stands in a rebalance."""

    @property
    def is_preparing(self) -> bool:
        """Whether it joins as soon as the application has committed what it read."""

    @property
    def revoking(self) -> Partitions:
        """Partitions that it releases once the application has committed."""

    @property
    def group_id(self) -> str:
        """The group."""

    @property
    def group_instance_id(self) -> str | None:
        """The instance id of a static member."""

    @property
    def commit_time_s(self) -> float:
        """How long a commit before a rebalance may take, in seconds."""

    @property
    def may_commit(self) -> bool:
        """Whether a commit has a generation."""

    @property
    def readable(self) -> Partitions:
        """The partitions that the application may read now."""

    @property
    def is_settled(self) -> bool:
        """True if it has its assignment and nothing to do."""

    def poll(self, now: float, partition_counts: Mapping[str, int]) -> None:
        """Note that the application polls."""

    def prepared(self) -> None:
        """Note that the application has committed what it read, or cannot."""

    def revoked(self) -> None:
        """Note that the application has committed the revoked partitions, or cannot."""

    def leave(self) -> None:
        """Leave the group."""

    def next_request(self, now: float) -> Any:
        """Return the request to send now, None if none is due; it counts as sent."""

    def response_timeout_s(self, request: Any) -> float | None:
        """Return how long to wait for the answer to a request; None for the usual time."""

    def handle_response(self, response: Any, now: float) -> bool:
        """Process the answer to the request in flight.

        Returns:
            Whether to look up the coordinator again.
        """

    def handle_failure(self, now: float) -> None:
        """Note that the request in flight got no answer; the coordinator is looked up again."""

    def commit_refused(self, code: int, generation_id: int, member_id: str) -> bool:
        """Process the error of a commit, sent with this generation.

        Returns:
            Whether to look up the coordinator again.
        """


class ClassicMembership:
    """One run of a consumer in a classic group."""

    def __init__(self, config: ClassicConfig, embedded: EmbeddedProtocol) -> None:
        self.config = config
        self._embedded = embedded
        self.phase = Phase.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.owned: Partitions = NONE
        self.is_preparing = False
        """Whether it joins as soon as the application has committed what it read."""
        self.revoking: Partitions = NONE
        """Partitions that a cooperative member releases once the application has committed."""
        self.events: list[ClassicEvent] = []
        self._needs_join = True
        self._needs_prepare = True
        self._protocol_name: str | None = None
        self._leads: dict[str, bytes] | None = None
        """The assignments that the leader sends; None for followers."""
        self._received: Received | None = None
        """An assignment that the application has not polled yet."""
        self._counts: Mapping[str, int] = {}
        """Partition counts of all topics: a leader assigns those of other subscriptions, too."""
        self._counts_assigned: Mapping[str, int] | None = None
        """Those of its own topics at its last assignment as leader."""
        self._lost_because = ""
        self._in_flight: tuple[ClassicRequest, int, str] | None = None
        self._backoff = Backoff()
        self._heartbeat_at = 0.0
        self._polled_at = 0.0
        self._joins_again_at: float | None = None

    @property
    def group_id(self) -> str:
        return self.config.group_id

    @property
    def group_instance_id(self) -> str | None:
        return self.config.instance_id

    @property
    def commit_time_s(self) -> float:
        return self.config.rebalance_timeout_s

    @property
    def may_commit(self) -> bool:
        """Return whether a commit has a generation (generationIfStable)."""
        return self.phase is Phase.STABLE and self.generation_id != NO_GENERATION

    @property
    def readable(self) -> Partitions:
        """The partitions that the application may read now."""
        is_member = self.phase not in (Phase.LEAVING, Phase.LEFT, Phase.FATAL)
        return self.owned - self.revoking if is_member else NONE

    @property
    def is_settled(self) -> bool:
        """True if it has its assignment and nothing to do."""
        is_idle = not (self._needs_join or self.revoking or self.is_preparing)
        has_all = self._received is None and self._joins_again_at is None
        return self.phase is Phase.STABLE and has_all and is_idle

    # The application.

    def poll(self, now: float, partition_counts: Mapping[str, int]) -> None:
        """Note that the application polls: take an assignment, or begin to join.

        Args:
            partition_counts: By topic.
        """
        if self.phase in (Phase.LEAVING, Phase.LEFT, Phase.FATAL):
            return
        self._polled_at = now
        self._counts = partition_counts
        if self._received is not None and not self.revoking:
            self._take(self._received)
        if self.phase is Phase.STABLE and self._counts_assigned not in (None, self._own_counts):
            self._needs_join = True
        if self._needs_join and self._waits_for_poll and not self.revoking:
            self._prepare()

    @property
    def _own_counts(self) -> dict[str, int]:
        """The partition counts of its own topics."""
        return {topic: self._counts.get(topic, 0) for topic in self.config.topics}

    def _prepare(self) -> None:
        if self.is_preparing:
            return
        if self.generation_id == NO_GENERATION:
            if self.owned:
                self.events.append(Lost(self.owned, self._lost_because))
                self.owned = NONE
            self._needs_prepare = False
        else:
            self.is_preparing = True

    def prepared(self) -> None:
        """Note that the application has committed what it read, or cannot: join now."""
        if not self.is_preparing:
            return
        self.is_preparing = self._needs_prepare = False
        if self.generation_id == NO_GENERATION:
            self._prepare()
        elif not self._embedded.is_cooperative and self.owned:
            self.events.append(Revoked(self.owned))
            self.owned = NONE

    def revoked(self) -> None:
        """Note that the application has committed the revoked partitions, or cannot."""
        revoked, self.revoking = self.revoking & self.owned, NONE
        if not revoked:
            return
        self.owned -= revoked
        self.events.append(Revoked(revoked))
        # Others wait for these partitions: they are assigned in the next generation.
        self._needs_join = True
        if self._received is not None:
            self._take(self._received)

    def _take(self, received: Received) -> None:
        """Take the assignment of a generation (onJoinComplete)."""
        assigned = received.owned
        if self._embedded.is_cooperative and (revoking := self.owned - assigned):
            self.revoking = revoking
            return
        self._received = None
        added = assigned - self.owned
        self.owned = assigned
        self.events.append(Assigned(assigned, added))

    def leave(self) -> None:
        """Leave the group; a static member stays in it until its session expires."""
        if self.owned:
            is_lost = self.generation_id == NO_GENERATION
            lost = Lost(self.owned, self._lost_because)
            self.events.append(lost if is_lost else Revoked(self.owned))
            self.owned = NONE
        is_known = bool(self.member_id) and self.config.instance_id is None
        self.phase = Phase.LEAVING if is_known else Phase.LEFT

    # Requests.

    def next_request(self, now: float) -> ClassicRequest | None:
        """Return the request to send now, None if none is due; it counts as sent."""
        request = self._next_request(now)
        if request is not None:
            self._in_flight = request, self.generation_id, self.member_id
        return request

    def _next_request(self, now: float) -> ClassicRequest | None:
        if self._in_flight is not None or now < self._backoff.not_before:
            return None
        if self._joins_again_at is not None and now >= self._joins_again_at:
            self._needs_join = True
        joins = self._needs_join and not self._waits_for_poll
        match self.phase:
            case Phase.LEAVING:
                return self._leave_request()
            case Phase.UNJOINED | Phase.PREPARING_REBALANCE | Phase.STABLE if joins:
                return self._join_request()
            case Phase.COMPLETING_REBALANCE:
                return self._sync_request()
            case Phase.STABLE:
                return self._heartbeat(now)
        return None

    @property
    def _waits_for_poll(self) -> bool:
        """Whether the application must poll before the member joins.

        Beside a batch a member joins only once its last assignment is taken: what it reports as
        owned is then what it has.
        """
        if not self._embedded.joins_in_background or self.generation_id == NO_GENERATION:
            return self._needs_prepare
        return bool(self.revoking) or self._received is not None

    def _heartbeat(self, now: float) -> ClassicRequest | None:
        if now - self._polled_at > self.config.rebalance_timeout_s:
            # The application has not polled for too long (maybeLeaveGroup).
            leaves = self.config.instance_id is None
            request = self._leave_request()
            self._reset("max.poll.interval.ms is over", keeps_member_id=False)
            return request if leaves else None
        if now < self._heartbeat_at:
            return None
        return c.ClassicHeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
        )

    def _join_request(self) -> c.JoinGroupRequest:
        config = self.config
        self.phase = Phase.PREPARING_REBALANCE
        return c.JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=int(config.session_timeout_s * 1000),
            rebalance_timeout_ms=int(config.rebalance_timeout_s * 1000),
            member_id=self.member_id,
            group_instance_id=config.instance_id,
            protocol_type=self._embedded.protocol_type,
            protocols=self._embedded.subscriptions(config.topics, self.owned, self.generation_id),
        )

    def _sync_request(self) -> c.SyncGroupRequest:
        return c.SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type=self._embedded.protocol_type,
            protocol_name=self._protocol_name,
            assignments=self._leads or {},
        )

    def _leave_request(self) -> LeaveGroupRequest:
        leaving = LeavingMember(self.member_id, self.config.instance_id)
        return LeaveGroupRequest(group_id=self.config.group_id, members=(leaving,))

    # Answers.

    def response_timeout_s(self, request: Any) -> float | None:
        """Return how long to wait for the answer to a request; None for the usual time."""
        if isinstance(request, c.JoinGroupRequest | c.SyncGroupRequest):
            return self.config.rebalance_timeout_s + JOIN_LAPSE_S
        return None

    def handle_response(self, response: ClassicResponse, now: float) -> bool:
        """Process the answer to the request in flight.

        Returns:
            Whether to look up the coordinator again.
        """
        assert self._in_flight is not None
        request, generation_id, member_id = self._in_flight
        self._in_flight = None
        if isinstance(request, LeaveGroupRequest):
            if self.phase is Phase.LEAVING:
                self.phase = Phase.LEFT
            return False
        if (generation_id, member_id) != (self.generation_id, self.member_id):
            # The generation was reset meanwhile.
            return False
        if self.phase in (Phase.LEAVING, Phase.LEFT, Phase.FATAL):
            return False
        match response:
            case c.JoinGroupResponse(error_code=ErrorCode.NONE):
                self._joined(response, now)
            case c.JoinGroupResponse(error_code=CoordinatorErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
            case c.SyncGroupResponse(error_code=ErrorCode.NONE):
                self._synced(response, now)
            case c.ClassicHeartbeatResponse(
                error_code=ErrorCode.NONE | CoordinatorErrorCode.REBALANCE_IN_PROGRESS
            ):
                # The application joins when it polls; until then heartbeats keep the session.
                self._heartbeat_at = now + self.config.heartbeat_interval_s
                self._needs_join |= response.error_code != ErrorCode.NONE
            case _:
                return self._refused(response.error_code, now)
        self._backoff.succeeded()
        return False

    def handle_failure(self, now: float) -> None:
        """Note that the request in flight got no answer; the coordinator is looked up again."""
        self._in_flight = None
        self._backoff.failed(now)
        if self.phase is Phase.LEAVING:
            self.phase = Phase.LEFT
        elif self.phase is Phase.COMPLETING_REBALANCE:
            self._rejoin()

    def commit_refused(self, code: int, generation_id: int, member_id: str) -> bool:
        """Process the error of a commit, sent with this generation.

        Returns:
            Whether to look up the coordinator again.
        """
        if (generation_id, member_id) != (self.generation_id, self.member_id):
            return False
        return self._handle(code)

    def _refused(self, code: int, now: float) -> bool:
        self._backoff.failed(now)
        if self.phase is Phase.COMPLETING_REBALANCE:
            self._rejoin()
        return self._handle(code)

    def _handle(self, code: int) -> bool:
        match AFTER.get(code, After.FAIL):
            case After.REDISCOVER:
                return True
            case After.REJOIN:
                self._rejoin()
            case After.RESET_GENERATION:
                self._reset(ErrorCode.name_of(code), keeps_member_id=True)
            case After.RESET_MEMBER:
                self._reset(ErrorCode.name_of(code), keeps_member_id=False)
            case After.FAIL:
                self._fail(ErrorCode.name_of(code))
        return False

    def _rejoin(self) -> None:
        self._needs_join = True
        if self.phase is Phase.COMPLETING_REBALANCE:
            self.phase = Phase.UNJOINED

    def _reset(self, reason: str, *, keeps_member_id: bool) -> None:
        """Leave the generation; the application learns that its partitions are lost."""
        self.generation_id = NO_GENERATION
        self.member_id = self.member_id if keeps_member_id else ""
        self.phase = Phase.UNJOINED
        self.revoking, self._received, self._leads = NONE, None, None
        self.is_preparing = False
        self._needs_join = self._needs_prepare = True
        self._counts_assigned = None
        self._joins_again_at = None
        self._lost_because = reason

    def _fail(self, error: str) -> None:
        if self.owned:
            self.events.append(Lost(self.owned, error))
        self.owned = self.revoking = NONE
        self._received = None
        self.is_preparing = False
        self.phase = Phase.FATAL
        self.events.append(Failed(error))

    def _joined(self, response: c.JoinGroupResponse, now: float) -> None:
        self.member_id, self.generation_id = response.member_id, response.generation_id
        self._protocol_name = response.protocol_name
        self.phase = Phase.COMPLETING_REBALANCE
        self._leads, self._counts_assigned = None, None
        if response.leader == response.member_id:
            self._counts_assigned = self._own_counts
            self._leads = (
                {}
                if response.skip_assignment
                else self._embedded.assign(response, self._counts, now)
            )

    def _synced(self, response: c.SyncGroupResponse, now: float) -> None:
        self.phase = Phase.STABLE
        self._needs_join, self._needs_prepare = False, True
        self._leads = None
        self._received = self._embedded.read(
            response.assignment, self.owned, self.generation_id, now
        )
        self._joins_again_at = self._received.joins_again_at
        self._heartbeat_at = now + self.config.heartbeat_interval_s
