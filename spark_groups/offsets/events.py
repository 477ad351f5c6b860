"""What happens to offsets and batches, as values, each with its severity and its sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_groups.protocol.events import SHOWN, Event, NameOf, Severity, listed, names_of
from spark_groups.types import BatchPlan, OffsetRange, TopicId, TopicIdPartition

MISSING_RIGHTS: Final = {
    "GROUP_AUTHORIZATION_FAILED": " (the principal needs DESCRIBE on the group)",
    "TOPIC_AUTHORIZATION_FAILED": (
        " (the principal needs DESCRIBE on every topic that a member of the group subscribes to)"
    ),
}
"""What is missing where a group's description is refused."""


@dataclass(frozen=True, slots=True)
class PositionFound(Event):
    """An assigned partition may be planned; `committed` is False where the group never read it."""

    _SEVERITY = Severity.DEBUG
    key: TopicIdPartition
    topic: str
    position: int
    committed: bool

    def _says(self, _: NameOf) -> str:
        where = "committed" if self.committed else "the group's start"
        return f"{self.topic}-{self.key.partition} stands at {self.position} ({where})"


@dataclass(frozen=True, slots=True)
class StartUnknown(Event):
    """Nobody can say where partitions begin; said once for each of them and each error."""

    _SEVERITY = Severity.WARNING
    _TEXT = "nobody can say where to start in {partitions}: {error}; asked again"
    error: str
    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsReadWhole(Event):
    """Partitions start at their beginning, new or not: nobody knows what they are."""

    _SEVERITY = Severity.WARNING
    topic: str
    partitions: tuple[int, ...]
    command: str

    def _says(self, _: NameOf) -> str:
        named = listed([f"{self.topic}-{each}" for each in self.partitions])
        return (
            f"{named}: no committed offset, although {self.topic} was read before. Whether these"
            " partitions were added since or lost their offsets cannot be told, so they are"
            " read from the beginning: rows may be read again, none is skipped. To skip what"
            f" is there, stop all members of the group and run: {self.command}"
        )


@dataclass(frozen=True, slots=True)
class CheckpointOfAnotherGroup(Event):
    """The checkpoint was written in another group; the query goes on where this one stands."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "the checkpoint was written by group {former_group_id!r}: {topics} is read from the offsets"
        " that {group_id!r} has committed, not from where {former_group_id!r} stood"
    )
    former_group_id: str
    group_id: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchEvent(Event):
    """Something that happened to a batch."""

    _SEVERITY = Severity.DEBUG
    plan: BatchPlan

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What it reads."""
        return self.plan.ranges


@dataclass(frozen=True, slots=True)
class BatchPlanned(BatchEvent):
    """A batch was handed to Spark."""

    _TEXT = "planned {ranges} at epoch {plan.member_epoch}"


@dataclass(frozen=True, slots=True)
class BatchFinished(BatchEvent):
    """A batch is proven finished; its offsets are being committed."""

    _TEXT = "finished {ranges} of epoch {plan.member_epoch}"


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Event):
    """Offsets were accepted."""

    _SEVERITY = Severity.DEBUG
    _TEXT = "committed {partitions} partitions at epoch {member_epoch}"
    member_epoch: int
    partitions: int


@dataclass(frozen=True, slots=True)
class CommitRefused(Event):
    """Offsets were refused; those still owned are sent again."""

    _TEXT = "a commit of {partitions} partitions was refused: {error}; sent again"
    error: str
    partitions: int


@dataclass(frozen=True, slots=True)
class RangesLost(Event):
    """Ranges were read but not committed: the next owner reads them again."""

    _SEVERITY = Severity.WARNING
    _TEXT = "{ranges} not committed: {reason}; read again, unless it comes back untouched"
    ranges: tuple[OffsetRange, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RangesInherited(Event):
    """Ranges that an earlier incarnation finished are taken over: they are not read again."""

    _TEXT = "took over {ranges} that an earlier run finished"
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class RangesOverruled(Event):
    """Ranges this query finished were committed otherwise since, and that offset holds."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "this query finished {ranges}, but another offset was committed since, and it holds:"
        " reading goes on there"
    )
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class WithheldRange:
    """What waits in a partition that its present owner has not released.

    Args:
        topic: Name of its topic.
        partition: Its index.
        committed_offset: The next offset to read; None: unknown, or none is committed.
        log_end_offset: The next offset to be written; None: unknown.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None

    @property
    def rows(self) -> int | None:
        """How many offsets wait in it; None: unknown."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed_offset)

    def __str__(self) -> str:
        first, until = (
            "?" if each is None else str(each)
            for each in (self.committed_offset, self.log_end_offset)
        )
        return f"{self.topic}-{self.partition}: [{first}, {until})"


@dataclass(frozen=True, slots=True)
class RangesWithheld(Event):
    """Partitions are meant for this member and not released yet; `unresolved` are not listed."""

    withheld: tuple[WithheldRange, ...]
    unresolved: int

    def _says(self, _: NameOf) -> str:
        named = listed([str(each) for each in self.withheld], self.unresolved)
        return f"waits for {named}, withheld until the present owner lets go"


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableNowUnsettled(Event):
    """AvailableNow ends without partitions that are meant for this member.

    Args:
        at: Seconds.
        waited_s: For how long they were waited for.
        withheld: What waits in those that others have not released.
        unresolved: How many more there are.
        holders: Who has them, as far as that is known.
        unready: Partitions that the member has, and of which nobody can say where to start.
        is_told: Whether it is known what is meant for the member.
        has_waited: Whether `availableNowUnsettled=wait` has been tried.
    """

    waited_s: float
    withheld: tuple[WithheldRange, ...]
    unresolved: int
    holders: tuple[str, ...]
    unready: tuple[TopicIdPartition, ...]
    is_told: bool
    has_waited: bool = False

    @property
    def is_harmless(self) -> bool:
        """Whether it is certain that no row is left unread."""
        waits = [each.rows for each in self.withheld]
        return self.is_told and not self.unready and not self.unresolved and set(waits) == {0}

    @property
    def severity(self) -> Severity:
        """It is louder where rows are left unread, or may be."""
        return Severity.INFO if self.is_harmless else Severity.WARNING

    def _says(self, name_of: NameOf) -> str:
        if self.is_harmless:
            return (
                f"ends without {listed([str(each) for each in self.withheld])}, not released"
                f" within {self.waited_s:.0f} s: no rows wait there"
            )
        advice = (
            "; availableNowUnsettled=wait waits up to the session timeout plus 10 s for it,"
            " then fails"
        )
        return (
            f"AvailableNow cannot read all that is meant for it: after {self.waited_s:.0f} s"
            f" {self._missing(name_of)}. The next run reads it{'' if self.has_waited else advice}"
        )

    def _missing(self, name_of: NameOf) -> str:
        parts = []
        if self.withheld:
            known = [each.rows for each in self.withheld if each.rows is not None]
            least = "" if len(known) == len(self.withheld) and not self.unresolved else "at least "
            who = ", ".join(self.holders[:SHOWN]) or "a member that the group does not name"
            parts.append(
                f"{listed([str(each) for each in self.withheld], self.unresolved)} are not released"
                f" by {who}, {least}{sum(known)} rows"
            )
        if self.unready:
            parts.append(f"nobody can say where to start in {names_of(self.unready, name_of)}")
        if not self.is_told or not parts:
            parts.append("the group has not said what is meant for this member")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class NothingMatches(Event):
    """No topic matches the pattern of a query that ends with that."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "subscribePattern {pattern!r} matches no topic that exists and may be seen:"
        " AvailableNow ends without having read anything"
    )
    pattern: str


@dataclass(frozen=True, slots=True)
class TopicsMissing(Event):
    """Subscribed topics do not exist; the group assigns them once they do."""

    _SEVERITY = Severity.WARNING
    _TEXT = "no such topic yet: {names}; waiting for it"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicRecreated(Event):
    """A topic was deleted and created again; `unread` rows of the old one are gone."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "topic {name} was deleted and created again; {unread} known rows of the old"
        " one were never read; the new one is read from its beginning"
    )
    name: str
    old_id: TopicId
    new_id: TopicId
    unread: int


@dataclass(frozen=True, slots=True)
class TopicDeleted(Event):
    """A topic that was given up is gone, or may not be seen any more, with `unread` rows."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "topic {name} was deleted, or may not be seen any more; {unread} known rows"
        " of it were never read"
    )
    name: str
    topic_id: TopicId
    unread: int


@dataclass(frozen=True, slots=True)
class TopicGone(Event):
    """Offsets could not be committed because the topic does not exist any more."""

    _SEVERITY = Severity.WARNING
    _TEXT = "{partitions} is gone with its topic"
    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class DataLost(Event):
    """Offsets that should be read are gone."""

    _SEVERITY = Severity.ERROR
    _TEXT = "{message}"
    message: str


@dataclass(frozen=True, slots=True)
class RevocationBudgetUsed(Event):
    """A revocation waits for a batch; `percent` of the rebalance time-out is used up.

    Args:
        at: Seconds.
        percent: 50 or 80; 90 is when the partitions are given up.
        waiting_for: Partitions that keep it from being acknowledged.
        fitting_offsets: The maxOffsetsPerTrigger with which the batch would have fitted, if known.
    """

    _SEVERITY = Severity.WARNING
    percent: int
    waiting_for: tuple[TopicIdPartition, ...]
    fitting_offsets: int | None

    def _says(self, name_of: NameOf) -> str:
        advice = (
            f"; maxOffsetsPerTrigger={self.fitting_offsets} would have fitted"
            if self.fitting_offsets
            else ""
        )
        return (
            f"{self.percent} % of the rebalance time-out is used up, a batch still reads"
            f" {names_of(self.waiting_for, name_of)}{advice}"
        )


@dataclass(frozen=True, slots=True)
class RevocationHeld(Event):
    """All is done for a revocation; its acknowledgement waits for a rebalance listener.

    Args:
        at: Seconds.
        number: What releases it.
        partitions: What is to be given up.
        release_by: When it is acknowledged all the same, in seconds of the client's clock.
    """

    _TEXT = "the rebalance listener has {left_s:.0f} s before {partitions} is given up"
    number: int
    partitions: tuple[TopicIdPartition, ...]
    release_by: float

    @property
    def left_s(self) -> float:
        """How many seconds the listener has."""
        return self.release_by - self.at


@dataclass(frozen=True, slots=True)
class PartitionsGivenUp(Event):
    """Partitions were given up uncommitted, so that the rest is kept."""

    _SEVERITY = Severity.ERROR
    _TEXT = (
        "gave up {partitions} uncommitted so that the rest is kept: the batch outlasted the"
        " rebalance time-out"
    )
    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class RebalanceTimeoutRaised(Event):
    """Spark calls so seldom that the coordinator is asked for more time to revoke."""

    _SEVERITY = Severity.WARNING
    _TEXT = (
        "Spark calls seldom: asked the coordinator for {rebalance_timeout_ms} ms to give"
        " up partitions; set kafka.max.poll.interval.ms to suit the trigger"
    )
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class CoordinatorFound(Event):
    """The group's coordinator is known (again)."""

    _TEXT = "the coordinator is {node}"
    node: str


@dataclass(frozen=True, slots=True)
class CoordinatorMissing(Event):
    """Nobody can say who coordinates the group; said once for each error."""

    _SEVERITY = Severity.WARNING
    _TEXT = "nobody coordinates the group yet: {error}; asked again"
    error: str


@dataclass(frozen=True, slots=True)
class DescriptionRefused(Event):
    """The group may not be described: nobody can tell what is still to come; said once."""

    _SEVERITY = Severity.WARNING
    error: str

    def _says(self, _: NameOf) -> str:
        cause = MISSING_RIGHTS.get(self.error, "")
        return (
            f"the group may not be described: {self.error}{cause}; the member lives without knowing"
            " what it is still to be given"
        )


@dataclass(frozen=True, slots=True)
class RequestUnanswered(Event):
    """A request got no answer; it is sent again."""

    _SEVERITY = Severity.WARNING
    _TEXT = "{request} got no answer: {reason}"
    request: str
    reason: str
