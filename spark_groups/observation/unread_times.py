"""Reads the first unread record of each partition, and the retention of their topics.

A record is read again only after the committed offset has passed it, and after a minute, because
compaction may have removed it. A retention, or its refusal, is read again after a minute. A failure
leaves values unknown; it never fails a command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from spark_groups.errors import SparkGroupsError
from spark_groups.observation.lag_times import (
    RETENTION_KEYS,
    Retention,
    UnreadReading,
    retention_of,
)
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.fetch.first_unread import FirstRecord

KEPT_S: Final = 60.0
"""After this time a record and a retention, known or refused, are read again."""
READ_TIMEOUT_S: Final = 3.0
"""The longest time for one reading; partitions without an answer by then are unknown."""


class _KnownRecord(NamedTuple):
    """No record lies between `from_offset` and this one."""

    from_offset: int
    record: FirstRecord
    read_at_s: float


class _KnownRetention(NamedTuple):
    retention: Retention
    read_at_s: float


class UnreadTimes:
    """Keeps records and retention between readings; for one thread.

    Args:
        read_committed: Whether the group skips records of aborted transactions.
        now_ms: The clock, in milliseconds since 1970.
        steady_s: A clock of seconds that is never set back.
    """

    def __init__(
        self,
        *,
        read_committed: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_committed = read_committed
        self._now_ms = now_ms
        self._steady_s = steady_s
        self._records: dict[TopicIdPartition, _KnownRecord] = {}
        self._retention: dict[TopicId, _KnownRetention] = {}

    def read(
        self,
        cluster: Cluster,
        offsets: Mapping[TopicIdPartition, int],
        topic_names: Mapping[TopicId, str],
        timeout_s: float = READ_TIMEOUT_S,
    ) -> UnreadReading:
        """Read the first record at or after an offset of each partition.

        Args:
            offsets: By partition with lag: the committed offset, else the log start.
            topic_names: Names of their topics.
            timeout_s: For all requests.
        """
        until_s = self._steady_s() + min(timeout_s, READ_TIMEOUT_S)
        first = self._read_records(cluster, offsets, until_s)
        retention = self._read_retention(
            cluster,
            {
                topic_id: topic_names[topic_id]
                for topic_id in {each.topic_id for each in offsets}
                if topic_id in topic_names
            },
            until_s,
        )
        return UnreadReading(now_ms=self._now_ms(), first=first, retention=retention)

    def _read_records(
        self, cluster: Cluster, offsets: Mapping[TopicIdPartition, int], until_s: float
    ) -> FirstRecords:
        at_s = self._steady_s()
        self._records = {
            key: known
            for key, known in self._records.items()
            if key in offsets
            and known.from_offset <= offsets[key] <= known.record.offset
            and at_s - known.read_at_s < KEPT_S
        }
        wanted = {key: offset for key, offset in offsets.items() if key not in self._records}
        read = FirstRecords()
        if wanted:
            try:
                read = cluster.first_records(
                    wanted, read_committed=self._read_committed, timeout_s=until_s - at_s
                )
            except SparkGroupsError as error:
                read = FirstRecords(unknown=dict.fromkeys(wanted, str(error)))
        found = {key: known.record for key, known in self._records.items()} | dict(read.found)
        self._records |= {
            key: _KnownRecord(wanted[key], record, at_s)
            for key, record in read.found.items()
            if record is not None
        }
        return FirstRecords(found, read.unknown)

    def _read_retention(
        self, cluster: Cluster, topic_names: Mapping[TopicId, str], until_s: float
    ) -> Mapping[TopicId, Retention]:
        at_s = self._steady_s()
        self._retention = {
            topic_id: known
            for topic_id, known in self._retention.items()
            if at_s - known.read_at_s < KEPT_S
        }
        found = {
            key: self._retention[key].retention
            for key in topic_names.keys() & self._retention.keys()
        }
        wanted = {key: name for key, name in topic_names.items() if key not in found}
        if not wanted:
            return found
        try:
            read = _read_settings(cluster, wanted, until_s - at_s)
        except SparkGroupsError as error:
            return found | dict.fromkeys(wanted, Retention(reason=str(error)))
        self._retention |= {key: _KnownRetention(each, at_s) for key, each in read.items()}
        return found | read


def _read_settings(
    cluster: Cluster, topic_names: Mapping[TopicId, str], timeout_s: float
) -> dict[TopicId, Retention]:
    settings, refused = cluster.topic_configurations(
        topic_names.values(), RETENTION_KEYS, timeout_s=max(0.0, timeout_s)
    )
    return {
        topic_id: retention_of({key: setting.value for key, setting in settings[name].items()})
        if name in settings
        else Retention(reason=f"{refused.get(name, 'no answer')} (needs DESCRIBE_CONFIGS)")
        for topic_id, name in topic_names.items()
    }
