"""The metadata of Kafka Streams as KIP-848 structures it, for a client-side assignor.

The KIP names the fields, their order, and the reasons and errors; the bytes of a field are those of
the embedded metadata of the classic protocol. Versions are no field: the group protocol has them.

Source: KIP-848, "Streams Member Metadata and Assignment Metadata".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sized
from dataclasses import field
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from group_lab.assignors.embedded import bytes_field, string_field
from spark_groups.errors import ProtocolError
from spark_groups.group.member.embedded import FieldReader
from spark_groups.types import Assignment, TopicId
from spark_groups.values import dataclass

STREAMS_VERSION: Final = 0
"""The only version of the schemas."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class MemberReason(IntEnum):
    """Why a member sends new metadata."""

    NONE = 0
    SHUTDOWN = 1
    WARM_UP_READY = 2
    WARM_UP_FAILED = 3
    TOPOLOGY_CHANGED = 4


class StreamsError(IntEnum):
    """Why the assignor computed no target."""

    NONE = 0
    SHUTDOWN = 1
    ASSIGNMENT_ERROR = 2
    INCONSISTENT_TOPOLOGY = 3


class TaskId(NamedTuple):
    """A task: one partition of a subtopology."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member of Kafka Streams tells the assignor.

    Args:
        process_id: The instance that it belongs to; an instance may have several consumers.
        user_end_point: Where the other instances reach this one; None without such a place.
        client_tags: For assignments that consider racks.
        topology_hash: Which topology it runs; changes only with a reason.
        task_lag: The lag of each task whose state it has and that is not active here, in records;
            changes only with a reason.
    """

    process_id: UUID
    user_end_point: bytes | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    topology_hash: UUID
    task_lag: Mapping[TaskId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentMetadata:
    """What the assignor tells a member of Kafka Streams.

    Args:
        active_tasks: The tasks that the member processes.
        standby_tasks: The tasks whose state it keeps up to date, with their input partitions.
        warmup_tasks: The tasks whose state it restores so that they can move here.
        partitions_by_host: All active partitions of the group, by the end point of their instance,
            for interactive queries.
    """

    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: Mapping[TaskId, Assignment] = field(default_factory=dict)
    warmup_tasks: Mapping[TaskId, Assignment] = field(default_factory=dict)
    partitions_by_host: Mapping[bytes, Assignment] = field(default_factory=dict)


def encode_member(metadata: MemberMetadata) -> bytes:
    """Return the metadata of a member as its heartbeats carry it."""
    parts = [metadata.process_id.bytes, bytes_field(metadata.user_end_point)]
    parts.append(_length(metadata.client_tags))
    for name in sorted(metadata.client_tags):
        parts += [string_field(name), string_field(metadata.client_tags[name])]
    parts += [metadata.topology_hash.bytes, _length(metadata.task_lag)]
    parts += [struct.pack(">iiq", *task, lag) for task, lag in sorted(metadata.task_lag.items())]
    return b"".join(parts)


def decode_member(data: bytes) -> MemberMetadata:
    """Return the metadata of a member.

    Raises:
        ProtocolError: The bytes are no metadata of a member.
    """
    reader = FieldReader(data)
    metadata = MemberMetadata(
        process_id=_uuid(reader),
        user_end_point=reader.blob(),
        client_tags=_map(reader, FieldReader.text, FieldReader.text),
        topology_hash=_uuid(reader),
        task_lag=_map(reader, _task, lambda each: _count(each, ">q")),
    )
    _check_end(reader)
    return metadata


def encode_assignment_metadata(metadata: AssignmentMetadata) -> bytes:
    """Return the assignment metadata of a member as ConsumerGroupInstallAssignment carries it."""
    parts = [_length(metadata.active_tasks)]
    parts += [struct.pack(">ii", *task) for task in metadata.active_tasks]
    for tasks in (metadata.standby_tasks, metadata.warmup_tasks):
        parts.append(_length(tasks))
        for task in sorted(tasks):
            parts += [struct.pack(">ii", *task), _partitions(tasks[task])]
    parts.append(_length(metadata.partitions_by_host))
    for host in sorted(metadata.partitions_by_host):
        parts += [bytes_field(host), _partitions(metadata.partitions_by_host[host])]
    return b"".join(parts)


def decode_assignment_metadata(data: bytes) -> AssignmentMetadata:
    """Return the assignment metadata of a member.

    Raises:
        ProtocolError: The bytes are no assignment metadata.
    """
    reader = FieldReader(data)
    metadata = AssignmentMetadata(
        active_tasks=tuple(_task(reader) for _ in range(reader.length())),
        standby_tasks=_map(reader, _task, _read_partitions),
        warmup_tasks=_map(reader, _task, _read_partitions),
        partitions_by_host=_map(reader, _host, _read_partitions),
    )
    _check_end(reader)
    return metadata


def _length(values: Sized) -> bytes:
    return struct.pack(">i", len(values))


def _partitions(assignment: Assignment) -> bytes:
    by_topic = assignment.by_topic()
    parts = [_length(by_topic)]
    for topic_id, numbers in by_topic.items():
        parts += [topic_id.bytes, struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


def _map(
    reader: FieldReader, key: Callable[[FieldReader], Key], value: Callable[[FieldReader], Value]
) -> dict[Key, Value]:
    found: dict[Key, Value] = {}
    for _ in range(reader.length()):
        name = key(reader)
        if name in found:
            raise ProtocolError(f"metadata of Kafka Streams has {name} twice")
        found[name] = value(reader)
    return found


def _uuid(reader: FieldReader) -> UUID:
    return UUID(bytes=reader.take(16))


def _count(reader: FieldReader, form: str) -> int:
    count = reader.number(form)
    if count < 0:
        raise ProtocolError(f"metadata of Kafka Streams has {count} for a task, partition or lag")
    return count


def _task(reader: FieldReader) -> TaskId:
    return TaskId(_count(reader, ">i"), _count(reader, ">i"))


def _host(reader: FieldReader) -> bytes:
    host = reader.blob()
    if host is None:
        raise ProtocolError("metadata of Kafka Streams has a null host")
    return host


def _read_partitions(reader: FieldReader) -> Assignment:
    by_topic: dict[TopicId, list[int]] = _map(reader, _uuid, _numbers)
    return Assignment.of(by_topic)


def _numbers(reader: FieldReader) -> list[int]:
    return [_count(reader, ">i") for _ in range(reader.length())]


def _check_end(reader: FieldReader) -> None:
    if reader.has(">b"):
        raise ProtocolError("metadata of Kafka Streams continues after its last field")
