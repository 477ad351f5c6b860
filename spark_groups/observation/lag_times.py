"""Lag in time: how old the first unread record is, and when retention may delete it.

A partition is as many seconds behind as its first unread record is old: the first record at or
after the committed offset. Nothing is interpolated. If there is no such record, it is 0 s behind,
however long the topic has been idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.observation.plain_values import duration_text
from spark_groups.types import TopicId
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.fetch.first_unread import NO_TIMESTAMP_MS, FirstRecord

FUTURE_MS_MAX: Final = 1000
"""How far ahead of this machine's clock a timestamp may be: it then counts as the present."""
ALERT_HOURS: Final = 24.0
ALERT_SHARE: Final = 0.5
"""An alert for less than `ALERT_HOURS`, but never for more than this share of `retention.ms`."""
CLEANUP_POLICY: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
RETENTION_KEYS: Final = (CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES)
_NO_LIMIT: Final = -1


class Deletion(Enum):
    """The reason for which brokers delete records of a topic."""

    BY_AGE = "by age"
    BY_SIZE = "by size"
    BY_AGE_OR_SIZE = "by age or size"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The retention of a topic.

    Args:
        retention_ms: None: unknown, or records are not deleted by age.
        reason: Why it is unknown; empty if it is known.
    """

    deletion: Deletion = Deletion.UNKNOWN
    retention_ms: int | None = None
    reason: str = ""


UNKNOWN_RETENTION: Final = Retention()


def retention_of(settings: Mapping[str, str | None]) -> Retention:
    """Return the retention that a topic's settings describe.

    Args:
        settings: Values of `RETENTION_KEYS`.

    Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments.
    """
    policy = settings.get(CLEANUP_POLICY)
    age_ms, size_bytes = (_number(settings.get(each)) for each in (RETENTION_MS, RETENTION_BYTES))
    if policy is None or age_ms is None or size_bytes is None:
        missing = [
            retention_key for retention_key in RETENTION_KEYS if settings.get(retention_key) is None
        ]
        return Retention(reason=f"the topic's settings lack {', '.join(missing) or 'numbers'}")
    if "delete" not in [each.strip() for each in policy.split(",")]:
        return Retention(deletion=Deletion.NEVER)
    by_age, by_size = age_ms > _NO_LIMIT, size_bytes > _NO_LIMIT
    if by_age:
        deletion = Deletion.BY_AGE_OR_SIZE if by_size else Deletion.BY_AGE
        return Retention(deletion=deletion, retention_ms=age_ms)
    return Retention(deletion=Deletion.BY_SIZE if by_size else Deletion.NEVER)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadReading:
    """The first unread records of a group's partitions, as read from their leaders.

    Args:
        now_ms: When they were read, in milliseconds since 1970, by this machine's clock.
        first: The records, and reasons for unknown ones.
        retention: By topic id.
    """

    now_ms: int
    first: FirstRecords = field(default_factory=FirstRecords)
    retention: Mapping[TopicId, Retention] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTime:
    """The lag of a partition in time; None: unknown.

    Args:
        seconds_behind: The age of the first unread record; 0.0 if no record is unread.
        first_unread_offset: Its offset; None also if no record is unread.
        first_unread_ms: Its timestamp, in milliseconds since 1970.
        deletion: Why brokers delete records of the topic.
        retention_ms: None: unknown, or records are not deleted by age.
        deletion_in_s: When retention may delete the first unread record by its age, at the
            earliest; 0.0: at any time. None also if no record is unread, or no offset is committed.
        lost_offsets: Unread offsets that are deleted already.
        remark: Why something is unknown, or that lag is not unread records; else empty.
    """

    seconds_behind: float | None = None
    first_unread_offset: int | None = None
    first_unread_ms: int | None = None
    deletion: Deletion = Deletion.UNKNOWN
    retention_ms: int | None = None
    deletion_in_s: float | None = None
    lost_offsets: int = 0
    remark: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether the first unread record was not read."""
        return self.seconds_behind is None and self.first_unread_offset is None

    @property
    def has_no_unread_record(self) -> bool:
        """Whether the log has no record at or after the committed offset."""
        return self.seconds_behind == 0.0 and self.first_unread_offset is None


NO_UNREAD_RECORD: Final = (
    "no unread record: its lag counts transaction markers, or aborted or compacted records"
)
"""The remark of a partition with lag but without an unread record."""


def unread_lag(lag: int | None, time: LagTime) -> int | None:
    """Return the lag if it may hold a record, and 0 if it is known to hold none.

    Kafka counts offsets: the marker that ends a transaction has one, and so has a record that was
    compacted or aborted. A group cannot read them, and so never gets past the last.

    Args:
        lag: In offsets; None: unknown.
        time: Says whether a record is unread.
    """
    return 0 if lag and time.has_no_unread_record else lag


def lag_time(
    unread: FirstRecord | None,
    now_ms: int,
    retention: Retention = UNKNOWN_RETENTION,
    *,
    committed_offset: int | None = None,
    log_start_offset: int | None = None,
    reason: str = "",
) -> LagTime:
    """Return the lag of a partition in time.

    Args:
        unread: The first record at or after the committed offset, else the log start; None: there
            is no such record, or it is unknown.
        now_ms: The current time, in milliseconds since 1970.
        committed_offset: None: no offset is committed, and so no deletion is a loss.
        log_start_offset: None: unknown.
        reason: Why `unread` is unknown; empty if it is known.
    """
    is_known = committed_offset is not None and log_start_offset is not None
    lost = max(0, (log_start_offset or 0) - (committed_offset or 0)) if is_known else 0
    if unread is None:
        return LagTime(
            seconds_behind=None if reason else 0.0,
            deletion=retention.deletion,
            retention_ms=retention.retention_ms,
            lost_offsets=lost,
            remark=reason and f"its age is unknown: {reason}",
        )
    behind_s, remark = _age(unread, now_ms)
    left_s = None
    has_time = unread.timestamp_ms != NO_TIMESTAMP_MS
    if committed_offset is not None and has_time and retention.retention_ms is not None:
        left_s = max(0, unread.timestamp_ms + retention.retention_ms - now_ms) / 1000
    if not remark and retention.reason:
        remark = f"its retention is unknown: {retention.reason}"
    return LagTime(
        seconds_behind=behind_s,
        first_unread_offset=unread.offset,
        first_unread_ms=unread.timestamp_ms if has_time else None,
        deletion=retention.deletion,
        retention_ms=retention.retention_ms,
        deletion_in_s=left_s,
        lost_offsets=lost,
        remark=remark,
    )


def _age(unread: FirstRecord, now_ms: int) -> tuple[float | None, str]:
    """Return the age of a record in seconds, and why it is unknown."""
    age_ms = now_ms - unread.timestamp_ms
    if unread.timestamp_ms == NO_TIMESTAMP_MS:
        return None, f"its age is unknown: the record at {unread.offset:,} has no timestamp"
    if age_ms < -FUTURE_MS_MAX:
        ahead = duration_text(-age_ms / 1000)
        return None, (
            f"its age is unknown: the timestamp of the record at {unread.offset:,} is {ahead} ahead"
        )
    return max(0, age_ms) / 1000, ""


def largest_behind_s(times: Iterable[LagTime]) -> float | None:
    """Return how far the partition that is most behind is; None if none is known."""
    listed = list(times)
    known = [each.seconds_behind for each in listed if each.seconds_behind is not None]
    return max(known) if known else None if listed else 0.0


def soonest_deletion_s(times: Iterable[LagTime]) -> float | None:
    """Return when retention may first delete an unread record; None if none is known."""
    return min((e.deletion_in_s for e in times if e.deletion_in_s is not None), default=None)


class AlertKind(Enum):
    """Why unread records need attention."""

    LOST = "unread records were deleted"
    EXPIRING = "unread records may be deleted soon"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionAlert:
    """A partition whose unread records are, or may soon be, deleted.

    Args:
        text: The partition and what to do, without a full stop.
    """

    topic: str
    partition: int
    kind: AlertKind
    text: str


def deletion_text(time: LagTime) -> str:
    """Return when unread records may expire, as a few words; nothing if there is no answer."""
    if time.deletion_in_s is not None:
        age = f"in {duration_text(time.deletion_in_s)}" if time.deletion_in_s else "at any time"
        return f"{age}, or by size" if time.deletion is Deletion.BY_AGE_OR_SIZE else age
    if time.first_unread_offset is None or time.deletion is Deletion.UNKNOWN:
        return ""
    return time.deletion.value if time.deletion in _WITHOUT_AGE else ""


_WITHOUT_AGE: Final = (Deletion.NEVER, Deletion.BY_SIZE)


def deletion_alert(
    topic: str, partition: int, time: LagTime, alert_hours: float = ALERT_HOURS
) -> DeletionAlert | None:
    """Return the alert of a partition; None: its unread records are safe, or that is unknown.

    Args:
        alert_hours: An alert begins when unread records may be deleted within this time, or within
            half of `retention.ms` if that is less.
    """
    where = f"{topic}-{partition}"
    if time.lost_offsets:
        text = (
            f"{where}: offsets deleted before the group read them: {time.lost_offsets:,}; raise"
            f" retention.ms of {topic}, and read the lost records from elsewhere"
        )
        return DeletionAlert(topic=topic, partition=partition, kind=AlertKind.LOST, text=text)
    left_s, retention_ms = time.deletion_in_s, time.retention_ms
    if left_s is None or retention_ms is None:
        return None
    if left_s > min(alert_hours * 3600, retention_ms / 1000 * ALERT_SHARE):
        return None
    when = f"in {duration_text(left_s)}" if left_s else "at any time"
    text = (
        f"{where}: unread records may be deleted {when} (retention.ms is"
        f" {duration_text(retention_ms / 1000)}): raise retention.ms of {topic} until the group has"
        " caught up"
    )
    return DeletionAlert(topic=topic, partition=partition, kind=AlertKind.EXPIRING, text=text)
