"""What the brokers say about a group, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_groups.protocol.messages import (
    DescribeGroupResponse,
    ListOffsetsResponse,
    Node,
    OffsetFetchResponse,
    TopicMetadata,
)
from spark_groups.types import TopicId, TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """What the brokers said about a group, read one after the other.

    Args:
        description: The coordinator's description, without an error.
        coordinator: The broker that coordinates the group, if known.
        committed: Every committed offset of the group.
        log_starts: First offsets of the partitions.
        log_ends: Ends of the partitions; read after the committed offsets, so that no lag is
            negative only because time passed.
        topics: The topics as they exist now.
    """

    description: DescribeGroupResponse
    coordinator: Node | None = None
    committed: OffsetFetchResponse = field(default_factory=OffsetFetchResponse)
    log_starts: ListOffsetsResponse = field(default_factory=ListOffsetsResponse)
    log_ends: ListOffsetsResponse = field(default_factory=ListOffsetsResponse)
    topics: tuple[TopicMetadata, ...] = ()

    def topic_names(self) -> dict[TopicId, str]:
        """Return names by topic id, also of topics that only the coordinator knows."""
        return {
            **self.description.topic_names,
            **{each.topic_id: each.name for each in self.topics},
        }

    def partitions(self) -> frozenset[TopicIdPartition]:
        """Return all that the group has to do with.

        That is: what is assigned, what is to be, what is committed, and every other partition of a
        topic that is subscribed by name or assigned in part.
        """
        found = {*self.committed.offsets, *self.committed.errors}
        subscribed: set[str] = set()
        assigned: set[TopicId] = set()
        for member in self.description.members:
            subscribed.update(member.subscribed_topic_names)
            held = member.assignment | member.target_assignment
            found |= held.partitions
            assigned.update(each.topic_id for each in held.partitions)
        for topic in self.topics:
            if topic.name in subscribed or topic.topic_id in assigned:
                found.update(
                    TopicIdPartition(topic.topic_id, each) for each in range(topic.partition_count)
                )
        return frozenset(found)
