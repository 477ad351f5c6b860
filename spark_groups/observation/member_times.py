"""Adds lag in time to the snapshots of one member, for its metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from spark_groups.errors import SparkGroupsError
from spark_groups.group.member.messages import ListOffsetsRequest, found_and_failed
from spark_groups.group.snapshot import LagTimes, MemberSnapshot, PartitionSnapshot
from spark_groups.observation.catch_up import Outlook, Progress, RecentProgress
from spark_groups.observation.lag_times import (
    UNKNOWN_RETENTION,
    LagTime,
    UnreadReading,
    lag_time,
    unread_lag,
)
from spark_groups.observation.unread_times import READ_TIMEOUT_S, UnreadTimes
from spark_groups.types import EARLIEST_TIMESTAMP, TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.security.security import Security

CLIENT_ID: Final = "spark-groups-metrics"

_Owned = dict[TopicIdPartition, PartitionSnapshot]


class MemberTimes:
    """Reads the first unread records of a member's partitions; for any thread.

    It opens connections of its own, with the first snapshot.

    Args:
        read_committed: Whether the member skips records of aborted transactions.
        timeout_s: For the requests about one snapshot; values without an answer are unknown.
        identity: The member's cluster; None: the first one met.
    """

    def __init__(
        self,
        bootstrap_servers: Iterable[str],
        *,
        security: Security | None = None,
        read_committed: bool = False,
        timeout_s: float = READ_TIMEOUT_S,
        identity: ClusterIdentity | None = None,
    ) -> None:
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=CLIENT_ID,
            security=security,
            request_timeout_s=timeout_s,
            identity=identity,
        )
        self._timeout_s = timeout_s
        self._times = UnreadTimes(read_committed=read_committed)
        self._progress: dict[TopicIdPartition, RecentProgress] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """End the requests under way, and close all connections."""
        self._cluster.shutdown()
        with self._lock:
            self._is_closed = True
            self._cluster.close()

    def measure(self, snapshot: MemberSnapshot) -> MemberSnapshot:
        """Return a snapshot whose partitions have their lag in time, as far as it is known."""
        owned: _Owned = {
            TopicIdPartition(each.topic_id, each.partition): each for each in snapshot.partitions
        }
        with self._lock:
            if self._is_closed or not owned:
                return snapshot
            starts, reading = self._read(owned)
            partitions = tuple(
                replace(each, times=self._times_of(key, each, starts.get(key), reading))
                for key, each in owned.items()
            )
            for key in [each for each in self._progress if each not in owned]:
                del self._progress[key]
        return replace(snapshot, partitions=partitions)

    def _read(self, owned: _Owned) -> tuple[Mapping[TopicIdPartition, int], UnreadReading | None]:
        """Return log starts and first unread records; nothing if the brokers do not answer.

        Records are searched even without lag: the snapshot's log ends are as old as the batch.
        """
        until_s = time.monotonic() + self._timeout_s
        asked = frozenset(key for key, each in owned.items() if each.committed_offset is not None)
        request = ListOffsetsRequest(partitions=asked, timestamp_ms=EARLIEST_TIMESTAMP)
        try:
            listed = self._cluster.list_offsets(request).answers if asked else {}
        except SparkGroupsError:
            return {}, None
        # Without its log start, the lag in time of a partition is unknown.
        starts = {key: each.offset for key, each in found_and_failed(listed)[0].items()}
        offsets = {
            key: max(committed, start)
            for key, start in starts.items()
            if (committed := owned[key].committed_offset) is not None
        }
        names = {key.topic_id: name for key in offsets if (name := owned[key].topic)}
        left_s = max(0.0, until_s - time.monotonic())
        return starts, self._times.read(self._cluster, offsets, names, left_s)

    def _times_of(
        self,
        key: TopicIdPartition,
        partition: PartitionSnapshot,
        log_start_offset: int | None,
        reading: UnreadReading | None,
    ) -> LagTimes:
        committed, end = partition.committed_offset, partition.log_end_offset
        times = None
        if reading is not None and key in reading.first.found:
            times = lag_time(
                reading.first.found[key],
                reading.now_ms,
                reading.retention.get(key.topic_id, UNKNOWN_RETENTION),
                committed_offset=committed,
                log_start_offset=log_start_offset,
            )
        progress = self._progress.setdefault(key, RecentProgress())
        progress.add(
            Progress(
                time.monotonic(), unread_lag(partition.lag, times or LagTime()), committed, end
            )
        )
        found = progress.catch_up()
        never_s = float("inf") if found.outlook is Outlook.NEVER else None
        catch_up_s = never_s if found.catch_up_s is None else found.catch_up_s
        if times is None:
            return LagTimes(catch_up_s)
        return LagTimes(catch_up_s, times.seconds_behind, times.deletion_in_s, times.lost_offsets)
