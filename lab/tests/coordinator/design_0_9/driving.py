"""A shard with one group of the 0.9 design that is driven by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from group_lab.coordinator.design_0_9.group import CoordinatorState, DesignGroup
from group_lab.coordinator.design_0_9.messages import (
    DesignHeartbeatRequest,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.coordinator.profile import DESIGN_0_9, Profile
from group_lab.coordinator.shard import Ticket
from group_lab.coordinator.topic_images import TopicImage
from lab.tests.coordinator.driving import BAR, FOO, ShardByHand
from spark_groups.group.member.messages import OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import TopicIdPartition, TopicPartition

GROUP = "g"
SESSION_S = 10.0


@dataclass
class DrivenDesign(ShardByHand):
    """A shard with one group of the 0.9 design."""

    profile: Profile = DESIGN_0_9

    @property
    def group(self) -> DesignGroup:
        """The group as it is in memory."""
        group = self.shard.memory.group(GROUP).design
        assert group is not None
        return group

    @property
    def state(self) -> CoordinatorState:
        """The state of the group."""
        return self.group.state

    def grow(self, name: str, partition_count: int) -> None:
        """Let a topic have more partitions, or make it."""
        topic_id = {"foo": FOO, "bar": BAR}[name]
        self.topics = self.topics.with_topic(TopicImage(topic_id, name, partition_count))
        self.shard.set_topics(self.topics, self.now)
        self._after()

    def join(
        self,
        consumer_id: str = "",
        *topics: str,
        session_s: float = SESSION_S,
        strategy: str = "range",
    ) -> Ticket:
        """Send a JoinGroup; by default with the topic foo."""
        return self.send(
            DesignJoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=round(session_s * 1000),
                topics=topics or ("foo",),
                consumer_id=consumer_id,
                partition_assignment_strategy=strategy,
            )
        )

    def beat(self, consumer_id: str, generation_id: int | None = None) -> int:
        """Send a heartbeat, by default of the current generation; return its error code."""
        if generation_id is None:
            generation_id = self.group.generation_id
        response: Any = self.send(self.beat_request(consumer_id, generation_id)).response
        return int(response.error_code)

    def beat_request(self, consumer_id: str, generation_id: int) -> DesignHeartbeatRequest:
        """Return a heartbeat."""
        return DesignHeartbeatRequest(
            group_id=GROUP, group_generation_id=generation_id, consumer_id=consumer_id
        )

    def commit_request(self, consumer_id: str, generation_id: int) -> OffsetCommitRequest:
        """Return a commit of foo-0."""
        return OffsetCommitRequest(
            group_id=GROUP,
            member_id=consumer_id,
            member_epoch=generation_id,
            offsets={TopicIdPartition(FOO, 0): OffsetAndMetadata(7)},
        )

    def commit(self, consumer_id: str, generation_id: int | None = None) -> int:
        """Commit, by default with the current generation; return the error code."""
        if generation_id is None:
            generation_id = self.group.generation_id
        response: Any = self.send(self.commit_request(consumer_id, generation_id)).response
        return int(response.errors[TopicIdPartition(FOO, 0)])

    def steady(self, count: int) -> list[str]:
        """Let consumers join one after the other; return their ids."""
        ids: list[str] = []
        for _ in range(count):
            tickets = [self.join(), *(self.join(each) for each in ids)]
            ids.append(joined(tickets[0]).consumer_id)
        return ids


def joined(ticket: Ticket) -> DesignJoinGroupResponse:
    """Return the answer to a JoinGroup."""
    assert isinstance(ticket.response, DesignJoinGroupResponse)
    return ticket.response


def owned(ticket: Ticket) -> list[int]:
    """Return the partitions of foo that a JoinGroup was answered with."""
    return sorted(
        each.partition for each in joined(ticket).partitions_to_own if each.topic == "foo"
    )


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    """Return partitions of a topic."""
    return frozenset(TopicPartition(topic, each) for each in numbers)
