"""Records that are written again: recirculated, dead-lettered, or replayed.

The header names are a public interface. All values are UTF-8 text; numbers are decimal. They follow
the record's own headers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from spark_groups.spark.processing.kafka_record import Headers, Record

PREFIX: Final = "spark-groups."
ORIGINAL_TOPIC: Final = f"{PREFIX}original.topic"
ORIGINAL_PARTITION: Final = f"{PREFIX}original.partition"
ORIGINAL_OFFSET: Final = f"{PREFIX}original.offset"
ORIGINAL_TIMESTAMP: Final = f"{PREFIX}original.timestamp"
GROUP: Final = f"{PREFIX}group"
RETRIES: Final = f"{PREFIX}retries"
EXPIRES: Final = f"{PREFIX}expires"
ERROR: Final = f"{PREFIX}error"
ERROR_BYTES_MAX: Final = 1_024
DIGITS_MAX: Final = 18
"""Fits any of Kafka's integers; producers may forge these headers."""

_MINE: Final = frozenset(
    {
        *(ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, ORIGINAL_TIMESTAMP),
        *(GROUP, RETRIES, EXPIRES, ERROR),
    }
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A record to write.

    Args:
        partition: None means that the key decides, as in Kafka's own producer.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """The destinations for failed records of one topic.

    Args:
        first: The topic itself; of a retry topic of the group, the original topic.
        retry: The topic for another attempt; None if records are not recirculated.
        dead_letter: The dead-letter topic; None if failed records are skipped.
    """

    first: str
    retry: str | None
    dead_letter: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """The original position of a record, and its history since.

    Args:
        timestamp_ms: The original record timestamp, in milliseconds since 1970.
        group_id: The group that wrote the record again; empty if none did.
        retries: None if the header cannot be read.
        expires_ms: Milliseconds since 1970; None if it never expires, or the header is absent.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group_id: str = ""
    retries: int | None = 0
    expires_ms: int | None = None


def own_origin(record: Record, first: str) -> Origin:
    """Return the origin of a record that was read to be processed.

    Any producer can write the headers. They are believed where this package writes them: in a retry
    topic, and in the topic itself for the same partition, each with the name of the original topic.

    Args:
        record: The record.
        first: The original topic of the topic that was read.
    """
    origin = origin_of(record)
    is_same_place = record.topic != first or origin.partition == record.partition
    if origin.topic == first and is_same_place:
        return origin
    return _own_position(record, origin.retries, origin.expires_ms)


def _own_position(record: Record, retries: int | None, expires_ms: int | None) -> Origin:
    """Return the record's own position as its origin."""
    place = (record.topic, record.partition, record.offset, record.timestamp_ms)
    return Origin(*place, retries=retries, expires_ms=expires_ms)


def origin_of(record: Record) -> Origin:
    """Return the origin in a record's headers, else the record's own position."""
    found = {name: value or b"" for name, value in record.headers if name in _MINE}
    # An unreadable count must not recirculate a record forever.
    retries = _number(found[RETRIES]) if RETRIES in found else 0
    expires_ms = _number(found.get(EXPIRES, b""))
    place = [_number(found.get(name, b"")) for name in (ORIGINAL_PARTITION, ORIGINAL_OFFSET)]
    topic = found.get(ORIGINAL_TOPIC, b"").decode("utf-8", "replace")
    if not topic or None in place:
        return _own_position(record, retries, expires_ms)
    return Origin(
        topic,
        place[0] or 0,
        place[1] or 0,
        _number(found.get(ORIGINAL_TIMESTAMP, b"")) or record.timestamp_ms,
        found.get(GROUP, b"").decode("utf-8", "replace"),
        retries,
        expires_ms,
    )


def expiry_ms(origin: Origin, expire_after_s: float | None) -> int | None:
    """Return the expiry of a record; its header takes precedence over the strategy.

    Args:
        expire_after_s: Seconds after the original timestamp; None means never.
    """
    if origin.expires_ms is not None or expire_after_s is None:
        return origin.expires_ms
    return origin.timestamp_ms + round(expire_after_s * 1000)


def recirculated(record: Record, history: Origin, error: str, topic: str) -> Letter:
    """Return the record to write to the retry topic."""
    history = replace(history, retries=(history.retries or 0) + 1)
    partition = record.partition if topic == record.topic else None
    return Letter(topic, record.key, record.value, _headers(record, history, error), partition)


def dead_letter(record: Record, history: Origin, error: str, topic: str) -> Letter:
    """Return the record to write to the dead-letter topic."""
    return Letter(topic, record.key, record.value, _headers(record, history, error))


def replayed(record: Record, topic: str | None = None) -> Letter | None:
    """Return a dead letter as a record to retry; None if no header names its origin.

    Args:
        topic: None means the original topic and partition; in another topic the record keeps the
            headers that name its origin.
    """
    origin = origin_of(record)
    if not origin.group_id:
        return None
    own = _own(record)
    if topic is None:
        return Letter(origin.topic, record.key, record.value, own, origin.partition)
    return Letter(topic, record.key, record.value, (*own, *_place(origin)))


def error_text(failure: Exception) -> str:
    """Return an error as valid, bounded UTF-8; its text may come from records."""
    try:
        text = f"{type(failure).__name__}: {failure}"
    except Exception:
        text = type(failure).__name__
    encoded = text[:ERROR_BYTES_MAX].encode("utf-8", "backslashreplace")[:ERROR_BYTES_MAX]
    return encoded.decode("utf-8", "ignore")


def _headers(record: Record, history: Origin, error: str) -> Headers:
    added = [(ERROR, error.encode()[:ERROR_BYTES_MAX])]
    if history.retries is not None:
        added.append((RETRIES, b"%d" % history.retries))
    if history.expires_ms is not None:
        added.append((EXPIRES, b"%d" % history.expires_ms))
    return (*_own(record), *_place(history), *added)


def _own(record: Record) -> Headers:
    """Return the record's headers without those of this package."""
    return tuple(header for header in record.headers if header[0] not in _MINE)


def _place(origin: Origin) -> Headers:
    return (
        (ORIGINAL_TOPIC, origin.topic.encode()),
        (ORIGINAL_PARTITION, b"%d" % origin.partition),
        (ORIGINAL_OFFSET, b"%d" % origin.offset),
        (ORIGINAL_TIMESTAMP, b"%d" % origin.timestamp_ms),
        (GROUP, origin.group_id.encode()),
    )


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= DIGITS_MAX else None
