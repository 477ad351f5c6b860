"""Results of requests and timers as data: an answer, records to append, timers to set or stop.

Functions that decide take the group (without records if it does not exist), the request or timer,
the profile and the context, and change nothing. Records are applied to the group at once, appended
to the log, and undone if the append fails; the answer is sent once they are replicated. A refused
request is answered with an error and has no other effect.

A classic group, and one of the 0.9 design, keeps its state in memory, which a failed append does
not undo: an outcome has the group's next value, and `appended` says what happens when its records
are replicated or lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from group_lab.coordinator.classic.group import ClassicGroup
from group_lab.coordinator.classic.messages import JoinGroupResponse, SyncGroupResponse
from group_lab.coordinator.design_0_9.group import DesignGroup
from group_lab.coordinator.design_0_9.messages import DesignJoinGroupResponse
from group_lab.coordinator.messages import PrepareAssignmentResponse, error_answer
from group_lab.coordinator.records import Record
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.topic_images import TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.values import dataclass

R = TypeVar("R")

NEWEST_API_VERSION: Final = 32_767
"""Greater than all versions, for callers without a version."""


class TimerKind(Enum):
    """The purpose of a timer."""

    SESSION = "session timeout of a member"
    REBALANCE = "rebalance timeout of a member that revokes"
    JOIN = "time of a classic member in a consumer group to join again"
    SYNC = "time of a classic member in a consumer group to fetch its assignment"
    ASSIGNMENT = "a target is due (the KIP; in Kafka a heartbeat computes it)"
    CLIENT_ASSIGNMENT = "timeout of the member that computes the assignment"
    REGEX = "patterns are resolved"
    EXPIRY = "old offsets and empty groups expire"
    CLASSIC_SESSION = "session timeout of a member of a classic group, or of a pending one"
    CLASSIC_JOIN = "the join phase of a classic group ends"
    CLASSIC_SYNC = "the sync phase of a classic group ends"
    DESIGN_SESSION = "session timeout of a consumer of the 0.9 design, also for its JoinGroup"
    DESIGN_ROUND = "a round of the 0.9 design ends if it waits for no consumer"

    # Each kind is one object: its identity is a hash that costs no call, unlike that of its name.
    __hash__ = object.__hash__


class TimerKey(NamedTuple):
    """The identity of a timer: setting it again replaces it.

    Args:
        member_id: The member, "" for a timer of the group.
    """

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Computation:
    """A target that a member computes (KIP-848, "Client Side Mode").

    It lives as long as its timer, so a failover forgets it.

    Args:
        member_id: The member that computes.
        is_announced: Whether the member was asked to compute.
        prepared: The input sent to it; None until it requests that.
    """

    member_id: str
    assignor: str
    is_announced: bool = False
    prepared: PrepareAssignmentResponse | None = None


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """A part of the initial rebalance delay of a classic group, and what may follow it."""

    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer to set or stop.

    Args:
        at: When it fires, in seconds; None stops it.
        member_epoch: The member epoch when it was set; a rebalance timer of another epoch is
            ignored.
        computation: The computation that it ends.
        keeps_earlier: A timer with this key that is set already stays.
        generation_id: The generation of a classic group when it was set.
        initial_delay: The delay that it ends; None after the initial rebalance.
    """

    key: TimerKey
    at: float | None
    member_epoch: int = -1
    computation: Computation | None = None
    keeps_earlier: bool = False
    generation_id: int = -1
    initial_delay: InitialDelay | None = None


class Phase(Enum):
    """The request of a classic member that is answered later."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"


class Parked(NamedTuple):
    """The identity of a parked request: parking another one replaces it."""

    group_id: str
    member_id: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a parked request; None if its member is gone, and it is never answered."""

    parked: Parked
    response: JoinGroupResponse | SyncGroupResponse | DesignJoinGroupResponse | None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """A decision.

    Args:
        records: Appended as one atomic batch.
        timers: Set and stopped in this order.
        topics_version: Metadata version the subscriptions were compared with; None if not compared.
        makes_group: The group exists from now on, even without records.
        classic: The next value of a classic group, at once and for good; None: unchanged.
        removes_classic: The classic group is gone from memory. So it is after a tombstone of its
            record, which a failed append undoes.
        design: Like `classic`, of a group of the 0.9 design.
        parks: The request waits for an `Answer` with this key; `response` is ignored.
        answers: Answers to parked requests, sent at once.
        appended: Called with the group after the records are replicated (error 0), or their append
            failed.
        answers_at_once: The response does not wait for replication.
    """

    response: R
    records: tuple[Record, ...] = ()
    timers: tuple[Timer, ...] = ()
    topics_version: int | None = None
    makes_group: bool = False
    classic: ClassicGroup | None = None
    removes_classic: bool = False
    design: DesignGroup | None = None
    parks: Parked | None = None
    answers: tuple[Answer, ...] = ()
    appended: Appended | None = None
    answers_at_once: bool = False


def refused(request: Any, error_code: int) -> Outcome[Any]:
    """Return the outcome of a request that is answered with an error, and changes nothing."""
    return Outcome(error_answer(request, error_code), answers_at_once=True)


def _no_classic_id(_prefix: str) -> str:
    raise NotImplementedError("no classic member may join here")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Everything except the group that a decision may use.

    Args:
        now: Seconds.
        client_host: The address of the client.
        new_member_id: Makes an id for a member that joins without one.
        computing: The timer of the computation under way, if any.
        loaded_at: When this coordinator loaded the group, in seconds.
        new_classic_id: Makes an id for a classic member from its client id or instance id.
    """

    now: float
    topics: TopicsImage
    settings: Settings
    client_id: str = ""
    client_host: str = ""
    new_member_id: Callable[[], str] = str
    api_version: int = NEWEST_API_VERSION
    computing: Timer | None = None
    loaded_at: float = 0.0
    new_classic_id: Callable[[str], str] = _no_classic_id


Appended = Callable[[Any, int, RequestContext], Outcome[None]]
"""What a classic group, or one of the 0.9 design, does after an append, given Kafka's error code of
the append."""

T = TypeVar("T")


class CoordinatorErrorCode(IntEnum):
    """Error codes that no client of this package can receive.

    INVALID_ASSIGNMENT never got a number in Kafka; this one is the model's own.
    """

    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    MEMBER_ID_REQUIRED = 79
    INVALID_ASSIGNMENT = -848


class RefusedError(Exception):
    """A request is refused, with Kafka's code and text.

    Args:
        message: The error message of the answer; None where Kafka sends none.
    """

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """A requirement on a request, with the error message for its violation."""

    is_broken: Callable[[T], bool]
    message: str


def check_rules(value: T, rules: Iterable[Rule[T]]) -> None:
    """Raise INVALID_REQUEST for the first broken rule."""
    for rule in rules:
        if rule.is_broken(value):
            raise RefusedError(ErrorCode.INVALID_REQUEST, rule.message)
