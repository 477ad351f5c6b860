"""Events of a run that checkers, figures and the timeline listen to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.topic_images import TopicImage
from group_lab.sim.coordination import AcceptedOffset
from spark_groups.fence.beginnings import Batch
from spark_groups.fence.entries import EntryChange, FenceKey
from spark_groups.group.client import GroupClient
from spark_groups.group.member.events import Event
from spark_groups.group.member.messages import Request, Response
from spark_groups.group.requests.channels import Outgoing
from spark_groups.types import BatchPlan, OffsetRange, TopicIdPartition
from spark_groups.values import dataclass

Records = Mapping[TopicIdPartition, Sequence[int]]


class Fact:
    """Something that happened, seen from outside."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Began(Fact):
    """A query starts from its checkpoint; `is_job` if it is an AvailableNow job."""

    who: str
    incarnation: str
    client: GroupClient
    is_job: bool


@dataclass(frozen=True, slots=True)
class Drained(Fact):
    """An AvailableNow job ends because it has read all records that were there.

    Args:
        is_settled: Whether it had its whole target assignment, or else stopped waiting for it.
        asked_at: When Spark asked for the batch that there is not, in seconds.
    """

    who: str
    client: GroupClient
    began_at: float
    is_settled: bool
    asked_at: float


@dataclass(frozen=True, slots=True)
class Triggered(Fact):
    """Spark asked for the next batch; `plan` is None if there is none."""

    who: str
    client: GroupClient
    plan: BatchPlan | None


@dataclass(frozen=True, slots=True)
class Read(Fact):
    """A batch runs and reads these records."""

    who: str
    plan: BatchPlan
    records: Records


@dataclass(frozen=True, slots=True)
class Finished(Fact):
    """A batch is finished: its rows are in the sink."""

    who: str
    plan: BatchPlan
    records: Records


@dataclass(frozen=True, slots=True)
class Stored(Fact):
    """A table accepted a commit.

    Args:
        rows: The record at each offset, by partition.
    """

    changes: tuple[EntryChange, ...]
    rows: Mapping[TopicIdPartition, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Wrote(Fact):
    """A run has written a batch to a table.

    Args:
        kept: The ranges of the batch, without records that were deleted.
        began_at: When it began to write; seconds.
        planned_at: When the batch was planned; None: another run has planned it.
    """

    incarnation: str
    kept: tuple[OffsetRange, ...]
    began_at: float
    planned_at: float | None


@dataclass(frozen=True, slots=True)
class Swallowed(Fact):
    """The function around `write_table` swallowed an error: these ranges may not be in the table.

    Spark takes the batch for finished.
    """

    incarnation: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class WriteRefused(Fact):
    """A batch was not written, for a reason that only an operator can remove.

    Args:
        partitions: Those about which an operator does something.
    """

    incarnation: str
    batch: Batch
    partitions: tuple[FenceKey, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GapAccepted(Fact):
    """An operator accepted that a table lacks these offsets."""

    key: TopicIdPartition
    from_offset: int
    until_offset: int


@dataclass(frozen=True, slots=True)
class SetBack(Fact):
    """An operator deleted a table's rows of a partition from an offset on."""

    key: TopicIdPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Forgotten(Fact):
    """A query starts with a new checkpoint."""

    who: str


@dataclass(frozen=True, slots=True)
class NotReplayed(Fact):
    """A query starts, and its last plan, which was not finished, does not run again.

    Asynchronous progress tracking loses entries of Spark's logs in a crash.
    """

    who: str


@dataclass(frozen=True, slots=True)
class Consumed(Fact):
    """A consumer without a checkpoint has read these ranges, and commits them now or later.

    Args:
        ranges: By partition the offsets [from, until).
        began_at: When it began to process them; seconds.
    """

    who: str
    member_id: str
    ranges: Mapping[TopicIdPartition, tuple[int, int]]
    records: Records
    began_at: float


@dataclass(frozen=True, slots=True)
class ReleasedWhileCommitting(Fact):
    """A plain consumer released partitions while a commit of them was under way."""

    member_id: str
    partitions: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class Committed(Fact):
    """The coordinator accepted an offset."""

    offset: AcceptedOffset


@dataclass(frozen=True, slots=True)
class OffsetReset(Fact):
    """An operator has set the committed offset of a partition."""

    key: TopicIdPartition
    new_offset: int


@dataclass(frozen=True, slots=True)
class OffsetDeleted(Fact):
    """An operator has deleted the committed offset of a partition."""

    key: TopicIdPartition


@dataclass(frozen=True, slots=True)
class GroupChanged(Fact):
    """The coordinator changed the group."""

    group: ConsumerGroup


@dataclass(frozen=True, slots=True)
class Replaced(Fact):
    """Another node took over from the coordinator."""


@dataclass(frozen=True, slots=True)
class TakenBack(Fact):
    """The coordinator lost its changes since an instant before they were replicated."""

    since: float


@dataclass(frozen=True, slots=True)
class Happened(Fact):
    """A client reports an event."""

    who: str
    event: Event


@dataclass(frozen=True, slots=True)
class ClassicHappened(Fact):
    """A consumer of the classic protocol reports an event; its member epoch is the generation."""

    who: str
    event: Event


@dataclass(frozen=True, slots=True)
class Sent(Fact):
    """A client sends a request."""

    who: str
    outgoing: Outgoing


@dataclass(frozen=True, slots=True)
class Answered(Fact):
    """A client receives the answer to a request."""

    who: str
    request: Request
    response: Response


@dataclass(frozen=True, slots=True)
class Unanswered(Fact):
    """A client learns that a request gets no answer; the request may have arrived."""

    who: str
    request: Request


@dataclass(frozen=True, slots=True)
class CameLate(Fact):
    """A request arrives after its sender stopped waiting."""

    request: Request
    at: float


@dataclass(frozen=True, slots=True)
class ChangedByLateHeartbeat(Fact):
    """A late heartbeat made the coordinator change its sender's partitions.

    Args:
        taken: Partitions that the sender still owns in its own view, or soon will.
        given: Partitions that a plain consumer never learns of: the answer is lost.
    """

    member_id: str
    taken: frozenset[TopicIdPartition]
    given: frozenset[TopicIdPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class TakenUnaware(Fact):
    """Partitions went to another member while a classic member owns them in its own view.

    The group was upgraded while the member had to revoke them; or a consumer group removed the
    member, which then joined again under the same member id; or it missed a generation.
    """

    member_id: str
    taken: frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class Unavailable(Fact):
    """A job fails because its topics do not exist or its partitions did not arrive."""

    who: str
    message: str


@dataclass(frozen=True, slots=True)
class Grown(Fact):
    """A partition was added to a topic."""

    key: TopicIdPartition


@dataclass(frozen=True, slots=True)
class Cut(Fact):
    """A log lost its end; it ends at `end_offset` now."""

    key: TopicIdPartition
    end_offset: int


@dataclass(frozen=True, slots=True)
class Aged(Fact):
    """A log lost its beginning; it starts at `start_offset` now."""

    key: TopicIdPartition
    start_offset: int


@dataclass(frozen=True, slots=True)
class Deleted(Fact):
    """A topic is gone with all its logs."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class Incident(Fact):
    """Something was done to the group from outside."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class CountingBegins(Fact):
    """The start-up of a planned run is over; the figures count from here."""


@dataclass(frozen=True, slots=True)
class CountingEnds(Fact):
    """The deployment of a planned run, and with it the counted time, is over."""


@dataclass(frozen=True, slots=True)
class Computed(Fact):
    """A member sent the targets that it computed, and the coordinator answered.

    Args:
        error: The error of the assignor.
        error_code: The answer; the coordinator refuses if it has chosen another member meanwhile.
    """

    who: str
    group_epoch: int
    error: int
    error_code: int


@dataclass(frozen=True, slots=True)
class Quiet(Fact):
    """Some time after the last fault, the run is over."""
