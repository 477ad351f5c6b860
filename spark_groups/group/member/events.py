"""Events of a member as values, each with its severity and its log line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from spark_groups.types import Assignment, TopicId, TopicIdPartition

if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda decorated: decorated


SHOWN = 8
"""How many partitions a log line names before it counts the rest."""

NameOf = Callable[[TopicId], str | None]
"""Returns the name of a topic id, None if it is unknown."""

E = TypeVar("E")


class Severity(Enum):
    """Names and values of the logging levels."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `at` is seconds of the client's clock."""

    _SEVERITY: ClassVar[Severity] = Severity.INFO
    _TEXT: ClassVar[str] = ""
    at: float

    @property
    def severity(self) -> Severity:
        return self._SEVERITY

    def text(self, name_of: NameOf) -> str:
        """Return the log line, also shown in snapshots and transcripts."""
        return self._message(name_of)

    def _message(self, name_of: NameOf) -> str:
        return self._TEXT.format_map(_Shown(self, name_of)).rstrip()


@dataclass_transform(frozen_default=True)
def event(text: str = "", severity: Severity = Severity.INFO) -> Callable[[type[E]], type[E]]:
    """Make a class of events.

    Args:
        text: The log line; a name in braces stands for a field, as `_Shown` formats it.
        severity: The level at which the line is logged.
    """

    def decorate(kind: type[E]) -> type[E]:
        kind._SEVERITY, kind._TEXT = severity, text  # type: ignore[attr-defined]
        return dataclass(frozen=True, slots=True)(kind)

    return decorate


@dataclass(frozen=True, slots=True)
class MemberEvent(Event):
    """Something that happened to a member; `member_epoch` is the one it had afterwards."""

    member_id: str
    member_epoch: int

    def text(self, name_of: NameOf) -> str:
        """Return the log line, which begins with the member."""
        return f"member {self.member_id} at epoch {self.member_epoch}: {self._message(name_of)}"


@event("member epoch {previous} -> {member_epoch}")
class EpochChanged(MemberEvent):
    """The coordinator sent another member epoch; `previous` is 0 after a join."""

    previous: int


@event("assigned {partitions}")
class PartitionsAssigned(MemberEvent):
    """The coordinator assigned partitions."""

    partitions: Assignment


@event("asked to revoke {partitions} within {left_s:.0f} s")
class RevocationRequested(MemberEvent):
    """The coordinator asked for partitions, until `deadline` of the client's clock."""

    partitions: Assignment
    deadline: float


@event("revoked {partitions}")
class PartitionsRevoked(MemberEvent):
    """The member stopped reading partitions, committed them, and acknowledged the revocation."""

    partitions: Assignment


@event("lost {partitions}: {reason}", Severity.WARNING)
class PartitionsLost(MemberEvent):
    """The member lost partitions at once, with everything uncommitted."""

    partitions: Assignment
    reason: str


@event(
    "instance id {instance_id!r} is held by another member; retrying for up to {left_s:.0f} s",
    Severity.WARNING,
)
class InstanceUnreleased(MemberEvent):
    """Another member holds the instance id; the join is retried until `deadline`."""

    instance_id: str
    deadline: float


@event("session timeout is {session_timeout_ms} ms")
class SessionTimeoutKnown(MemberEvent):
    """The group's session timeout was read, or was changed by an operator."""

    session_timeout_ms: int


@event("session timeout is unknown, using an estimate: {reason}")
class SettingsUnknown(MemberEvent):
    """The group's settings cannot be read."""

    reason: str


@event(
    "the application took {restart_s:.0f} s to start, but the session timeout is"
    " {session_timeout_ms} ms: a restart of this static member would lose its partitions;"
    " run: {command}",
    Severity.WARNING,
)
class SessionTooShort(MemberEvent):
    """A static member's application takes longer to start than its session lasts."""

    session_timeout_ms: int
    restart_s: float
    command: str


@event("a batch has been running for {batch_age_s:.0f} s", Severity.WARNING)
class BatchRunsLong(MemberEvent):
    """A batch runs for long; reported again each time its duration has doubled."""

    batch_age_s: float


@event(
    "leaving the group: a batch has been running for {batch_age_s:.0f} s, maxBatchTime is"
    " {limit_s:g} s; its offsets will not be committed",
    Severity.ERROR,
)
class BatchOverdue(MemberEvent):
    """A batch exceeded `maxBatchTime`: the member leaves."""

    batch_age_s: float
    limit_s: float


@event(
    "leaving the group: Spark has not called for {idle_s:.0f} s and no batch is running"
    " (limit: {limit_s:g} s, maxIdleTime); the member rejoins if Spark calls again",
    Severity.ERROR,
)
class QueryGone(MemberEvent):
    """Spark has neither called nor run a batch for too long: the member leaves."""

    idle_s: float
    limit_s: float


@event("rejoining the group: Spark called again", Severity.WARNING)
class QueryReturned(MemberEvent):
    """Spark called after the member had left an idle query."""


@event("heartbeat refused: {error} {message}", Severity.WARNING)
class HeartbeatRefused(MemberEvent):
    """The coordinator answered a heartbeat with a retriable error."""

    error: str
    message: str


@event("failed and will not retry: {message}", Severity.ERROR)
class MemberFailed(MemberEvent):
    """The member failed for good."""

    message: str


@event("left the group")
class MemberLeft(MemberEvent):
    """The member left the group, or stopped waiting for the answer to its last heartbeat."""


class _Shown:
    """The fields of an event as log lines show them: partitions by name, the first of many."""

    def __init__(self, shown: Event, name_of: NameOf) -> None:
        self._event = shown
        self._name_of = name_of

    def __getitem__(self, field: str) -> object:
        if field == "left_s":
            return getattr(self._event, "deadline") - self._event.at  # noqa: B009
        value = getattr(self._event, field)
        if field == "ranges":
            named = [
                f"{each.topic_partition} [{each.from_offset}, {each.until_offset})"
                for each in value
            ]
            return listed(named) or "no ranges"
        if isinstance(value, tuple) and isinstance(value[0], str):
            return ", ".join(value)
        if isinstance(value, Assignment | tuple):
            return names_of(value, self._name_of)
        return value


def names_of(partitions: Iterable[TopicIdPartition], name_of: NameOf) -> str:
    """Return the names of partitions, sorted; the first `SHOWN` of them."""
    named = [
        f"{name_of(key.topic_id) or key.topic_id}-{key.partition}" for key in sorted(partitions)
    ]
    return listed(named) or "nothing"


def listed(named: Sequence[str], unnamed: int = 0, most: int = SHOWN, joint: str = ", ") -> str:
    """Return the first names of a list, and how many more there are.

    Args:
        named: The names.
        unnamed: How many more there are that have no name here.
        most: How many are named.
        joint: The text between two of them.
    """
    rest = len(named[most:]) + unnamed
    return joint.join(named[:most]) + (f" and {rest:,} more" if rest > 0 else "")
