"""Where a partition without a committed offset starts.

Spark's `startingOffsets`, or a timestamp, applies when the *group* first reads a topic. The first
position is committed at once, with the topic's partition count as metadata: resolving "latest"
again later would skip records. A partition beyond that count was added later and starts at its
beginning.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from spark_groups.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition


class StartingPoint(Enum):
    """The names in `startingOffsets`; the value is ListOffsets' timestamp."""

    EARLIEST = EARLIEST_TIMESTAMP
    LATEST = LATEST_TIMESTAMP


class Option(Enum):
    """What `startingOffsets` or a timestamp says of a partition."""

    EARLIEST = "`earliest` applies"
    LATEST = "`latest` applies"
    NAMED_LATEST = "`latest` applies by name, beside `earliest`"
    NAMED = "`startingOffsets` names an offset of the partition, or its beginning"
    TIMESTAMP = "a timestamp applies"
    BESIDE_TIMESTAMPS = "timestamps apply to other partitions"
    OF_EARLIER_TOPIC = "the topic was created again: what applied to the earlier one does not"


class WithoutRecord(Enum):
    """Spark's `startingOffsetsByTimestampStrategy`: no record has the timestamp or a later one."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Spark's `startingTimestamp` or `startingOffsetsByTimestamp`, or those for the end of a batch.

    A timestamp means the first record with this timestamp or a later one.

    Args:
        option: The option's name, for messages.
        default_ms: For partitions that are not named; None: none.
        by_partition_ms: Timestamps by partition.
        without_record: Where a partition starts that has no such record.
    """

    option: str
    default_ms: int | None = None
    by_partition_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    without_record: WithoutRecord = WithoutRecord.ERROR

    def of(self, partition: TopicPartition) -> int | None:
        """Return the timestamp of a partition in ms, if any."""
        return self.by_partition_ms.get(partition, self.default_ms)


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Spark's `startingOffsets`, or what takes its place.

    Args:
        default: For partitions that are not named.
        by_partition: -2 earliest, -1 latest, or the first offset to read, by partition.
        timestamps: Take precedence in their partitions.
    """

    default: StartingPoint = StartingPoint.LATEST
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps: Timestamps | None = None

    @classmethod
    def at(cls, timestamps: Timestamps) -> StartingOffsets:
        """Return what starts at timestamps, and in other partitions at the beginning."""
        return cls(StartingPoint.EARLIEST, timestamps=timestamps)

    @property
    def may_skip(self) -> bool:
        """Whether a partition may start after its beginning at an offset that time determines."""
        return (
            self.default is StartingPoint.LATEST
            or LATEST_TIMESTAMP in self.by_partition.values()
            or self.timestamps is not None
        )

    @property
    def else_latest(self) -> bool:
        """Whether a partition without a record for its timestamp starts at its end."""
        return (
            self.timestamps is not None and self.timestamps.without_record is WithoutRecord.LATEST
        )

    def timestamp_ms(self, partition: TopicPartition, *, known_count: int | None) -> int | None:
        """Return the timestamp at which a partition starts; None: `of` tells where.

        Args:
            partition: A partition without a committed offset.
            known_count: As for `of`; a partition that was added later starts at its beginning.
        """
        if self.timestamps is None or _is_new(partition, known_count):
            return None
        return self.timestamps.of(partition)

    def of(self, partition: TopicPartition, *, known_count: int | None) -> int:
        """Return the first offset to read, or one of ListOffsets' timestamps (negative).

        Args:
            partition: A partition without a committed offset.
            known_count: Partitions of the topic when the group began to read it; None: it has not.
        """
        wanted = self.by_partition.get(partition, self.default.value)
        # "latest" would skip records written before the new partition was noticed.
        skips_new = _is_new(partition, known_count) and wanted == LATEST_TIMESTAMP
        return EARLIEST_TIMESTAMP if skips_new else wanted

    def option(self, partition: TopicPartition) -> Option:
        """Return what applies to a partition without a committed offset."""
        named = self.by_partition.get(partition)
        if named not in (None, LATEST_TIMESTAMP):
            return Option.NAMED
        if self.timestamps is not None:
            has_timestamp = self.timestamps.of(partition) is not None
            return Option.TIMESTAMP if has_timestamp else Option.BESIDE_TIMESTAMPS
        if self.default is StartingPoint.LATEST:
            return Option.LATEST
        return Option.EARLIEST if named is None else Option.NAMED_LATEST

    def skips(self, partition: TopicPartition) -> bool:
        """Return whether a partition may start at its end, or at a timestamp."""
        is_latest = self.by_partition.get(partition, self.default.value) == LATEST_TIMESTAMP
        return is_latest or self.timestamp_ms(partition, known_count=None) is not None


def _is_new(partition: TopicPartition, known_count: int | None) -> bool:
    """Return whether a partition was added after the group began to read its topic."""
    return known_count is not None and partition.partition >= known_count


def no_record(what: str, timestamp_ms: int) -> str:
    """Return the message for a starting timestamp that is later than every record.

    Args:
        what: The option and its partition, as the beginning of the message.
    """
    return (
        f"{what} {timestamp_ms}, but no record there has this timestamp or a later one: name an"
        " earlier time, or set startingOffsetsByTimestampStrategy to latest to start at the end"
    )


def reset_command(group_id: str, command_options: str, *words: str) -> str:
    """Return a command that resets offsets of a group.

    Args:
        command_options: The options that reach the brokers.
        words: Which offsets, and where to.
    """
    command = shlex.join(("spark-groups", "reset-offsets", group_id, *words, "--execute"))
    return f"{command} {command_options}".rstrip()
