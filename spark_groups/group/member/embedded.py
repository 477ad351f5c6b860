"""The metadata that members of the classic protocol embed in JoinGroup and SyncGroup.

The coordinator of a classic group carries these bytes from the members to the leader and back
(ConsumerProtocolSubscription and ConsumerProtocolAssignment v0 to v3). This package only reads
them, to describe a group: its members use the consumer protocol.
"""

from __future__ import annotations

import struct
from typing import Final

from spark_groups.errors import ProtocolError
from spark_groups.types import TopicPartition
from spark_groups.values import dataclass

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NEWEST_EMBEDDED_VERSION: Final = 3
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
