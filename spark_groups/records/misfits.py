"""Timestamps that Spark's cannot express: a producer that sends nanoseconds, for example.

Kafka's timestamps are milliseconds, Spark's are microseconds: the year 294247 is the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark_groups.errors import RecordsError
from spark_groups.types import TopicPartition

MAX_MS: Final = (2**63 - 1) // 1000
"""The greatest timestamp in milliseconds that fits microseconds."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TimestampMisfits:
    """Records of a partition whose timestamps do not fit microseconds.

    Args:
        first_offset: The offset of the first one.
        first_ms: Its timestamp, which should be milliseconds since 1970.
        count: Their number.
    """

    topic_partition: TopicPartition
    first_offset: int
    first_ms: int
    count: int = 1

    def error(self) -> RecordsError:
        """Return the error for the first one."""
        return RecordsError(
            f"the record of {self.topic_partition} at offset {self.first_offset} has the timestamp"
            f" {self.first_ms} ms, which does not fit microseconds (does its producer send"
            " nanoseconds?): set onUnreadableTimestamp to null to read it without its timestamp"
        )


class MisfitCounts:
    """Timestamps that became null, by partition, until they are logged."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, TimestampMisfits] = {}

    def add(self, found: TimestampMisfits) -> None:
        """Add records that are later ones of their partition, if it has any here."""
        known = self._found.get(found.topic_partition)
        counted = found if known is None else replace(known, count=known.count + found.count)
        self._found[found.topic_partition] = counted

    def take(self) -> list[TimestampMisfits]:
        """Return the added records, and forget them."""
        found, self._found = list(self._found.values()), {}
        return found


def warn_of_misfits(found: Iterable[TimestampMisfits]) -> None:
    """Log how many timestamps became null, because `onUnreadableTimestamp` is null."""
    for each in found:
        _log.warning(
            "the column timestamp is null for %d records of %s, because onUnreadableTimestamp is"
            " null; the first is that at offset %d: %d ms does not fit microseconds",
            each.count,
            each.topic_partition,
            each.first_offset,
            each.first_ms,
        )
