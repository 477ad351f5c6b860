"""What happens to offsets and batches, as values: for logs, the snapshot and transcripts."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.types import BatchPlan, OffsetRange, TopicId, TopicIdPartition


@dataclass(frozen=True, slots=True)
class OffsetEvent:
    """Something that happened to offsets or batches; `at` is seconds of the client's clock."""

    at: float


@dataclass(frozen=True, slots=True)
class PositionFound(OffsetEvent):
    """An assigned partition may be planned; `committed` is False where the group never read it."""

    key: TopicIdPartition
    topic: str
    position: int
    committed: bool


@dataclass(frozen=True, slots=True)
class StartUnknown(OffsetEvent):
    """Nobody can say where partitions begin; said once for each of them and each error."""

    error: str
    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsReadWhole(OffsetEvent):
    """Partitions start at their beginning, new or not: nobody knows what they are."""

    topic: str
    partitions: tuple[int, ...]
    command: str


@dataclass(frozen=True, slots=True)
class CheckpointOfAnotherGroup(OffsetEvent):
    """The checkpoint was written in another group; the query goes on where this one stands."""

    former_group_id: str
    group_id: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchPlanned(OffsetEvent):
    """A batch was handed to Spark."""

    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class BatchFinished(OffsetEvent):
    """A batch is proven finished; its offsets are being committed."""

    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(OffsetEvent):
    """Offsets were accepted."""

    member_epoch: int
    partitions: int


@dataclass(frozen=True, slots=True)
class CommitRefused(OffsetEvent):
    """Offsets were refused; those still owned are sent again."""

    error: str
    partitions: int


@dataclass(frozen=True, slots=True)
class RangesLost(OffsetEvent):
    """Ranges were read but not committed: the next owner reads them again."""

    ranges: tuple[OffsetRange, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RangesInherited(OffsetEvent):
    """Ranges that an earlier incarnation finished are taken over: they are not read again."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class RangesOverruled(OffsetEvent):
    """Ranges this query finished were committed otherwise since, and that offset holds."""

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
class RangesWithheld(OffsetEvent):
    """Partitions are meant for this member and not released yet; `unresolved` are not listed."""

    withheld: tuple[WithheldRange, ...]
    unresolved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableNowUnsettled(OffsetEvent):
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


@dataclass(frozen=True, slots=True)
class NothingMatches(OffsetEvent):
    """No topic matches the pattern of a query that ends with that."""

    pattern: str


@dataclass(frozen=True, slots=True)
class TopicsMissing(OffsetEvent):
    """Subscribed topics do not exist; the group assigns them once they do."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicRecreated(OffsetEvent):
    """A topic was deleted and created again; `unread` rows of the old one are gone."""

    name: str
    old_id: TopicId
    new_id: TopicId
    unread: int


@dataclass(frozen=True, slots=True)
class TopicDeleted(OffsetEvent):
    """A topic that was given up is gone, or may not be seen any more, with `unread` rows."""

    name: str
    topic_id: TopicId
    unread: int


@dataclass(frozen=True, slots=True)
class TopicGone(OffsetEvent):
    """Offsets could not be committed because the topic does not exist any more."""

    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class DataLost(OffsetEvent):
    """Offsets that should be read are gone."""

    message: str


@dataclass(frozen=True, slots=True)
class RevocationBudgetUsed(OffsetEvent):
    """A revocation waits for a batch; `percent` of the rebalance time-out is used up.

    Args:
        at: Seconds.
        percent: 50 or 80; 90 is when the partitions are given up.
        waiting_for: Partitions that keep it from being acknowledged.
        fitting_offsets: The maxOffsetsPerTrigger with which the batch would have fitted, if known.
    """

    percent: int
    waiting_for: tuple[TopicIdPartition, ...]
    fitting_offsets: int | None


@dataclass(frozen=True, slots=True)
class RevocationHeld(OffsetEvent):
    """All is done for a revocation; its acknowledgement waits for a rebalance listener.

    Args:
        at: Seconds.
        number: What releases it.
        partitions: What is to be given up.
        release_by: When it is acknowledged all the same, in seconds of the client's clock.
    """

    number: int
    partitions: tuple[TopicIdPartition, ...]
    release_by: float


@dataclass(frozen=True, slots=True)
class PartitionsGivenUp(OffsetEvent):
    """Partitions were given up uncommitted, so that the rest is kept."""

    partitions: tuple[TopicIdPartition, ...]


@dataclass(frozen=True, slots=True)
class RebalanceTimeoutRaised(OffsetEvent):
    """Spark calls so seldom that the coordinator is asked for more time to revoke."""

    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class CoordinatorFound(OffsetEvent):
    """The group's coordinator is known (again)."""

    node: str


@dataclass(frozen=True, slots=True)
class CoordinatorMissing(OffsetEvent):
    """Nobody can say who coordinates the group; said once for each error."""

    error: str


@dataclass(frozen=True, slots=True)
class DescriptionRefused(OffsetEvent):
    """The group may not be described: nobody can tell what is still to come; said once."""

    error: str


@dataclass(frozen=True, slots=True)
class RequestUnanswered(OffsetEvent):
    """A request got no answer; it is sent again."""

    request: str
    reason: str
