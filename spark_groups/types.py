"""Values that every layer shares: partitions, assignments, offset ranges, batch plans.

Decisions are keyed by topic id, because a topic that is deleted and created again is another topic;
names are for people and for requests that still need them.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, NamedTuple

from spark_groups import values

EARLIEST_TIMESTAMP: Final = -2
"""Of ListOffsets: the first offset that a log has."""
LATEST_TIMESTAMP: Final = -1
"""Of ListOffsets: the end of the log."""
TopicId = uuid.UUID


@lru_cache(maxsize=1_024)
def topic_id_text(topic_id: TopicId) -> str:
    """Return a topic id as Kafka's tools write it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def sum_of_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of the known numbers; None if there are numbers but none is known."""
    listed = list(numbers)
    known = [each for each in listed if each is not None]
    return sum(known) if known or not listed else None


def parse_topic_id(text: str) -> TopicId:
    """Read a topic id as Kafka's tools write it.

    Raises:
        ValueError: `text` is not 22 characters of URL-safe base64.
    """
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        return uuid.UUID(bytes=raw)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a Kafka topic id") from error


class TopicPartition(NamedTuple):
    """A partition by topic name, as people, librdkafka and older requests call it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id, as the group protocol, plans and the ledger call it."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{topic_id_text(self.topic_id)}-{self.partition}"


@values.dataclass(frozen=True, slots=True)
class Assignment:
    """A set of partitions by topic id."""

    partitions: frozenset[TopicIdPartition] = frozenset()

    @classmethod
    def of(cls, by_topic: Mapping[TopicId, Iterable[int]]) -> Assignment:
        """Build an assignment from partition indexes by topic id, as on the wire."""
        return cls(
            frozenset(
                TopicIdPartition(topic_id, partition)
                for topic_id, partitions in by_topic.items()
                for partition in partitions
            )
        )

    def by_topic(self) -> dict[TopicId, tuple[int, ...]]:
        """Return sorted partition indexes by topic id, as on the wire."""
        grouped: dict[TopicId, list[int]] = {}
        for each in self.partitions:
            grouped.setdefault(each.topic_id, []).append(each.partition)
        return {topic_id: tuple(sorted(grouped[topic_id])) for topic_id in sorted(grouped)}

    def __or__(self, other: Assignment) -> Assignment:
        return Assignment(self.partitions | other.partitions)

    def __sub__(self, other: Assignment) -> Assignment:
        return Assignment(self.partitions - other.partitions)

    def __and__(self, other: Assignment) -> Assignment:
        return Assignment(self.partitions & other.partitions)

    def __le__(self, other: Assignment) -> bool:
        return self.partitions <= other.partitions

    def __contains__(self, partition: object) -> bool:
        return partition in self.partitions

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return iter(sorted(self.partitions))

    def __len__(self) -> int:
        return len(self.partitions)


NO_PARTITIONS = Assignment()


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [from_offset, until_offset) of one partition that a batch reads.

    Raises:
        ValueError: The range ends before it begins, or an offset is negative.
    """

    topic_id: TopicId
    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset <= self.until_offset:
            raise ValueError(
                f"[{self.from_offset}, {self.until_offset}) of {self.topic}-{self.partition}"
                " is not a range of offsets"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks carry thousands: what dataclasses do for values with slots costs twice as much.
        fields = (self.topic_id, self.topic, self.partition, self.from_offset, self.until_offset)
        return OffsetRange, fields

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return self.until_offset - self.from_offset


@dataclass(slots=True)
class RangeCursor:
    """The progress of a range of offsets.

    Args:
        next_offset: The first offset that has not arrived.
        until_offset: The end of the range, exclusive.
    """

    topic_partition: TopicPartition
    next_offset: int
    until_offset: int

    @property
    def has_arrived(self) -> bool:
        """Whether all of the range has arrived."""
        return self.next_offset >= self.until_offset

    def __str__(self) -> str:
        return f"{self.topic_partition} from offset {self.next_offset} until {self.until_offset}"


class PlanTopic(NamedTuple):
    """A topic that a plan names: the query has read it, or it existed when the query began.

    Args:
        topic_id: Topic id.
        name: Topic name.
        known_count: Partitions of the topic when the group began to read it; None: unknown. Of a
            topic that the query has not read: when the query began.
        is_read: Whether the query has read it.
    """

    topic_id: TopicId
    name: str
    known_count: int | None = None
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What one micro-batch reads: the end offset in Spark's checkpoint.

    Args:
        group_id: The consumer group.
        member_id: The member that planned; a query has a new one after each restart.
        member_epoch: The member epoch that fences the offset commit of this batch.
        ranges: Offset ranges, sorted, at most one for each partition.
        topics: All topics that the query is known to have read, or that existed when it began,
            sorted, including those of `ranges`.
        warm_up_tasks: Number of tasks of a warm-up plan: its batch starts Python workers and reads
            nothing, and its member has not joined yet. 0: any other plan.
        marks: For each range, the mark of the commit on which it stands: of the committed offset
            at which it begins. Empty text: unknown, or another client's commit. Empty: all unknown.
        cluster_id: Kafka's id of the cluster; None: unknown.

    Raises:
        ValueError: A warm-up plan has ranges, the number of its tasks is negative, or there are
            marks for another number of ranges.
    """

    group_id: str
    member_id: str
    member_epoch: int
    ranges: tuple[OffsetRange, ...] = field(default=())
    topics: tuple[PlanTopic, ...] = field(default=())
    warm_up_tasks: int = 0
    marks: tuple[str, ...] = field(default=())
    cluster_id: str | None = None

    def __post_init__(self) -> None:
        if self.warm_up_tasks < 0 or (self.warm_up_tasks and self.ranges):
            raise ValueError(
                f"a plan of {self.warm_up_tasks} warm-up tasks and {len(self.ranges)} ranges is"
                " neither a warm-up plan nor one that reads"
            )
        if not any(self.marks):
            object.__setattr__(self, "marks", ())
        elif len(self.marks) != len(self.ranges):
            raise ValueError(f"there are {len(self.marks)} marks for {len(self.ranges)} ranges")
        named = {
            offset_range.topic_id: PlanTopic(offset_range.topic_id, offset_range.topic)
            for offset_range in self.ranges
        }
        named |= {topic.topic_id: topic for topic in self.topics}
        object.__setattr__(self, "topics", tuple(named[topic_id] for topic_id in sorted(named)))

    def marked_ranges(self) -> Iterator[tuple[OffsetRange, str]]:
        """Yield each range with the mark of the commit on which it stands, "" if it is unknown."""
        return zip(self.ranges, self.marks or repeat(""), strict=False)

    def partitions(self) -> frozenset[TopicIdPartition]:
        """Return the partitions that the batch reads."""
        return frozenset(offset_range.key for offset_range in self.ranges)
