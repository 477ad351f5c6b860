"""What can be seen of a run from outside; checkers, figures and the timeline live on these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_groups.client.channels import Outgoing
from spark_groups.client.group_client import GroupClient
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.topic_images import TopicImage
from spark_groups.lab.sim.coordination import AcceptedOffset
from spark_groups.protocol.events import Event
from spark_groups.protocol.messages import Request, Response
from spark_groups.types import BatchPlan, TopicIdPartition
from spark_groups.values import dataclass

Records = Mapping[TopicIdPartition, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Began:
    """A query starts from its checkpoint.

    Args:
        is_job: Whether it ends when it has read what is there.
    """

    who: str
    incarnation: str
    client: GroupClient
    is_job: bool


@dataclass(frozen=True, slots=True)
class Drained:
    """A job ends because it has read what was there.

    Args:
        is_settled: Whether it had all that it was meant to have; else it has waited long enough.
    """

    who: str
    client: GroupClient
    began_at: float
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Triggered:
    """Spark asked for the next batch; `plan` is None if there is nothing to read."""

    who: str
    client: GroupClient
    plan: BatchPlan | None


@dataclass(frozen=True, slots=True)
class Read:
    """A batch runs: what it found in the logs."""

    who: str
    plan: BatchPlan
    records: Records


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch is in Spark's commit log."""

    who: str
    plan: BatchPlan
    records: Records


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A query starts with a new checkpoint."""

    who: str


@dataclass(frozen=True, slots=True)
class Consumed:
    """A plain consumer has read so far, and is about to commit it."""

    who: str
    member_id: str
    key: TopicIdPartition
    from_offset: int
    until_offset: int
    records: Sequence[int]


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator took an offset."""

    offset: AcceptedOffset


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """An operator has set the committed offset of a partition."""

    key: TopicIdPartition
    new_offset: int


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """The coordinator changed the group."""

    group: ConsumerGroup


@dataclass(frozen=True, slots=True)
class Replaced:
    """Another node took over from the coordinator."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What the coordinator changed since an instant was lost before it was replicated."""

    since: float


@dataclass(frozen=True, slots=True)
class Happened:
    """A client says that something happened to it."""

    who: str
    event: Event


@dataclass(frozen=True, slots=True)
class Sent:
    """A client sends a request."""

    who: str
    outgoing: Outgoing


@dataclass(frozen=True, slots=True)
class Answered:
    """A client takes the answer to a request."""

    who: str
    request: Request
    response: Response


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A client is told that a request may have arrived and gets no answer."""

    who: str
    request: Request


@dataclass(frozen=True, slots=True)
class CameLate:
    """A request arrives whose sender has given it up."""

    request: Request
    at: float


@dataclass(frozen=True, slots=True)
class Misheard:
    """A heartbeat that came late made the coordinator take partitions from its sender or give some.

    Args:
        taken: What it owns as far as it knows, or is told soon.
        given: What a plain consumer has now and is never told: the answer goes to nobody.
    """

    member_id: str
    taken: frozenset[TopicIdPartition]
    given: frozenset[TopicIdPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A job fails, for what it is to read does not exist or did not come."""

    who: str
    message: str


@dataclass(frozen=True, slots=True)
class Grown:
    """A partition was added to a topic."""

    key: TopicIdPartition


@dataclass(frozen=True, slots=True)
class Cut:
    """A log lost its end; it ends at `end_offset` now."""

    key: TopicIdPartition
    end_offset: int


@dataclass(frozen=True, slots=True)
class Aged:
    """A log lost its beginning; it starts at `start_offset` now."""

    key: TopicIdPartition
    start_offset: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic is gone with all its logs."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class Incident:
    """Something was done to the group from outside."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class CountingBegins:
    """The start-up of a planned run is over: what it costs is counted from here on."""


@dataclass(frozen=True, slots=True)
class CountingEnds:
    """The deployment of a planned run is over, and with it the time that is counted."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Some time after the last fault, the run is over."""


Fact = (
    Began
    | Drained
    | Triggered
    | Read
    | Finished
    | Forgotten
    | Consumed
    | Committed
    | OffsetReset
    | GroupChanged
    | Replaced
    | TakenBack
    | Happened
    | Sent
    | Answered
    | Unanswered
    | CameLate
    | Misheard
    | Unavailable
    | Grown
    | Cut
    | Aged
    | Deleted
    | Incident
    | CountingBegins
    | CountingEnds
    | Quiet
)
