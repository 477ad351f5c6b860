"""What members and leaders of classic groups embed in JoinGroup and SyncGroup, as bytes.

The proposal of incremental cooperative rebalancing has an assignment of its own. Its subscription
is version 1 of Kafka's, field by field: Kafka took the AssignedTopicPartitions over (KIP-429).

Source: Incremental Cooperative Rebalancing: Support and Policies, Designs I and II.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from spark_groups.group.member.embedded import EmbeddedAssignment, FieldReader, Subscription
from spark_groups.types import TopicPartition
from spark_groups.values import dataclass

NEWEST_PROPOSED_VERSION: Final = 1


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
    parts += [string_field(topic) for topic in subscription.topics]
    parts.append(bytes_field(subscription.user_data))
    if version >= 1:
        parts.append(_partitions(subscription.owned_partitions))
    if version >= 2:
        parts.append(struct.pack(">i", subscription.generation_id))
    if version >= 3:
        parts.append(string_field(subscription.rack_id))
    return b"".join(parts)


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
