"""A consumer of the design for Kafka 0.9, without sockets, clock or threads.

In: `poll` whenever the application polls, answers to requests, `prepared` once the application has
committed what it read. Out: at most one request at a time (`next_request`), and events. The caller
asks for a request only while it knows a coordinator, so a request ends the discovery. It has the
interface of `ClassicMembership`: the member id is the design's consumer id.

Source: Kafka 0.9 Consumer Rewrite Design, "Consumer", "Failure detection protocol", "State diagram"
and the alternative states of its first comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from group_lab.coordinator.design_0_9.messages import (
    DesignErrorCode,
    DesignHeartbeatRequest,
    DesignHeartbeatResponse,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.sim.classic_membership import (
    JOIN_LAPSE_S,
    NONE,
    After,
    Assigned,
    ClassicEvent,
    Failed,
    Lost,
    Phase,
    Revoked,
)
from group_lab.sim.embedded_protocols import Partitions
from spark_groups.errors import REPORT_IT, ErrorCode
from spark_groups.group.member.backoff import Backoff
from spark_groups.group.member.embedded import NO_GENERATION
from spark_groups.group.member.member_states import IllegalTransitionError
from spark_groups.group.member.subscription import Subscription

DesignRequest = DesignJoinGroupRequest | DesignHeartbeatRequest
DesignResponse = DesignJoinGroupResponse | DesignHeartbeatResponse


class ConsumerState(Enum):
    """The states of a consumer ("State diagram", "Consumer").

    The design names no state for a consumer that "is unable to join a group".
    """

    DOWN = "the process is down"
    STARTUP = "discovers the coordinator, and joins without a consumer id"
    PART_OF_GROUP = "reads what it was assigned, and sends heartbeats"
    REDISCOVER = "looks up the coordinator, and reads on"
    STOPPED_CONSUMPTION = "reads nothing, commits, and joins the next generation"
    UNABLE_TO_JOIN = "was refused for good; sends nothing"


class ConsumerInput(Enum):
    """The inputs of the state machine."""

    START = "the process starts"
    JOINED = "the coordinator assigned partitions in a generation"
    MUST_JOIN = "its generation ended, the coordinator does not know it, or its topics changed"
    COORDINATOR_LOST = "the coordinator does not answer, is not available, or has moved"
    COORDINATOR_FOUND = "a broker named the coordinator"
    REFUSED = "the coordinator refused the consumer for good"
    LEAVE = "the process ends"


_S = ConsumerState
_I = ConsumerInput

TRANSITIONS: Final[Mapping[ConsumerState, Mapping[ConsumerInput, ConsumerState]]] = {
    _S.DOWN: {
        _I.START: _S.STARTUP,
    },
    _S.STARTUP: {
        _I.JOINED: _S.PART_OF_GROUP,
        _I.MUST_JOIN: _S.STARTUP,
        _I.COORDINATOR_LOST: _S.STARTUP,
        _I.REFUSED: _S.UNABLE_TO_JOIN,
        _I.LEAVE: _S.DOWN,
    },
    _S.PART_OF_GROUP: {
        _I.MUST_JOIN: _S.STOPPED_CONSUMPTION,
        _I.COORDINATOR_LOST: _S.REDISCOVER,
        _I.REFUSED: _S.UNABLE_TO_JOIN,
        _I.LEAVE: _S.DOWN,
    },
    _S.REDISCOVER: {
        _I.MUST_JOIN: _S.STOPPED_CONSUMPTION,
        _I.COORDINATOR_LOST: _S.REDISCOVER,
        _I.COORDINATOR_FOUND: _S.PART_OF_GROUP,
        _I.REFUSED: _S.UNABLE_TO_JOIN,
        _I.LEAVE: _S.DOWN,
    },
    _S.STOPPED_CONSUMPTION: {
        _I.JOINED: _S.PART_OF_GROUP,
        _I.MUST_JOIN: _S.STOPPED_CONSUMPTION,
        _I.COORDINATOR_LOST: _S.STOPPED_CONSUMPTION,
        _I.REFUSED: _S.UNABLE_TO_JOIN,
        _I.LEAVE: _S.DOWN,
    },
    _S.UNABLE_TO_JOIN: {
        _I.LEAVE: _S.DOWN,
    },
}
"""A consumer that has stopped consumption stays so while it looks up the coordinator: it reads
again in the next generation only."""

PHASES: Final[Mapping[ConsumerState, Phase]] = {
    _S.DOWN: Phase.LEFT,
    _S.STARTUP: Phase.UNJOINED,
    _S.PART_OF_GROUP: Phase.STABLE,
    _S.REDISCOVER: Phase.STABLE,
    _S.STOPPED_CONSUMPTION: Phase.PREPARING_REBALANCE,
    _S.UNABLE_TO_JOIN: Phase.FATAL,
}
_SILENT: Final = (_S.DOWN, _S.UNABLE_TO_JOIN)


def next_state(state: ConsumerState, consumer_input: ConsumerInput) -> ConsumerState:
    """Return the next state.

    Raises:
        IllegalTransitionError: The table has no such transition.
    """
    try:
        return TRANSITIONS[state][consumer_input]
    except KeyError:
        raise IllegalTransitionError(
            f"a consumer that is {state.name} cannot have {consumer_input.name}"
            f" ({consumer_input.value})"
        ) from None


@dataclass(frozen=True, slots=True)
class DesignErrorRule:
    """What a consumer does when a request of each kind is answered with one code.

    Args:
        remedy: What the user does about it, where the consumer fails.
    """

    heartbeat: After
    join: After
    commit: After
    remedy: str = REPORT_IT


def _always(after: After, remedy: str = REPORT_IT) -> DesignErrorRule:
    return DesignErrorRule(after, after, after, remedy)


_C = DesignErrorCode
ERROR_RULES: Final[Mapping[int, DesignErrorRule]] = {
    _C.ILLEGAL_PROTOCOL_STATE: _always(After.REDISCOVER),
    _C.COORDINATOR_STARTUP_NOT_COMPLETE: _always(After.RETRY),
    _C.COORDINATOR_NOT_AVAILABLE: _always(After.REDISCOVER),
    _C.NOT_COORDINATOR_FOR_GROUP: _always(After.REDISCOVER),
    # A coordinator that refuses a commit is generations ahead: nothing can be committed any more.
    _C.ILLEGAL_GENERATION: DesignErrorRule(After.REJOIN, After.RETRY, After.RESET_GENERATION),
    _C.UNKNOWN_CONSUMER: _always(After.RESET_MEMBER),
    _C.INCONSISTENT_PARTITIONING_STRATEGY: _always(
        After.FAIL, "give all consumers of the group the same partition assignment strategy"
    ),
    _C.UNKNOWN_PARTITIONING_STRATEGY: _always(
        After.FAIL, "name a strategy of the brokers' partition.assignment.strategies"
    ),
    _C.SESSION_TIMEOUT_TOO_HIGH: _always(
        After.FAIL, "choose a session timeout up to the brokers' max.session.timeout"
    ),
}
"""Every code but NONE; a code that is not in this table gets `UNKNOWN_RULE`."""

UNKNOWN_RULE: Final = DesignErrorRule(After.FAIL, After.FAIL, After.RETRY)


def _name_of(code: int) -> str:
    try:
        return DesignErrorCode(code).name
    except ValueError:
        return ErrorCode.name_of(code)


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A wildcard subscription: the consumer filters the topics of the metadata.

    Args:
        pattern: Matches whole topic names.
        excludes: Whether the topics that match are those not subscribed.
    """

    pattern: Subscription
    excludes: bool

    @classmethod
    def white_list(cls, expression: str) -> TopicFilter:
        """Subscribe to the topics that match; commas separate alternatives, as in Kafka 0.8.

        Raises:
            ValueError: The expression is empty or not RE2.
        """
        return cls(_alternatives(expression), excludes=False)

    @classmethod
    def black_list(cls, expression: str) -> TopicFilter:
        """Subscribe to the topics that do not match; commas separate alternatives.

        Raises:
            ValueError: The expression is empty or not RE2.
        """
        return cls(_alternatives(expression), excludes=True)

    def topics_of(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return the subscribed ones of these topics, sorted."""
        return tuple(
            sorted(topic for topic in topics if self.pattern.matches(topic) != self.excludes)
        )


def _alternatives(expression: str) -> Subscription:
    # kafka.consumer.TopicFilter of Kafka 0.8 replaces every comma, also that of t{1,2}.
    return Subscription.of_pattern(expression.replace(" ", "").replace(",", "|"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignConfig:
    """The settings of a consumer.

    Args:
        subscription: Topics, whether they exist or not, or a white or black list.
        strategy: The friendly name of a partition assignment strategy of the brokers.
        heartbeat_frequency: Heartbeats in a session.
        keeps_consumer_id: Whether it joins again with the consumer id that it was assigned.
            Without one, the coordinator waits for a whole session before it assigns.
    """

    group_id: str
    subscription: tuple[str, ...] | TopicFilter
    strategy: str = "range"
    session_timeout_s: float = 30.0
    heartbeat_frequency: int = 3
    keeps_consumer_id: bool = True

    @property
    def heartbeat_interval_s(self) -> float:
        return self.session_timeout_s / self.heartbeat_frequency

    def topics_of(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return what it subscribes to, given the topics that exist."""
        if isinstance(self.subscription, TopicFilter):
            return self.subscription.topics_of(topics)
        return self.subscription


class DesignMembership:
    """One run of a consumer in a group of the design."""

    group_instance_id: Final = None
    """The design has no static members."""
    revoking: Final = NONE
    """It never releases partitions while it reads others."""

    def __init__(self, config: DesignConfig) -> None:
        self.config = config
        self.state = next_state(ConsumerState.DOWN, ConsumerInput.START)
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.owned: Partitions = NONE
        self.events: list[ClassicEvent] = []
        self._topics: tuple[str, ...] = ()
        """Its subscription at the last poll."""
        self._joined_topics: tuple[str, ...] = ()
        """Its subscription in its generation."""
        self._lost_because = ""
        self._in_flight: tuple[DesignRequest, int, str] | None = None
        self._backoff = Backoff()
        self._heartbeat_at = 0.0
        self._polled_at: float | None = None

    @property
    def phase(self) -> Phase:
        """The state, in terms of the classic protocol."""
        return PHASES[self.state]

    @property
    def is_preparing(self) -> bool:
        """Whether it joins as soon as the application has committed what it read."""
        return self.state is ConsumerState.STOPPED_CONSUMPTION and bool(self.owned)

    @property
    def group_id(self) -> str:
        return self.config.group_id

    @property
    def commit_time_s(self) -> float:
        """How long the coordinator waits for the consumer to commit and join."""
        return self.config.session_timeout_s

    @property
    def may_commit(self) -> bool:
        """Return whether a commit has a generation."""
        is_reading = self.phase is Phase.STABLE or self.is_preparing
        return is_reading and self.generation_id != NO_GENERATION

    @property
    def readable(self) -> Partitions:
        """The partitions that the application may read now."""
        return self.owned if self.phase is Phase.STABLE else NONE

    @property
    def is_settled(self) -> bool:
        """True if it has its assignment and nothing to do."""
        return self.phase is Phase.STABLE

    # The application.

    def poll(self, now: float, partition_counts: Mapping[str, int]) -> None:
        """Note that the application polls: join if the subscription has changed.

        Args:
            partition_counts: Of all topics, by topic; the coordinator detects new partitions.
        """
        if self.state in _SILENT:
            return
        self._polled_at = now
        self._topics = self.config.topics_of(partition_counts)
        if self.phase is Phase.STABLE and self._topics != self._joined_topics:
            self._move(ConsumerInput.MUST_JOIN)
        if self.generation_id == NO_GENERATION:
            self._release()

    def prepared(self) -> None:
        """Note that the application has committed what it read, or cannot: join now."""
        if self.is_preparing:
            self._release()

    def revoked(self) -> None:
        """Do nothing: the application commits before a join only."""

    def leave(self) -> None:
        """End; the design has no LeaveGroup, so the coordinator waits for the session to expire."""
        self._release()
        self._move(ConsumerInput.LEAVE)

    def _release(self) -> None:
        if self.owned:
            is_lost = self.generation_id == NO_GENERATION
            lost = Lost(self.owned, self._lost_because)
            self.events.append(lost if is_lost else Revoked(self.owned))
            self.owned = NONE

    # Requests.

    def next_request(self, now: float) -> DesignRequest | None:
        """Return the request to send now, None if none is due; it counts as sent."""
        is_pausing = self._in_flight is not None or now < self._backoff.not_before
        if is_pausing or self._polled_at is None:
            return None
        if self.state is ConsumerState.REDISCOVER:
            self._move(ConsumerInput.COORDINATOR_FOUND)
            self._heartbeat_at = now
        request: DesignRequest | None = None
        match self.state:
            case ConsumerState.STARTUP | ConsumerState.STOPPED_CONSUMPTION if not self.owned:
                request = self._join_request()
            case ConsumerState.PART_OF_GROUP if self._polled_at >= self._heartbeat_at:
                request = self._heartbeat_request()
                self._heartbeat_at = now + self.config.heartbeat_interval_s
        if request is not None:
            self._in_flight = request, self.generation_id, self.member_id
        return request

    def response_timeout_s(self, request: Any) -> float:
        """Return for how many seconds to wait for an answer before `handle_failure`.

        A rebalance takes a session at most. The answer to a JoinGroup that waits for the rebalance
        after the running one may come later: then it is sent again.
        """
        lapse_s = JOIN_LAPSE_S if isinstance(request, DesignJoinGroupRequest) else 0.0
        return self.config.session_timeout_s + lapse_s

    def _join_request(self) -> DesignJoinGroupRequest:
        config = self.config
        return DesignJoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=int(config.session_timeout_s * 1000),
            topics=self._topics,
            consumer_id=self.member_id if config.keeps_consumer_id else "",
            partition_assignment_strategy=config.strategy,
        )

    def _heartbeat_request(self) -> DesignHeartbeatRequest:
        return DesignHeartbeatRequest(
            group_id=self.config.group_id,
            group_generation_id=self.generation_id,
            consumer_id=self.member_id,
        )

    # Answers.

    def handle_response(self, response: DesignResponse, now: float) -> bool:
        """Process the answer to the request in flight.

        Returns:
            Whether to look up the coordinator again.
        """
        assert self._in_flight is not None
        request, generation_id, consumer_id = self._in_flight
        self._in_flight = None
        if self._is_outdated(generation_id, consumer_id):
            return False
        code = response.error_code
        if code != DesignErrorCode.NONE:
            rule = ERROR_RULES.get(code, UNKNOWN_RULE)
            is_join = isinstance(request, DesignJoinGroupRequest)
            after = rule.join if is_join else rule.heartbeat
            self._heartbeat_at = now
            self._backoff.ended(now, accepted=after is After.REJOIN)
            return self._react(after, code)
        self._backoff.succeeded()
        if isinstance(request, DesignJoinGroupRequest):
            assert isinstance(response, DesignJoinGroupResponse)
            self._joined(request, response, now)
        return False

    def handle_failure(self, now: float) -> None:
        """Note that the request in flight got no answer; the coordinator is looked up again."""
        self._in_flight = None
        self._backoff.failed(now)
        if self.state not in _SILENT:
            self._move(ConsumerInput.COORDINATOR_LOST)

    def commit_refused(self, code: int, generation_id: int, member_id: str) -> bool:
        """Process the error of a commit, sent with this generation and consumer id.

        Returns:
            Whether to look up the coordinator again.
        """
        if self._is_outdated(generation_id, member_id):
            return False
        return self._react(ERROR_RULES.get(code, UNKNOWN_RULE).commit, code)

    def _is_outdated(self, generation_id: int, consumer_id: str) -> bool:
        """Return whether an answer is to a request of an earlier generation, or comes too late."""
        is_earlier = (generation_id, consumer_id) != (self.generation_id, self.member_id)
        return is_earlier or self.state in _SILENT

    def _react(self, after: After, code: int) -> bool:
        match after:
            case After.REDISCOVER:
                self._move(ConsumerInput.COORDINATOR_LOST)
                return True
            case After.REJOIN:
                self._move(ConsumerInput.MUST_JOIN)
            case After.RESET_GENERATION:
                self._reset(_name_of(code), keeps_consumer_id=True)
            case After.RESET_MEMBER:
                self._reset(_name_of(code), keeps_consumer_id=False)
            case After.FAIL:
                self._fail(code)
        return False

    def _reset(self, reason: str, *, keeps_consumer_id: bool) -> None:
        """Leave the generation; the application learns at its next poll what it lost."""
        self.generation_id = NO_GENERATION
        self.member_id = self.member_id if keeps_consumer_id else ""
        self._lost_because = reason
        self._move(ConsumerInput.MUST_JOIN)

    def _fail(self, code: int) -> None:
        error = f"{_name_of(code)}: {ERROR_RULES.get(code, UNKNOWN_RULE).remedy}"
        if self.owned:
            self.events.append(Lost(self.owned, error))
        self.owned = NONE
        self.events.append(Failed(error))
        self._move(ConsumerInput.REFUSED)

    def _joined(
        self, request: DesignJoinGroupRequest, response: DesignJoinGroupResponse, now: float
    ) -> None:
        self._move(ConsumerInput.JOINED)
        self.member_id, self.generation_id = response.consumer_id, response.group_generation_id
        self._joined_topics = request.topics
        self._heartbeat_at = now + self.config.heartbeat_interval_s
        self.owned = response.partitions_to_own
        self.events.append(Assigned(self.owned, self.owned))

    def _move(self, consumer_input: ConsumerInput) -> None:
        self.state = next_state(self.state, consumer_input)
