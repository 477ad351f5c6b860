"""A consumer group with classic members that is driven by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from group_lab.assignors.embedded import encode_subscription
from group_lab.coordinator import mixed
from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    ClassicHeartbeatResponse,
    ClassicProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from group_lab.coordinator.effects import Outcome
from lab.tests.coordinator.driving import Driven
from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription, decode_assignment
from spark_groups.types import TopicPartition

DEFAULT_PROTOCOLS = ("range",)


def subscribed(*topics: str, protocols: tuple[str, ...] = DEFAULT_PROTOCOLS, **fields: Any) -> Any:
    """Return the protocols of a JoinGroup that embed a subscription."""
    metadata = encode_subscription(Subscription(topics=topics, **fields))
    return tuple(ClassicProtocol(each, metadata) for each in protocols)


def owned(topic: str, *partitions: int) -> frozenset[TopicPartition]:
    """Return partitions as a member embeds them."""
    return frozenset(TopicPartition(topic, each) for each in partitions)


@dataclass
class Mixed(Driven):
    """A consumer group, to which classic members send requests as well."""

    def decide_join(self, member_id: str, protocols: Any, **fields: Any) -> Outcome[Any]:
        """Send a JoinGroup and apply what it brings."""
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            protocols=protocols,
            **({"session_timeout_ms": 20_000, "rebalance_timeout_ms": 60_000} | fields),
        )
        outcome = mixed.join(self.group, request, self.profile, self.context)
        self.take(outcome)
        return outcome

    def classic_join(self, member_id: str, *topics: str, **fields: Any) -> JoinGroupResponse:
        """Join with a subscription that owns nothing."""
        response: JoinGroupResponse = self.decide_join(
            member_id, subscribed(*topics), **fields
        ).response
        return response

    def rejoin(self, member_id: str, *partitions: int) -> JoinGroupResponse:
        """Join again as a member of the topic foo, that owns some partitions."""
        member = self.member(member_id)
        embedded = subscribed(
            "foo", owned_partitions=owned("foo", *partitions), generation_id=member.member_epoch
        )
        response: JoinGroupResponse = self.decide_join(member_id, embedded).response
        return response

    def sync(
        self, member_id: str, generation_id: int | None = None, **fields: Any
    ) -> SyncGroupResponse:
        """Fetch the assignment, by default with the generation of the member."""
        if generation_id is None:
            generation_id = self.member(member_id).member_epoch
        request = SyncGroupRequest(
            group_id="g", member_id=member_id, generation_id=generation_id, **fields
        )
        outcome = mixed.sync(self.group, request, self.profile, self.context)
        self.take(outcome)
        return outcome.response

    def synced(self, member_id: str) -> EmbeddedAssignment:
        """Fetch the assignment and decode it."""
        response = self.sync(member_id)
        assert response.error_code == 0
        return decode_assignment(response.assignment)

    def classic_beat(
        self, member_id: str, generation_id: int | None = None, **fields: Any
    ) -> ClassicHeartbeatResponse:
        """Send a Heartbeat, by default with the generation of the member."""
        if generation_id is None:
            generation_id = self.member(member_id).member_epoch
        request = ClassicHeartbeatRequest(
            group_id="g", member_id=member_id, generation_id=generation_id, **fields
        )
        outcome = mixed.classic_heartbeat(self.group, request, self.profile, self.context)
        self.take(outcome)
        return outcome.response
