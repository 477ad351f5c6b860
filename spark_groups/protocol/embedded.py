"""The metadata that members of the classic protocol embed in JoinGroup and SyncGroup.

The coordinator of a classic group carries these bytes from the members to the leader and back;
only a migration reads them (ConsumerProtocolSubscription and ConsumerProtocolAssignment v0 to v3).

The proposal of incremental cooperative rebalancing has an assignment of its own. Its subscription
is version 1 of Kafka's, field by field: Kafka took the AssignedTopicPartitions over (KIP-429).

Source: Incremental Cooperative Rebalancing: Support and Policies, Designs I and II.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from spark_groups.errors import ProtocolError
from spark_groups.types import TopicPartition
from spark_groups.values import dataclass

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NEWEST_EMBEDDED_VERSION: Final = 3
NEWEST_PROPOSED_VERSION: Final = 1
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member subscribes to, and owned before the rebalance (ConsumerProtocolSubscription).

    Args:
        version: 0 to 3; a greater one is read as 3 (KIP-429 added v1, KIP-792 v2, KIP-881 v3).
        user_data: Bytes of its assignor, if any.
        owned_partitions: From v1 on.
        generation_id: The generation in which it owned them, from v2 on.
        rack_id: From v3 on.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: frozenset[TopicPartition] = frozenset()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    version: int = NEWEST_EMBEDDED_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAssignment:
    """What the leader assigned to a member (ConsumerProtocolAssignment)."""

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes | None = None
    version: int = NEWEST_EMBEDDED_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedAssignment:
    """What the leader of an incremental cooperative group assigned to a member, and takes from it.

    Args:
        assigned: Partitions that the member may read from now on; it keeps all others that it has,
            except for the revoked ones.
        revoked: Partitions that it stops to read and commits, and then joins again at once.
        scheduled_rebalance_timeout_ms: After this time it joins again in any case, from v1 on; 0
            for never.
        version: 0 (Design I) or 1 (Designs II and III); a greater one is read as 1.
    """

    assigned: frozenset[TopicPartition] = frozenset()
    revoked: frozenset[TopicPartition] = frozenset()
    scheduled_rebalance_timeout_ms: int = 0
    version: int = NEWEST_PROPOSED_VERSION

    def applied_to(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return what a member owns once it has followed the assignment."""
        return owned - self.revoked | self.assigned


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the metadata of a JoinGroup protocol."""
    version = subscription.version
    parts = [struct.pack(">hi", version, len(subscription.topics))]
    parts += [string_field(each) for each in subscription.topics]
    parts.append(bytes_field(subscription.user_data))
    if version >= 1:
        parts.append(_partitions(subscription.owned_partitions))
    if version >= 2:
        parts.append(struct.pack(">i", subscription.generation_id))
    if version >= 3:
        parts.append(string_field(subscription.rack_id))
    return b"".join(parts)


def decode_subscription(metadata: bytes) -> Subscription:
    """Return the subscription in the metadata of a JoinGroup protocol.

    Raises:
        ProtocolError: The bytes are no subscription, for example of a protocol type that is not
            "consumer".
    """
    reader = FieldReader(metadata)
    version = reader.version(NEWEST_EMBEDDED_VERSION)
    topics = tuple(reader.text() for _ in range(reader.length()))
    user_data = reader.blob()
    owned = reader.partitions() if version >= 1 else frozenset()
    generation_id = reader.number(">i") if version >= 2 else NO_GENERATION
    rack_id = reader.text_or_none() if version >= 3 else None
    return Subscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned_partitions=owned,
        generation_id=generation_id,
        rack_id=rack_id,
    )


def decode_subscribed_topics(metadata: bytes) -> tuple[str, ...]:
    """Return the topics in the metadata of a JoinGroup protocol of any version.

    Raises:
        ProtocolError: The bytes do not begin like a subscription.
    """
    reader = FieldReader(metadata)
    reader.number(">h")
    topics = tuple(reader.text() for _ in range(reader.length()))
    reader.blob()
    return topics


def encode_assignment(assignment: EmbeddedAssignment) -> bytes:
    """Return the assignment of a SyncGroup member."""
    version = struct.pack(">h", assignment.version)
    return version + _partitions(assignment.partitions) + bytes_field(assignment.user_data)


def decode_assignment(assignment: bytes) -> EmbeddedAssignment:
    """Return the assignment in the bytes of SyncGroup; empty bytes are an empty assignment.

    Raises:
        ProtocolError: The bytes are no assignment.
    """
    if not assignment:
        return EmbeddedAssignment()
    reader = FieldReader(assignment)
    version = reader.version(NEWEST_EMBEDDED_VERSION)
    partitions = reader.partitions()
    return EmbeddedAssignment(version=version, partitions=partitions, user_data=reader.blob())


def encode_proposed_assignment(assignment: ProposedAssignment) -> bytes:
    """Return the assignment of a SyncGroup member of an incremental cooperative group."""
    parts = [struct.pack(">h", assignment.version)]
    parts += [_partitions(assignment.assigned), _partitions(assignment.revoked)]
    if assignment.version >= 1:
        parts.append(struct.pack(">i", assignment.scheduled_rebalance_timeout_ms))
    return b"".join(parts)


def decode_proposed_assignment(assignment: bytes) -> ProposedAssignment:
    """Return the assignment in the bytes of SyncGroup; empty bytes change nothing.

    Raises:
        ProtocolError: The bytes are no assignment.
    """
    if not assignment:
        return ProposedAssignment()
    reader = FieldReader(assignment)
    version = reader.version(NEWEST_PROPOSED_VERSION)
    assigned, revoked = reader.partitions(), reader.partitions()
    return ProposedAssignment(
        version=version,
        assigned=assigned,
        revoked=revoked,
        scheduled_rebalance_timeout_ms=reader.number(">i") if version >= 1 else 0,
    )


def encode_owned(partitions: Iterable[TopicPartition], generation_id: int) -> bytes:
    """Return the user data of the sticky assignor: an assignment and its generation."""
    return _partitions(partitions) + struct.pack(">i", generation_id)


def decode_owned(user_data: bytes) -> tuple[frozenset[TopicPartition], int | None]:
    """Return the assignment and its generation; clients before 2.3 sent none.

    Raises:
        ProtocolError: The bytes are no user data of the sticky assignor.
    """
    reader = FieldReader(user_data)
    partitions = reader.partitions()
    return partitions, reader.number(">i") if reader.has(">i") else None


def string_field(text: str | None) -> bytes:
    """Return a string as it is embedded, with a length of two bytes."""
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def bytes_field(data: bytes | None) -> bytes:
    """Return bytes as they are embedded, with a length of four bytes."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [string_field(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


class FieldReader:
    """Reads fields one after the other; each length is checked against the remaining bytes.

    Its methods raise a ProtocolError where the bytes have no such field.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        """Read an integer of a format of `struct`."""
        size = struct.calcsize(form)
        return int(struct.unpack(form, self.take(size))[0])

    def has(self, form: str) -> bool:
        """Return whether so many bytes are left."""
        return len(self._data) - self._at >= struct.calcsize(form)

    def version(self, newest: int) -> int:
        """Read the version; fields after those of the newest known one are ignored."""
        version = self.number(">h")
        if version < 0:
            raise ProtocolError(f"{version} is no version of the embedded consumer protocol")
        return min(version, newest)

    def length(self) -> int:
        """Read the length of an array."""
        length = self.number(">i")
        if not 0 <= length <= len(self._data) - self._at:
            raise ProtocolError(f"{length} is no length of an array in embedded metadata")
        return length

    def text(self) -> str:
        """Read a string."""
        found = self.text_or_none()
        if found is None:
            raise ProtocolError("embedded metadata has a null name")
        return found

    def text_or_none(self) -> str | None:
        """Read a string that may be null."""
        length = self.number(">h")
        if length == -1:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"embedded metadata has a name that is no text: {error}") from error

    def blob(self) -> bytes | None:
        """Read bytes that may be null."""
        length = self.number(">i")
        return None if length == -1 else self.take(length)

    def partitions(self) -> frozenset[TopicPartition]:
        """Read partitions by topic."""
        found = set()
        for _ in range(self.length()):
            topic = self.text()
            found |= {TopicPartition(topic, self.number(">i")) for _ in range(self.length())}
        return frozenset(found)

    def take(self, size: int) -> bytes:
        """Read so many bytes."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ProtocolError(f"embedded metadata ends early: {size} bytes at {self._at}")
        data, self._at = self._data[self._at : end], end
        return data
