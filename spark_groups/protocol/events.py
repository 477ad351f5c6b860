"""What happens to a member, as values: for logs, the snapshot, listeners and transcripts."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.types import Assignment


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """Something that happened to a member.

    Args:
        at: When, in seconds of the member's clock.
        member_id: The member it happened to.
        member_epoch: The epoch it had then.
    """

    at: float
    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True)
class EpochChanged(MemberEvent):
    """The coordinator moved the member to another epoch; `previous` is 0 after a join."""

    previous: int


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(MemberEvent):
    """Partitions became usable."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class RevocationTold(MemberEvent):
    """Partitions are to be given up until `deadline`, in seconds of the member's clock."""

    partitions: Assignment
    deadline: float


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(MemberEvent):
    """Partitions were given up: nothing reads them and all that was finished is committed."""

    partitions: Assignment


@dataclass(frozen=True, slots=True)
class PartitionsLost(MemberEvent):
    """Partitions are gone at once, with whatever was not committed."""

    partitions: Assignment
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceUnreleased(MemberEvent):
    """The instance id is still held by another member; the join is repeated until `deadline`."""

    instance_id: str
    deadline: float


@dataclass(frozen=True, slots=True)
class SessionTimeoutKnown(MemberEvent):
    """The group's session time-out was read, or was changed by an operator."""

    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SettingsUnknown(MemberEvent):
    """The group's settings may not be read; a guess holds in their place."""

    reason: str


@dataclass(frozen=True, slots=True)
class SessionTooShort(MemberEvent):
    """A static member's application takes longer to start than its session lasts."""

    session_timeout_ms: int
    restart_s: float
    command: str


@dataclass(frozen=True, slots=True)
class BatchRunsLong(MemberEvent):
    """A batch runs for long; said again each time it has taken twice as long."""

    batch_age_s: float


@dataclass(frozen=True, slots=True)
class BatchOverdue(MemberEvent):
    """A batch has run for longer than it may: the member leaves."""

    batch_age_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class QueryGone(MemberEvent):
    """Nobody called and no batch ran for longer than is allowed: the member leaves."""

    idle_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class QueryReturned(MemberEvent):
    """A query that was taken for dead called after all: the member joins again."""


@dataclass(frozen=True, slots=True)
class HeartbeatRefused(MemberEvent):
    """The coordinator answered a heartbeat with an error that is not final."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class MemberFailed(MemberEvent):
    """The member was refused for good."""

    message: str


@dataclass(frozen=True, slots=True)
class MemberLeft(MemberEvent):
    """The member is out of the group, or gave up saying goodbye."""
