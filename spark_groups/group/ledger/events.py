"""Events of offsets and batches as values, each with its severity and its log line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_groups.group.member.events import SHOWN, Event, NameOf, Severity, event, listed, names_of
from spark_groups.group.member.near_names import hint
from spark_groups.types import BatchPlan, OffsetRange, TopicId, TopicIdPartition

STARTING_COORDINATOR: Final = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
"""A broker creates the log of the first group, or reads it after a start."""
MISSING_RIGHTS: Final = {
    "GROUP_AUTHORIZATION_FAILED": " (the principal needs DESCRIBE on the group)",
    "TOPIC_AUTHORIZATION_FAILED": (
        " (the principal needs DESCRIBE on every topic that a member of the group subscribes to)"
    ),
}
"""The missing right, by the error that answers ConsumerGroupDescribe."""


@event(severity=Severity.DEBUG)
class PositionFound(Event):
    """An assigned partition may be planned; `committed` is False on its first read by the group."""

    key: TopicIdPartition
    topic: str
    position: int
    committed: bool

    def _message(self, _: NameOf) -> str:
        where = "committed offset" if self.committed else "starting offset"
        return f"{self.topic}-{self.key.partition}: position {self.position} ({where})"


@event("cannot read {partitions} yet: {request} answers {error}{cure}; retrying", Severity.WARNING)
class PartitionsWait(Event):
    """Owned partitions wait for an answer; reported once for each of them and each error."""

    request: str
    error: str
    cure: str
    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsStarted(Event):
    """Partitions without a committed offset have started: their starting offsets are committed.

    Args:
        rows: At most how many rows are below their starting offsets.
        command: The command that starts them elsewhere.
    """

    topic: str
    partitions: tuple[TopicIdPartition, ...]
    rows: int
    command: str


@event(
    "{partitions}: no committed offset, although the group has read {topic} before. They are new,"
    " or their offsets were lost, so they are read from the beginning: rows may be read twice, none"
    " is skipped. To skip the existing rows, stop all members of the group and run: {command}",
    Severity.WARNING,
)
class PartitionsReadFromBeginning(PartitionsStarted):
    """Partitions without a committed offset, new or not, are read from their beginning."""


@event(
    "{partitions}: no committed offset, and the checkpoint of this query lacks {topic}. The topic"
    " appeared, or was added to the subscription, while the query did not run, so it is read from"
    " the beginning, as by Spark's own source. To skip the existing rows, stop all members of the"
    " group and run: {command}",
    Severity.WARNING,
)
class NewTopicRead(PartitionsStarted):
    """A topic that is new to the checkpoint is read from its beginning."""


@event(
    "{partitions}: no committed offset and no checkpoint, so startingOffsets applies and up to"
    " {rows} existing rows are skipped, although the group has committed offsets of other topics."
    " If {topic} appeared while no member ran, no member has read them. To read them, stop all"
    " members of the group and run: {command}",
    Severity.WARNING,
)
class ExistingRowsSkipped(PartitionsStarted):
    """A topic starts at `latest` or a timestamp in a group that has read other topics before."""


@event(
    "{partitions}: no committed offset, and no earlier run of this query has read {topic}, so"
    " startingOffsets applies now and {rows} existing offsets are skipped, also those of rows"
    " written since the query began. To read them, stop all members of the group and run:"
    " {command}",
    Severity.WARNING,
)
class RowsSinceSkipped(ExistingRowsSkipped):
    """A topic that a run of the query left unread starts at `latest` or a timestamp."""


@event(
    "the checkpoint was written by group {former_group_id!r}: {topics} will be read from the"
    " committed offsets of group {group_id!r} instead",
    Severity.WARNING,
)
class CheckpointOfAnotherGroup(Event):
    """The checkpoint belongs to another group; the query reads from the offsets of this one."""

    former_group_id: str
    group_id: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchEvent(Event):
    """Something that happened to a batch."""

    plan: BatchPlan

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        return self.plan.ranges


@event("nothing to read: the group has committed every record of {partitions}")
class NothingUnread(Event):
    """The first trigger of a run has found no records; reported once."""

    partitions: tuple[TopicIdPartition, ...]


@event("{tasks} tasks warm this run up before its member joins: other members read meanwhile")
class WarmUpBegan(Event):
    """The member joins once a batch without ranges has started Spark's Python workers."""

    tasks: int


@event("joining the group now: {reason}")
class WarmUpEnded(Event):
    """The member joins because its query has warmed up, or must not."""

    reason: str


@event("planned {ranges} at member epoch {plan.member_epoch}", Severity.DEBUG)
class BatchPlanned(BatchEvent):
    """The client handed a batch to Spark."""


@event(
    "reading {offsets:,} of {unread_offsets:,} unread offsets in this batch, about {size_mib:,.1f}"
    " MiB: {reason}"
)
class BatchLimited(Event):
    """A batch is smaller than its backlog, because of a limit in bytes."""

    offsets: int
    unread_offsets: int
    size_mib: float
    reason: str


@event(
    "reading {max_offsets:,} offsets at most in this batch, so that the first offsets are committed"
    " early"
)
class FirstBatchLimited(Event):
    """A batch is one of the first of a run, which are small."""

    max_offsets: int


@event("log ends could not be listed: {problem}", Severity.WARNING)
class LogEndsMissing(Event):
    """Brokers did not list all log ends of a plan; reported once for each reason."""

    problem: str


@event(
    "{partitions} partitions could not be sampled, so the size of this batch may be far from"
    " maxBytesPerTrigger: {problem}",
    Severity.WARNING,
)
class RecordsNotSampled(Event):
    """Brokers did not send records of some partitions; reported once for each reason."""

    partitions: int
    problem: str


@event("finished {ranges}, planned at member epoch {plan.member_epoch}", Severity.DEBUG)
class BatchFinished(BatchEvent):
    """Spark proved a batch finished; its offsets are being committed."""


@event("committed {partitions} partitions at member epoch {member_epoch}", Severity.DEBUG)
class OffsetsCommitted(Event):
    """The coordinator accepted offsets."""

    member_epoch: int
    partitions: int


@event("offset commit of {partitions} partitions refused: {error}; retrying")
class CommitRefused(Event):
    """The coordinator refused offsets; those of partitions still owned are sent again."""

    error: str
    partitions: int


@event("{ranges} not committed: {reason}; the next owner reads them again", Severity.WARNING)
class RangesLost(Event):
    """Ranges were read but not committed: the next owner reads them again."""

    ranges: tuple[OffsetRange, ...]
    reason: str


@event("not reading {ranges} again: the last batch in the checkpoint has them")
class RangesInherited(Event):
    """The last batch in the checkpoint has these ranges: this run does not read them again."""

    ranges: tuple[OffsetRange, ...]


@event(
    "this query finished {ranges}, but another commit was made since; reading continues from"
    " the committed offset",
    Severity.WARNING,
)
class RangesOverruled(Event):
    """The committed offset of finished ranges was changed from outside this query, and wins."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class WithheldRange:
    """The unread offsets of a partition that its current owner has not released.

    Args:
        committed_offset: The next offset to read; None: unknown, or none is committed.
        log_end_offset: The next offset to be written; None: unknown.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None

    @property
    def rows(self) -> int | None:
        """How many offsets it has; None: unknown."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed_offset)

    def __str__(self) -> str:
        first, until = (
            "?" if each is None else str(each)
            for each in (self.committed_offset, self.log_end_offset)
        )
        return f"{self.topic}-{self.partition}: [{first}, {until})"


@event()
class RangesWithheld(Event):
    """The member waits for pending partitions; `unresolved` counts those not listed."""

    withheld: tuple[WithheldRange, ...]
    unresolved: int

    def _message(self, _: NameOf) -> str:
        named = listed([str(each) for each in self.withheld], self.unresolved)
        return f"waiting for {named}, not released by their current owners"


@dataclass(frozen=True, slots=True)
class UnreadRows:
    """Rows of a deleted topic that were not read.

    Args:
        known: Those up to the log ends that the member has listed. More may have been written
            after that, or to partitions of other members.
    """

    known: int

    def __str__(self) -> str:
        if not self.known:
            return "whether all rows of the deleted topic were read is unknown"
        return f"at least {self.known} rows of the deleted topic were not read"


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableNowUnsettled(Event):
    """AvailableNow ends without partitions of the member's target assignment.

    Args:
        waited_s: How long the member waited for them.
        withheld: Their unread offsets, where other members hold them.
        unresolved: How many more there are.
        holders: The members that hold them, if known.
        unready: Owned partitions without a known position.
        waits_for: The failing requests because of which they have none, each with its error.
        is_target_known: Whether the member knows its target assignment.
        has_waited: Whether `availableNowUnsettled=wait` has been tried.
    """

    waited_s: float
    withheld: tuple[WithheldRange, ...]
    unresolved: int
    holders: tuple[str, ...]
    unready: tuple[TopicIdPartition, ...]
    is_target_known: bool
    has_waited: bool = False
    waits_for: tuple[str, ...] = ()

    @property
    def is_harmless(self) -> bool:
        """Whether it is certain that no row stays unread."""
        waits = {each.rows for each in self.withheld}
        return self.is_target_known and not self.unready and not self.unresolved and waits == {0}

    @property
    def severity(self) -> Severity:
        return Severity.INFO if self.is_harmless else Severity.WARNING

    def _message(self, name_of: NameOf) -> str:
        if self.is_harmless:
            return (
                f"AvailableNow ends without {listed([str(each) for each in self.withheld])}, not"
                f" released within {self.waited_s:.0f} s: no rows are waiting there"
            )
        advice = (
            "; availableNowUnsettled=wait waits up to the session timeout plus 10 s, then fails"
        )
        return (
            "AvailableNow cannot read all partitions of its target assignment: after"
            f" {self.waited_s:.0f} s {self._missing(name_of)}. The next run reads them"
            f"{'' if self.has_waited else advice}"
        )

    def _missing(self, name_of: NameOf) -> str:
        parts = []
        if self.withheld:
            known = [each.rows for each in self.withheld if each.rows is not None]
            least = "" if len(known) == len(self.withheld) and not self.unresolved else "at least "
            who = ", ".join(self.holders[:SHOWN]) or "an unknown member"
            parts.append(
                f"{listed([str(each) for each in self.withheld], self.unresolved)} are not released"
                f" by {who}, {least}{sum(known)} rows"
            )
        if self.unready:
            reason = f": {', '.join(self.waits_for)}" if self.waits_for else ""
            named = names_of(self.unready, name_of)
            parts.append(f"no position is known for {named}{reason}")
        if not self.is_target_known or not parts:
            parts.append("the target assignment of this member is unknown")
        return "; ".join(parts)


@event(
    "subscribePattern {pattern!r} matches no topic that exists and is visible: AvailableNow ends"
    " without reading anything",
    Severity.WARNING,
)
class NothingMatches(Event):
    """No topic matches the pattern of a query under AvailableNow."""

    pattern: str


@event(
    "subscribePattern {pattern!r} matches topics internal to Kafka: {names}. The coordinator"
    " assigns them; this query holds them, and like Spark's own source reads and commits nothing of"
    " them. Use a pattern that does not match them, such as [^_].*, or name one in subscribe to"
    " read it",
    Severity.WARNING,
)
class InternalTopicsHeld(Event):
    """Partitions of internal topics are assigned; reported once for each topic."""

    names: tuple[str, ...]
    pattern: str


@event("no such topic yet: {hinted}; waiting for it", Severity.WARNING)
class TopicsMissing(Event):
    """Subscribed topics do not exist; the coordinator assigns them once they do."""

    names: tuple[str, ...]
    near: Mapping[str, str] = field(default_factory=dict)
    """By name: an existing topic with a similar name."""

    @property
    def hinted(self) -> tuple[str, ...]:
        """The names, each with the one that may have been meant."""
        return tuple(f"{name}{hint(name, self.near)}" for name in self.names)


@event(
    "topic {name} was deleted and created again; {unread}; the new one is read from its beginning",
    Severity.WARNING,
)
class TopicRecreated(Event):
    """A topic was deleted and created again; its unread records are gone."""

    name: str
    old_id: TopicId
    new_id: TopicId
    unread: UnreadRows


@event("topic {name} was deleted or is no longer visible; {unread}", Severity.WARNING)
class TopicDeleted(Event):
    """A topic whose partitions were all revoked is gone or no longer visible."""

    name: str
    topic_id: TopicId
    unread: UnreadRows


@event("cannot commit offsets of {partitions}: the topic does not exist", Severity.WARNING)
class TopicGone(Event):
    """The coordinator refused offsets because the topic does not exist."""

    partitions: tuple[TopicIdPartition, ...]


@event("{message}", Severity.ERROR)
class DataLost(Event):
    """Offsets that should be read are gone."""

    message: str


@event(severity=Severity.WARNING)
class RevocationBudgetUsed(Event):
    """A revocation waits for a batch; `percent` of the rebalance timeout has passed.

    Args:
        percent: 50 or 80; at 90 the partitions are released without a commit.
        waiting_for: Partitions that delay the acknowledgement.
        fitting_offsets: The maxOffsetsPerTrigger with which the batch would have fitted, if known.
    """

    percent: int
    waiting_for: tuple[TopicIdPartition, ...]
    fitting_offsets: int | None

    def _message(self, name_of: NameOf) -> str:
        advice = (
            f"; maxOffsetsPerTrigger={self.fitting_offsets} would have fitted"
            if self.fitting_offsets
            else ""
        )
        return (
            f"{self.percent} % of the rebalance timeout has passed, a batch is still reading"
            f" {names_of(self.waiting_for, name_of)}{advice}"
        )


@event("the rebalance listener has {left_s:.0f} s before {partitions} is released")
class RevocationHeld(Event):
    """A revocation is ready to be acknowledged, and waits for a rebalance listener.

    Args:
        number: The number that releases it.
        deadline: When it is acknowledged without the listener, in seconds of the client's clock.
    """

    number: int
    partitions: tuple[TopicIdPartition, ...]
    deadline: float


@event(
    "released {partitions} without a commit, to keep the other partitions: the batch outlasted the"
    " rebalance timeout",
    Severity.ERROR,
)
class PartitionsGivenUp(Event):
    """The member released partitions uncommitted, to keep the others."""

    partitions: tuple[TopicIdPartition, ...]


@event(
    "Spark calls rarely: raised the rebalance timeout to {rebalance_timeout_ms} ms; set"
    " kafka.max.poll.interval.ms to suit the trigger",
    Severity.WARNING,
)
class RebalanceTimeoutRaised(Event):
    """Spark calls so rarely that revocations need a larger rebalance timeout."""

    rebalance_timeout_ms: int


@event("the group coordinator is {node}")
class CoordinatorFound(Event):
    """FindCoordinator named the group's coordinator."""

    node: str


@event("no group coordinator yet: {error}; retrying")
class CoordinatorMissing(Event):
    """FindCoordinator failed; reported once for each error."""

    error: str

    @property
    def severity(self) -> Severity:
        return Severity.INFO if self.error in STARTING_COORDINATOR else Severity.WARNING


@event(severity=Severity.WARNING)
class DescriptionRefused(Event):
    """The coordinator refused to describe the group; reported once."""

    error: str

    def _message(self, _: NameOf) -> str:
        cause = MISSING_RIGHTS.get(self.error, "")
        return (
            f"cannot describe the group: {self.error}{cause}; continuing without visibility of"
            " pending partitions"
        )


@event(severity=Severity.WARNING)
class AnswerAwaited(Event):
    """A request has had no answer for a while; the member waits for it."""

    request: str
    to: str
    waited_s: float
    reason: str

    def _message(self, name_of: NameOf) -> str:
        del name_of
        to = f" of {self.to}" if self.to else ""
        reason = f"; the last attempt: {self.reason}" if self.reason else ""
        return f"waiting for the answer{to} to {self.request} for {self.waited_s:.0f} s{reason}"


@event("no response to {request}: {reason}", Severity.WARNING)
class RequestUnanswered(Event):
    """A request got no response; it is sent again."""

    request: str
    reason: str
