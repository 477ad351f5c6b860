"""What the brokers say about a group, before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.protocol.messages import (
    DescribedMember,
    DescribeGroupResponse,
    ListOffsetsResponse,
    Node,
    OffsetFetchResponse,
    TopicMetadata,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition
from spark_groups.wire.group_admin import ClassicGroup


class GroupType(Enum):
    """The protocol that a group is of, in the coordinator's word."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """What the brokers said about a group, read one after the other.

    Args:
        description: The coordinator's description, without an error. A classic group has no epochs,
            and its members are meant to have what they have.
        group_type: The protocol it is of.
        coordinator: The broker that coordinates the group, if known.
        committed: Every committed offset of the group.
        log_starts: First offsets of the partitions.
        log_ends: Ends of the partitions; read after the committed offsets, so that no lag is
            negative only because time passed.
        topics: The topics as they exist now.
    """

    description: DescribeGroupResponse
    group_type: GroupType = GroupType.CONSUMER
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


CLASSIC_MEMBER_TYPE: Final = 0
"""What ConsumerGroupDescribe calls a member that speaks the classic protocol."""


def described_as_consumer_group(
    group_id: str, group: ClassicGroup, topics: Iterable[TopicMetadata]
) -> DescribeGroupResponse:
    """Return a classic group in the words of the consumer protocol; epochs mean nothing there.

    Args:
        group_id: The group.
        group: What its coordinator says.
        topics: The topics that its members have to do with; what others have is left out.
    """
    ids = {each.name: each.topic_id for each in topics}
    members = []
    for each in group.members:
        assignment = Assignment(
            frozenset(
                TopicIdPartition(ids[has.topic], has.partition)
                for has in each.assignment
                if has.topic in ids
            )
        )
        members.append(
            DescribedMember(
                member_id=each.member_id,
                member_epoch=0,
                instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_type=CLASSIC_MEMBER_TYPE,
                subscribed_topic_names=each.subscribed_topic_names,
                assignment=assignment,
                target_assignment=assignment,
            )
        )
    return DescribeGroupResponse(
        group_id=group_id,
        group_state=group.group_state,
        assignor_name=group.assignor_name,
        members=tuple(members),
        topic_names={topic_id: name for name, topic_id in ids.items()},
        authorized_operations=group.authorized_operations,
    )
