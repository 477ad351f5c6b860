"""Fetch requests and responses, and the progress of a range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spark_groups.group.member.grant_command import Identity
from spark_groups.types import OffsetRange, RangeCursor, TopicIdPartition
from spark_groups.wire.schemas.codec import Values

NO_REPLICA: Final = -1
_NO_SESSION_ID, _NO_SESSION_EPOCH = 0, -1
_NOT_KNOWN: Final = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_FIRST_BYTES_PER_OFFSET: Final = 4096
_SPARE_BYTES: Final = 64 * 1024
_SPARE_SHARE: Final = 1.25


class AskedPartition(NamedTuple):
    """A partition of a Fetch request, with the epoch of its leader."""

    key: TopicIdPartition
    leader_epoch: int
    next_offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Settings of a fetch, by Kafka's names where noted.

    Args:
        read_committed: Omit records of uncommitted transactions.
        rack: `client.rack`; empty for the leader.
        min_bytes: `fetch.min.bytes`.
        max_wait_ms: `fetch.max.wait.ms`.
        max_bytes: `fetch.max.bytes`; the first batch of a response may be larger.
        partition_max_bytes: `max.partition.fetch.bytes`.
        request_timeout_s: How long a broker may be silent before the request is sent again.
        poll_timeout_s: The longest time without any record.
        identity: The reader, for errors about missing permissions.
    """

    read_committed: bool
    rack: str
    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    partition_max_bytes: int
    request_timeout_s: float
    poll_timeout_s: float
    identity: Identity | None = None


@dataclass(slots=True)
class FetchCursor(RangeCursor):
    """The progress of a range, and where and how to read it.

    Args:
        key: The partition by topic id.
        replica_id: A preferred replica; NO_REPLICA for the leader.
        bytes_per_offset: The estimated size of its records.
    """

    key: TopicIdPartition
    replica_id: int = NO_REPLICA
    bytes_per_offset: float = _FIRST_BYTES_PER_OFFSET

    @classmethod
    def of(cls, wanted: OffsetRange) -> FetchCursor:
        """Return the cursor at the beginning of a range."""
        return cls(wanted.topic_partition, wanted.from_offset, wanted.until_offset, wanted.key)

    @property
    def reads_from_leader(self) -> bool:
        """Whether no preferred replica is known."""
        return self.replica_id == NO_REPLICA

    def read_from_leader(self) -> None:
        """Read from the leader until it names a preferred replica again."""
        self.replica_id = NO_REPLICA

    def move(self, next_offset: int, size_bytes: int) -> None:
        """Record the arrival of records of a size up to an offset."""
        self.bytes_per_offset = size_bytes / (next_offset - self.next_offset)
        self.next_offset = next_offset

    def wanted_bytes(self, bytes_max: int) -> int:
        """Return the bytes to request: a little more than the rest of the range."""
        left = (self.until_offset - self.next_offset) * self.bytes_per_offset
        return min(bytes_max, int(left * _SPARE_SHARE) + _SPARE_BYTES)

    def asked(self, leader_epoch: int, bytes_max: int) -> AskedPartition:
        """Return what to ask for next."""
        bytes_max = self.wanted_bytes(bytes_max)
        return AskedPartition(self.key, leader_epoch, self.next_offset, bytes_max)


def fetch_to_wire(
    partitions: Iterable[AskedPartition],
    *,
    read_committed: bool,
    max_bytes: int,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    rack: str = "",
) -> Values:
    """Request records; the first partition is answered even if its first batch is too large."""
    topics: dict[Any, list[Values]] = {}
    for partition in partitions:
        topics.setdefault(partition.key.topic_id, []).append(
            {
                "partition": partition.key.partition,
                "current_leader_epoch": partition.leader_epoch,
                "fetch_offset": partition.next_offset,
                "last_fetched_epoch": _NOT_KNOWN,
                "log_start_offset": _NOT_KNOWN,
                "partition_max_bytes": partition.bytes_max,
            }
        )
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": _READ_COMMITTED if read_committed else _READ_UNCOMMITTED,
        "session_id": _NO_SESSION_ID,
        "session_epoch": _NO_SESSION_EPOCH,
        "topics": [
            {"topic_id": topic_id, "partitions": asked} for topic_id, asked in topics.items()
        ],
        "forgotten_topics_data": (),
        "rack_id": rack,
    }


def fetch_from_wire(values: Values) -> dict[TopicIdPartition, Values]:
    """Return the answer for each partition."""
    return {
        TopicIdPartition(topic["topic_id"], each["partition_index"]): each
        for topic in values["responses"]
        for each in topic["partitions"]
    }
