"""How many bytes records take in the log: what decides whether a batch is taken.

Source: the schemas of __consumer_offsets (kafka_protocol.md 1.2) and the record batch format v2
(DefaultRecordBatch, DefaultRecord). Fields that only the KIP has are counted as its schemas say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from spark_groups.lab.coordinator import records as r
from spark_groups.types import Assignment, TopicId, TopicIdPartition

MAX_BATCH_BYTES: Final = 1_048_588
"""`max.message.bytes` of the offsets topic, as a broker has it by default."""
_BATCH_OVERHEAD: Final = 61
_API_KEY: Final = 2
_VERSION: Final = 2
_UUID: Final = 16
_NO_TAGS: Final = 1


def batch_bytes(records: Collection[r.Record]) -> int:
    """Return the size of a batch that holds some records, without compression.

    Args:
        records: The records; none take nothing.
    """
    if not records:
        return 0
    sizes = (_record_bytes(each, delta) for delta, each in enumerate(records))
    return _BATCH_OVERHEAD + sum(sizes)


def key_bytes(key: r.Key) -> int:
    """Return the size of a key: its type, and strings as they were before flexible versions."""
    size = _API_KEY
    for name in key.__slots__:
        each = getattr(key, name)
        size += 2 + _utf8_length(each) if isinstance(each, str) else 4
    return size


def value_bytes(value: r.Value) -> int:
    """Return the size of a value, with its version in front."""
    return _VERSION + _VALUES[type(value)](value) + _NO_TAGS


def _record_bytes(record: r.Record, offset_delta: int) -> int:
    key = key_bytes(record.key)
    size = 1 + 1 + _varint(offset_delta) + _varint(key) + key + 1
    if record.value is None:
        size += _varint(-1)
    else:
        value = value_bytes(record.value)
        size += _varint(value) + value
    return _varint(size) + size


def _unsigned_varint(number: int) -> int:
    return 1 if number < 128 else (number.bit_length() + 6) // 7


def _varint(number: int) -> int:
    return _unsigned_varint(number << 1 if number >= 0 else ~(number << 1))


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _text(text: str | None) -> int:
    if text is None:
        return 1
    length = _utf8_length(text)
    return _unsigned_varint(length + 1) + length


def _bytes(content: bytes | None) -> int:
    return 1 if content is None else _unsigned_varint(len(content) + 1) + len(content)


def _tagged(size: int) -> int:
    """Return what a tagged field of some bytes takes beyond the count of the tags."""
    return 1 + _unsigned_varint(size) + size


def _array(sizes: Iterable[int]) -> int:
    listed = tuple(sizes)
    return _unsigned_varint(len(listed) + 1) + sum(listed)


def _int32s(count: int) -> int:
    return _unsigned_varint(count + 1) + 4 * count


def _assignment(assignment: Assignment) -> int:
    counts = _counts(assignment.partitions)
    return _array(_UUID + _int32s(each) + _NO_TAGS for each in counts.values())


def _with_epochs(partitions: Mapping[TopicIdPartition, int]) -> int:
    """Count the partitions with the epochs that 4.3 keeps beside them, tagged."""
    counts = _counts(partitions)
    return _array(
        _UUID + _int32s(each) + _NO_TAGS + _tagged(_int32s(each)) for each in counts.values()
    )


def _counts(partitions: Iterable[TopicIdPartition]) -> dict[TopicId, int]:
    counts: dict[TopicId, int] = {}
    for each in partitions:
        counts[each.topic_id] = counts.get(each.topic_id, 0) + 1
    return counts


def _offset_commit(value: r.OffsetCommitValue) -> int:
    tagged = _tagged(_UUID) if value.topic_id else 0
    return 8 + 4 + _text(value.metadata) + 8 + tagged


def _group(value: r.GroupMetadataValue) -> int:
    return 4 + (_tagged(8) if value.metadata_hash else 0)


def _partition_metadata(value: r.PartitionMetadataValue) -> int:
    return _array(_UUID + _text(name) + 4 + _array(()) + _NO_TAGS for name in value.topics)


def _member(value: r.MemberMetadataValue) -> int:
    told = (value.instance_id, value.rack_id, value.client_id, value.client_host)
    size = sum(map(_text, told))
    size += _array(map(_text, value.subscribed_topic_names)) + _text(value.subscribed_topic_regex)
    size += 4 + _text(value.server_assignor)
    if value.client_assignors:
        size += _array(
            _text(each.name) + 2 + 2 + 1 + 2 + _bytes(each.metadata) + _NO_TAGS
            for each in value.client_assignors
        )
    return size


def _target(value: r.TargetMetadataValue) -> int:
    return 4 + (_tagged(8) if value.assignment_timestamp_s else 0) + (1 if value.error else 0)


def _target_member(value: r.TargetMemberValue) -> int:
    told = 2 + _bytes(value.metadata) if value.metadata_version >= 0 else 0
    return _assignment(value.partitions) + told


def _current(value: r.CurrentAssignmentValue) -> int:
    return 4 + 4 + 1 + _with_epochs(value.assigned) + _with_epochs(value.pending_revocation)


def _regular_expression(value: r.RegularExpressionValue) -> int:
    return _array(map(_text, value.topics)) + 8 + 8


_VALUES: Final[Mapping[type, Callable[[Any], int]]] = {
    r.OffsetCommitValue: _offset_commit,
    r.GroupMetadataValue: _group,
    r.PartitionMetadataValue: _partition_metadata,
    r.MemberMetadataValue: _member,
    r.TargetMetadataValue: _target,
    r.TargetMemberValue: _target_member,
    r.CurrentAssignmentValue: _current,
    r.RegularExpressionValue: _regular_expression,
}
