"""One partition of `__consumer_offsets`: its log, the sizes of its batches, its groups in memory.

A group has one copy in memory. The values that a write replaces are kept until it is replicated: a
failed append restores them, and reads use them meanwhile.

Source: the schemas of __consumer_offsets (kafka_protocol.md 1.2) and the record batch format v2
(DefaultRecordBatch, DefaultRecord). Fields that only the KIP has are counted by its schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from group_lab.coordinator import records as r
from group_lab.coordinator.classic.group import ClassicGroup, loaded_group
from group_lab.coordinator.design_0_9.group import DesignGroup, loaded_design
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.records import Key, Record
from spark_groups.types import Assignment, TopicId, TopicIdPartition
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are appended together or not at all.

    Args:
        base_offset: The offset of its first record when it was appended.
        records: Its records, except those removed by compaction.
    """

    base_offset: int
    records: tuple[Record, ...]


@dataclass(slots=True)
class Log:
    """The log of one partition.

    Args:
        batches: In the order of their offsets.
        high_watermark: Records below it are replicated; later ones may get lost.
    """

    batches: list[Batch] = field(default_factory=list)
    end_offset: int = 0
    high_watermark: int = 0

    def append(self, records: tuple[Record, ...]) -> None:
        """Append one atomic batch."""
        self.batches.append(Batch(self.end_offset, records))
        self.end_offset += len(records)

    def replicate(self) -> None:
        """Mark all records as replicated."""
        self.high_watermark = self.end_offset

    def truncate(self) -> None:
        """Remove all records that are not replicated."""
        while self.batches and self.batches[-1].base_offset >= self.high_watermark:
            self.batches.pop()
        self.end_offset = self.high_watermark

    def replay(self) -> Iterator[Record]:
        """Yield all records, the oldest first."""
        for batch in self.batches:
            yield from batch.records

    def compact(self, until_offset: int, *, drops_tombstones: bool = True) -> None:
        """Keep the last value of each key among the replicated records below an offset.

        A removed tombstone takes all older records of its key with it, so a replay gives the same
        result. Offsets do not move.

        Args:
            until_offset: Batches that begin below it are compacted, up to the high watermark.
            drops_tombstones: Also remove tombstones, as after `delete.retention.ms`.
        """
        cut = sum(
            each.base_offset < min(until_offset, self.high_watermark) for each in self.batches
        )
        last: dict[Key, tuple[int, int]] = {}
        for number, batch in enumerate(self.batches[:cut]):
            for index, record in enumerate(batch.records):
                last[record.key] = (number, index)
        kept = []
        for number, batch in enumerate(self.batches[:cut]):
            records = tuple(
                record
                for index, record in enumerate(batch.records)
                if last[record.key] == (number, index)
                and not (drops_tombstones and record.value is None)
            )
            if records:
                kept.append(Batch(batch.base_offset, records))
        self.batches[:cut] = kept


MAX_BATCH_BYTES: Final = 1_048_588
"""The default `max.message.bytes` of the offsets topic."""
_BATCH_OVERHEAD: Final = 61
_API_KEY: Final = 2
_VERSION: Final = 2
_UUID: Final = 16
_NO_TAGS: Final = 1


def batch_bytes(records: Collection[r.Record]) -> int:
    """Return the uncompressed size of a batch; 0 without records."""
    if not records:
        return 0
    sizes = (_record_bytes(record, delta) for delta, record in enumerate(records))
    return _BATCH_OVERHEAD + sum(sizes)


def key_bytes(key: r.Key) -> int:
    """Return the size of a key: its type, and strings in the format before flexible versions."""
    size = _API_KEY
    for name in key.__slots__:
        each = getattr(key, name)
        size += 2 + _utf8_length(each) if isinstance(each, str) else 4
    return size


def value_bytes(value: r.Value) -> int:
    """Return the size of a value, including its version."""
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
    """Return the size of a tagged field, without the count of tags."""
    return 1 + _unsigned_varint(size) + size


def _array(sizes: Iterable[int]) -> int:
    listed = tuple(sizes)
    return _unsigned_varint(len(listed) + 1) + sum(listed)


def _int32s(count: int) -> int:
    return _unsigned_varint(count + 1) + 4 * count


def _assignment(assignment: Assignment) -> int:
    counts = _counts(assignment.partitions)
    return _array(_UUID + _int32s(count) + _NO_TAGS for count in counts.values())


def _with_epochs(partitions: Mapping[TopicIdPartition, int]) -> int:
    """Return the size of partitions with their epochs, a tagged field since 4.3."""
    counts = _counts(partitions)
    return _array(
        _UUID + _int32s(count) + _NO_TAGS + _tagged(_int32s(count)) for count in counts.values()
    )


def _counts(partitions: Iterable[TopicIdPartition]) -> dict[TopicId, int]:
    counts: dict[TopicId, int] = {}
    for partition in partitions:
        counts[partition.topic_id] = counts.get(partition.topic_id, 0) + 1
    return counts


def _offset_commit(value: r.OffsetCommitValue) -> int:
    tagged = _tagged(_UUID) if value.topic_id else 0
    return 8 + 4 + _text(value.metadata) + 8 + tagged


def _classic_group(value: r.ClassicGroupMetadataValue) -> int:
    """Return the size of version 3, the last one before flexible versions."""
    texts = [value.protocol_type, value.protocol, value.leader]
    blobs = []
    for member in value.members:
        texts += [member.member_id, member.group_instance_id, member.client_id, member.client_host]
        blobs += [member.subscription, member.assignment]
    size = 4 + 8 + 4 + (4 + 4) * len(value.members) - _NO_TAGS
    size += sum(2 + _utf8_length(text or "") for text in texts)
    return size + sum(4 + len(blob) for blob in blobs)


def _group(value: r.GroupMetadataValue) -> int:
    return 4 + (_tagged(8) if value.metadata_hash else 0)


def _partition_metadata(value: r.PartitionMetadataValue) -> int:
    return _array(_UUID + _text(name) + 4 + _array(()) + _NO_TAGS for name in value.topics)


def _member(value: r.MemberMetadataValue) -> int:
    texts = (value.instance_id, value.rack_id, value.client_id, value.client_host)
    size = sum(map(_text, texts))
    size += _array(map(_text, value.subscribed_topic_names)) + _text(value.subscribed_topic_regex)
    size += 4 + _text(value.server_assignor)
    if value.client_assignors:
        size += _array(
            _text(client_assignor.name)
            + 2
            + 2
            + 1
            + 2
            + _bytes(client_assignor.metadata)
            + _NO_TAGS
            for client_assignor in value.client_assignors
        )
    if value.classic:
        protocols = value.classic.supported_protocols
        supported = _array(
            _text(protocol.name) + _bytes(protocol.metadata) + _NO_TAGS for protocol in protocols
        )
        size += _tagged(1 + 4 + supported + _NO_TAGS)
    return size


def _target(value: r.TargetMetadataValue) -> int:
    return 4 + (_tagged(8) if value.assignment_timestamp_s else 0) + (1 if value.error else 0)


def _target_member(value: r.TargetMemberValue) -> int:
    # That of a classic member has version -1; without client-side assignors there is none.
    has_metadata = value.metadata_version >= 0 or value.metadata
    metadata = 2 + _bytes(value.metadata) if has_metadata else 0
    return _assignment(value.partitions) + metadata


def _current(value: r.CurrentAssignmentValue) -> int:
    return 4 + 4 + 1 + _with_epochs(value.assigned) + _with_epochs(value.pending_revocation)


def _regular_expression(value: r.RegularExpressionValue) -> int:
    return _array(map(_text, value.topics)) + 8 + 8


def _design_generation(value: r.DesignGenerationValue) -> int:
    """Return the size in the format of the other records; ZooKeeper had JSON."""
    consumers = _array(
        _text(consumer.consumer_id)
        + _text(consumer.client_host)
        + 4
        + _array(map(_text, consumer.topics))
        + _text(consumer.strategy)
        + _array(_text(key.topic) + 4 for key in consumer.partitions)
        for consumer in value.consumers
    )
    return 4 + consumers + _array(_text(topic) + 4 for topic in value.partition_counts)


_VALUES: Final[Mapping[type, Callable[[Any], int]]] = {
    r.OffsetCommitValue: _offset_commit,
    r.ClassicGroupMetadataValue: _classic_group,
    r.GroupMetadataValue: _group,
    r.PartitionMetadataValue: _partition_metadata,
    r.MemberMetadataValue: _member,
    r.TargetMetadataValue: _target,
    r.TargetMemberValue: _target_member,
    r.CurrentAssignmentValue: _current,
    r.RegularExpressionValue: _regular_expression,
    r.DesignGenerationValue: _design_generation,
}


_GROUP_KEYS: Final = (r.GroupMetadataKey, r.ClassicGroupMetadataKey)


@dataclass(slots=True)
class Memory:
    """The groups of one partition.

    Args:
        first_epoch: The epochs of a group without records of them.
        groups: Groups with records, by id, including writes that are not replicated yet.
        bare: Ids of groups without records that still exist: their last offset was deleted, but not
            the group.
        classic: Classic groups as they are now, by id; not undone when an append fails.
        designs: Likewise, those of the 0.9 design.
    """

    first_epoch: int = 0
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    bare: set[str] = field(default_factory=set)
    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    designs: dict[str, DesignGroup] = field(default_factory=dict)
    _bare_replicated: frozenset[str] = frozenset()
    _replaced: list[Record] = field(default_factory=list)

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a group; one without records if it does not exist."""
        return self.groups.get(group_id) or self._new(group_id, is_bare=group_id in self.bare)

    def make(self, group_id: str) -> None:
        """Create a group without records; reads see it after the next write."""
        if group_id not in self.groups:
            self.bare.add(group_id)

    def set_classic(self, group_id: str, classic: ClassicGroup | None) -> None:
        """Set or remove the value of a classic group."""
        if classic is None:
            self.classic.pop(group_id, None)
        else:
            self.classic[group_id] = classic
        if group := self.groups.get(group_id):
            group.classic = classic

    def set_design(self, design: DesignGroup) -> None:
        """Set the value of a group of the 0.9 design."""
        self.designs[design.group_id] = design
        if group := self.groups.get(design.group_id):
            group.design = design

    def load_in_memory(self) -> None:
        """Make the groups of a loaded log that are in memory beside their records."""
        for group_id, group in self.groups.items():
            if group.classic_metadata:
                self.set_classic(group_id, loaded_group(group_id, group.classic_metadata))
            if group.design_generation:
                self.set_design(loaded_design(group_id, group.design_generation))

    def write(self, records: Iterable[Record]) -> None:
        """Apply records that are not replicated yet."""
        for record in records:
            before = self.group(record.key.group_id).value_of(record.key)
            self._replaced.append(Record(record.key, before))
            self.load(record)

    def load(self, record: Record) -> None:
        """Apply a replicated record."""
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new(group_id)
        group.apply(record)
        if group.is_empty_of_records:
            del self.groups[group_id]
            self.bare.add(group_id)
        if isinstance(record.key, _GROUP_KEYS) and record.value is None:
            self.bare.discard(group_id)

    def keep(self) -> None:
        """Mark all writes as replicated."""
        self._bare_replicated = frozenset(self.bare)
        self._replaced.clear()

    def take_back(self) -> None:
        """Undo all writes that are not replicated."""
        for record in reversed(self._replaced):
            self.load(record)
            # Compare the group with the topics again.
            self.group(record.key.group_id).topics_version = -1
        self.bare = set(self._bare_replicated)
        self._replaced.clear()

    def replicated(self, group_id: str) -> ConsumerGroup:
        """Return the replicated state of a group."""
        before = [each for each in reversed(self._replaced) if each.key.group_id == group_id]
        if not before and group_id not in self.bare:
            return self.group(group_id)
        view = self._new(group_id, is_bare=group_id in self._bare_replicated)
        view.classic = None
        for record in (*self.group(group_id).records(), *before):
            view.apply(record)
        if view.classic_metadata:
            loaded = loaded_group(group_id, view.classic_metadata)
            view.classic = self.classic.get(group_id, loaded)
        elif view.exists and not view.is_consumer_group:
            view.classic = self.classic.get(group_id)
        return view

    def all_replicated(self) -> Iterator[ConsumerGroup]:
        """Yield the replicated state of every group that exists."""
        changing = (each.key.group_id for each in self._replaced)
        for group_id in dict.fromkeys((*self.groups, *changing, *sorted(self._bare_replicated))):
            group = self.replicated(group_id)
            if group.exists:
                yield group

    def _new(self, group_id: str, *, is_bare: bool = False) -> ConsumerGroup:
        classic, design = self.classic.get(group_id), self.designs.get(group_id)
        return ConsumerGroup(group_id, self.first_epoch, is_bare, classic=classic, design=design)
