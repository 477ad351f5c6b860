"""What happens to a member, as values, each with its severity and its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from spark_groups.types import Assignment, TopicId, TopicIdPartition

SHOWN = 8
"""How many partitions a sentence names before it counts the rest."""

NameOf = Callable[[TopicId], str | None]
"""Returns the name of a topic id, None if it is not known."""


class Severity(Enum):
    """How loud an event is; the names and values of the logging levels."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `at` is seconds of the client's clock."""

    _SEVERITY: ClassVar[Severity] = Severity.INFO
    _TEXT: ClassVar[str] = ""
    """Its sentence; a name in braces stands for a field, as `_Shown` shows it."""
    at: float

    @property
    def severity(self) -> Severity:
        """How loud it is."""
        return self._SEVERITY

    def text(self, name_of: NameOf) -> str:
        """Return the event as one sentence, for logs, the snapshot's timeline and transcripts.

        Args:
            name_of: Returns the name of a topic id.
        """
        return self._says(name_of)

    def _says(self, name_of: NameOf) -> str:
        return self._TEXT.format_map(_Shown(self, name_of))


@dataclass(frozen=True, slots=True)
class MemberEvent(Event):
    """Something that happened to a member.

    Args:
        at: When, in seconds of the member's clock.
        member_id: The member it happened to.
        member_epoch: The epoch it had then.
    """

    member_id: str
    member_epoch: int

    def text(self, name_of: NameOf) -> str:
        """Return the event as one sentence about the member.

        Args:
            name_of: Returns the name of a topic id.
        """
        return f"member {self.member_id} at epoch {self.member_epoch} {self._says(name_of)}"


@dataclass(frozen=True, slots=True)
class EpochChanged(MemberEvent):
    """The coordinator moved the member to another epoch; `previous` is 0 after a join."""

    _TEXT = "came from epoch {previous}"
    previous: int


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(MemberEvent):
    """Partitions became usable."""

    _TEXT = "was assigned {partitions}"
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class RevocationTold(MemberEvent):
    """Partitions are to be given up until `deadline`, in seconds of the member's clock."""

    _TEXT = "is to give up {partitions} within {left_s:.0f} s"
    partitions: Assignment
    deadline: float

    @property
    def left_s(self) -> float:
        """How many seconds it has."""
        return self.deadline - self.at


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(MemberEvent):
    """Partitions were given up: nothing reads them and all that was finished is committed."""

    _TEXT = "gave up {partitions}"
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class PartitionsLost(MemberEvent):
    """Partitions are gone at once, with whatever was not committed."""

    _SEVERITY = Severity.WARNING
    _TEXT = "lost {partitions}: {reason}"
    partitions: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceUnreleased(MemberEvent):
    """The instance id is still held by another member; the join is repeated until `deadline`."""

    _SEVERITY = Severity.WARNING
    _TEXT = "waits up to {left_s:.0f} s until instance id {instance_id!r} is released"
    instance_id: str
    deadline: float

    @property
    def left_s(self) -> float:
        """How many seconds it still waits."""
        return self.deadline - self.at


@dataclass(frozen=True, slots=True)
class SessionTimeoutKnown(MemberEvent):
    """The group's session timeout was read, or was changed by an operator."""

    _TEXT = "has a session of {session_timeout_ms} ms without a heartbeat"
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SettingsUnknown(MemberEvent):
    """The group's settings may not be read; a guess holds in their place."""

    _TEXT = "may not know the session time-out and assumes one: {reason}"
    reason: str


@dataclass(frozen=True, slots=True)
class SessionTooShort(MemberEvent):
    """A static member's application takes longer to start than its session lasts."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "is static, but the application took {restart_s:.0f} s to start and its session"
        " lasts {session_timeout_ms} ms: a restart gives its partitions away;"
        " {command}"
    )
    session_timeout_ms: int
    restart_s: float
    command: str


@dataclass(frozen=True, slots=True)
class BatchRunsLong(MemberEvent):
    """A batch runs for long; said again each time it has taken twice as long."""

    _SEVERITY = Severity.WARNING
    _TEXT = "waits for a batch that has been running for {batch_age_s:.0f} s"
    batch_age_s: float


@dataclass(frozen=True, slots=True)
class BatchOverdue(MemberEvent):
    """A batch has run for longer than it may: the member leaves."""

    _SEVERITY = Severity.ERROR
    _TEXT = (
        "leaves: a batch has been running for {batch_age_s:.0f} s, maxBatchTime is"
        " {limit_s:g} s; what it reads is not committed"
    )
    batch_age_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class QueryGone(MemberEvent):
    """Nobody called and no batch ran for longer than is allowed: the member leaves."""

    _SEVERITY = Severity.ERROR
    _TEXT = (
        "leaves: Spark has not called for {idle_s:.0f} s and no batch runs (limit:"
        " {limit_s:g} s, maxIdleTime); it joins again if Spark calls"
    )
    idle_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class QueryReturned(MemberEvent):
    """A query that was taken for dead called after all: the member joins again."""

    _SEVERITY = Severity.WARNING
    _TEXT = "joins again: Spark called after all"


@dataclass(frozen=True, slots=True)
class HeartbeatRefused(MemberEvent):
    """The coordinator answered a heartbeat with an error that is not final."""

    _SEVERITY = Severity.WARNING
    error: str
    message: str

    def _says(self, _: NameOf) -> str:
        return f"was refused a heartbeat: {self.error} {self.message}".rstrip()


@dataclass(frozen=True, slots=True)
class MemberFailed(MemberEvent):
    """The member was refused for good."""

    _SEVERITY = Severity.ERROR
    _TEXT = "was refused for good: {message}"
    message: str


@dataclass(frozen=True, slots=True)
class MemberLeft(MemberEvent):
    """The member is out of the group, or gave up saying goodbye."""

    _TEXT = "left the group"


class _Shown:
    """The fields of an event as sentences show them: partitions by name, the first of many.

    Args:
        event: The event.
        name_of: Returns the name of a topic id.
    """

    def __init__(self, event: Event, name_of: NameOf) -> None:
        self._event = event
        self._name_of = name_of

    def __getitem__(self, field: str) -> object:
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
    """Return the names of partitions, sorted.

    Args:
        partitions: The partitions.
        name_of: Returns the name of a topic id.
    """
    named = [
        f"{name_of(key.topic_id) or key.topic_id}-{key.partition}" for key in sorted(partitions)
    ]
    return listed(named) or "nothing"


def listed(named: list[str], unnamed: int = 0) -> str:
    """Return the first names of a list, and how many more there are.

    Args:
        named: The names.
        unnamed: How many there are without a name.
    """
    rest = len(named[SHOWN:]) + unnamed
    return ", ".join(named[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
