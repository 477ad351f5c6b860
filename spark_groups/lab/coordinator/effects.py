"""What a request or a timer comes to, as data: an answer, records to append, timers to set or stop.

What decides it reads a group and changes nothing. The records are applied to the group at once,
appended to the log, and taken back if the append fails; the answer is given once they are
replicated. A request that is refused is answered with an error, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.messages import PrepareAssignmentResponse
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.lab.coordinator.topic_images import TopicsImage
from spark_groups.values import dataclass

R = TypeVar("R")

NEWEST_API_VERSION: Final = 32_767
"""Greater than every version that there is: for who does not care."""


class TimerKind(Enum):
    """What a timer is for."""

    SESSION = "a member is silent for too long"
    REBALANCE = "a member takes too long to revoke"
    ASSIGNMENT = "a target is due (the KIP; in Kafka a heartbeat computes it)"
    CLIENT_ASSIGNMENT = "the member that computes the assignment takes too long"
    REGEX = "patterns are resolved, or looked up again"
    EXPIRY = "offsets and empty groups get old"

    # Each kind is one object: its identity is a hash that costs no call, unlike that of its name.
    __hash__ = object.__hash__


class TimerKey(NamedTuple):
    """Names a timer: setting it again replaces it; made and looked up with every heartbeat.

    Args:
        member_id: The member, "" where it is about the group.
    """

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Computation:
    """A target that a member of the group computes (KIP-848, "Client Side Mode").

    It lives as long as the timer that gives it up, so a fail-over forgets it.

    Args:
        member_id: Who computes.
        assignor: With which assignor.
        is_told: Whether the member was told.
        prepared: What it was given to compute from; None until it asks.
    """

    member_id: str
    assignor: str
    is_told: bool = False
    prepared: PrepareAssignmentResponse | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer to set, or to stop.

    Args:
        at: When it fires, in seconds; None stops it.
        member_epoch: The member epoch it was set at, where it counts.
        computation: What it gives up, where it is about a computation.
    """

    key: TimerKey
    at: float | None
    member_epoch: int = -1
    computation: Computation | None = None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """What was decided.

    Args:
        records: What to append, one atomic batch.
        timers: What to set and stop, in this order.
        topics_version: The version of the topics that the group's subscriptions were compared with,
            to be kept with the group; None if they were not.
        makes_group: The group is there from now on, also if nothing is appended.
    """

    response: R
    records: tuple[Record, ...] = ()
    timers: tuple[Timer, ...] = ()
    topics_version: int | None = None
    makes_group: bool = False


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What may be looked at beside the group.

    Args:
        client_host: Where the request comes from.
        new_member_id: Makes an id for who joins without one.
        computing: The timer of the group's computation, if a member computes a target.
        loaded_at: When this coordinator began, in seconds.
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


T = TypeVar("T")


class CoordinatorErrorCode(IntEnum):
    """Error codes that no client of this package can meet.

    INVALID_ASSIGNMENT never got a number in Kafka: this one is the model's own.
    """

    INVALID_GROUP_ID = 24
    INVALID_ASSIGNMENT = -848


class RefusedError(Exception):
    """Raised where a request is refused, with Kafka's code and text.

    Args:
        message: Its error message; None where Kafka gives none.
    """

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """One sentence about what a request says.

    Args:
        is_broken: Whether something breaks it.
    """

    is_broken: Callable[[T], bool]
    message: str


def check_rules(said: T, rules: Iterable[Rule[T]]) -> None:
    """Refuse what breaks a rule; the first one that is broken counts.

    Raises:
        RefusedError: INVALID_REQUEST.
    """
    for rule in rules:
        if rule.is_broken(said):
            raise RefusedError(ErrorCode.INVALID_REQUEST, rule.message)
