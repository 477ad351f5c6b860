"""The responses of brokers about one group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from spark_groups.group.ledger.commit_metadata import committed_topics
from spark_groups.group.member.messages import (
    NO_OFFSET,
    UNANSWERED,
    DescribedMember,
    DescribeGroupResponse,
    Fetched,
    ListOffsetsResponse,
    Node,
    PartitionError,
    TopicMetadata,
    found_and_failed,
)
from spark_groups.observation.lag_times import UnreadReading
from spark_groups.types import Assignment, TopicId, TopicIdPartition
from spark_groups.wire.group_admin import ClassicGroup


class GroupType(Enum):
    """The type of a group, as ListGroups names it (org.apache.kafka.common.GroupType)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """The responses about a group, read one after the other.

    Args:
        description: In a classic group, epochs are 0 and target assignments equal assignments.
        log_ends: Read after the committed offsets, so that commits in between do not make lag
            negative.
        unread: The first unread record of each partition with lag; None: they were not read.
    """

    description: DescribeGroupResponse
    group_type: GroupType = GroupType.CONSUMER
    coordinator: Node | None = None
    committed: Fetched = field(default_factory=dict)
    log_starts: ListOffsetsResponse = field(default_factory=ListOffsetsResponse)
    log_ends: ListOffsetsResponse = field(default_factory=ListOffsetsResponse)
    topics: tuple[TopicMetadata, ...] = ()
    unread: UnreadReading | None = None

    def topic_names(self) -> dict[TopicId, str]:
        """Return names by topic id, including topics that only the coordinator knows."""
        return {
            **self.description.topic_names,
            **{topic.topic_id: topic.name for topic in self.topics},
        }

    def partitions(self) -> frozenset[TopicIdPartition]:
        """Return the partitions of the group.

        These are assigned partitions, target assignments, partitions with committed offsets, and
        all partitions of topics that are assigned in part or subscribed by name.
        """
        found = set(self.committed)
        subscribed: set[str] = set()
        assigned: set[TopicId] = set()
        for member in self.description.members:
            subscribed.update(member.subscribed_topic_names)
            held = member.assignment | member.target_assignment
            found |= held.partitions
            assigned.update(partition.topic_id for partition in held.partitions)
        for topic in self.topics:
            if topic.name in subscribed or topic.topic_id in assigned:
                found.update(
                    TopicIdPartition(topic.topic_id, each) for each in range(topic.partition_count)
                )
        return frozenset(found)

    def held_topics(self) -> frozenset[TopicId]:
        """Return the internal topics that a pattern assigns to members and that none reads.

        A member that reads one has committed an offset of it, or names it.
        """
        named = {
            name for member in self.description.members for name in member.subscribed_topic_names
        }
        found, failed = found_and_failed(self.committed)
        read = committed_topics(found) | {key.topic_id for key in failed}
        return frozenset(
            topic.topic_id
            for topic in self.topics
            if topic.is_internal and topic.name not in named and topic.topic_id not in read
        )

    def log_start(self, key: TopicIdPartition) -> int | None:
        """Return the start of a partition's log; None if it is unknown."""
        listed = self.log_starts.answers.get(key, UNANSWERED)
        return None if isinstance(listed, PartitionError) else listed.offset

    def log_end(self, key: TopicIdPartition) -> int | None:
        """Return the end of a partition's log; None if it is unknown."""
        listed = self.log_ends.answers.get(key, UNANSWERED)
        return None if isinstance(listed, PartitionError) else listed.offset

    def errors(self, key: TopicIdPartition) -> dict[str, int]:
        """Return Kafka's error code for each offset of a partition that is unknown."""
        answers = {
            "committed offset": self.committed.get(key),
            "log start offset": self.log_starts.answers.get(key),
            "log end offset": self.log_ends.answers.get(key),
        }
        return {
            what: answer.error_code
            for what, answer in answers.items()
            if isinstance(answer, PartitionError)
        }

    def unread_offsets(self) -> dict[TopicIdPartition, int]:
        """Return the first unread offset of each partition with lag.

        This is the committed offset, else the log start, as for lag; never before the log start.
        """
        found, held = {}, self.held_topics()
        for key in self.log_ends.answers:
            if key.topic_id in held:
                continue
            end, committed, start = self.log_end(key), self.committed.get(key), self.log_start(key)
            offset = start
            if isinstance(committed, PartitionError):
                offset = None
            elif committed is not None and committed.committed_offset != NO_OFFSET:
                offset = max(committed.committed_offset, start or 0)
            if offset is not None and end is not None and offset < end:
                found[key] = offset
        return found


CLASSIC_MEMBER_TYPE: Final = 0
"""The member type of classic members in ConsumerGroupDescribe."""


def described_as_consumer_group(
    group_id: str, group: ClassicGroup, topics: Iterable[TopicMetadata]
) -> DescribeGroupResponse:
    """Return a classic group as a ConsumerGroupDescribe response, with epochs of 0."""
    ids = {topic.name: topic.topic_id for topic in topics}
    members = []
    for member in group.members:
        assignment = Assignment(
            frozenset(
                TopicIdPartition(ids[has.topic], has.partition)
                for has in member.assignment
                if has.topic in ids
            )
        )
        members.append(
            DescribedMember(
                member_id=member.member_id,
                member_epoch=0,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_type=CLASSIC_MEMBER_TYPE,
                subscribed_topic_names=member.subscribed_topic_names,
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
