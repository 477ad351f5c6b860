"""A shard with one classic group that is driven by hand, and what its members are answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from group_lab.assignors.embedded import encode_subscription
from group_lab.coordinator import messages as m
from group_lab.coordinator.classic.group import ClassicGroup
from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    ClassicProtocol,
    JoinGroupRequest,
    SyncGroupRequest,
)
from group_lab.coordinator.effects import NEWEST_API_VERSION, CoordinatorErrorCode
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.shard import Ticket
from lab.tests.coordinator.driving import BAR, FOO, ShardByHand
from spark_groups.group.member.embedded import Subscription
from spark_groups.group.member.messages import OffsetAndMetadata, OffsetCommitRequest
from spark_groups.types import TopicIdPartition

GROUP = "g"
METADATA = encode_subscription(Subscription(topics=("foo",)))
RANGE = ClassicProtocol("range", METADATA)
STICKY = ClassicProtocol("sticky", METADATA)


FOO_0, BAR_0 = TopicIdPartition(FOO, 0), TopicIdPartition(BAR, 0)


def with_broker(**changes: Any) -> Settings:
    """Return settings with other broker settings than the defaults."""
    return Settings(replace(BrokerSettings(), **changes))


@dataclass
class DrivenShard(ShardByHand):
    """A shard with one classic group."""

    @property
    def group(self) -> ClassicGroup:
        """The group as it is in memory."""
        group = self.shard.memory.group(GROUP).classic
        assert group is not None
        return group

    def wait_for(self, *tickets: Ticket) -> None:
        """Let time pass until all tickets are answered."""
        while any(each.response is None for each in tickets):
            at = self.shard.next_wakeup()
            assert at is not None
            self.wait(max(at - self.now, 0.0))

    def join_request(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        protocols: tuple[ClassicProtocol, ...] = (RANGE,),
        session_s: float = 10.0,
        rebalance_s: float = 60.0,
    ) -> JoinGroupRequest:
        """Return a JoinGroup of the group."""
        return JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=round(session_s * 1000),
            rebalance_timeout_ms=round(rebalance_s * 1000),
            member_id=member_id,
            group_instance_id=instance_id,
            protocols=protocols,
        )

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        client: str = "c",
        api_version: int = NEWEST_API_VERSION,
        **fields: Any,
    ) -> Ticket:
        """Send a JoinGroup; a dynamic member that is given an id joins again with it."""
        request = self.join_request(member_id, instance_id, **fields)
        ticket = self.send(request, client=client, api_version=api_version)
        response: Any = ticket.response
        if response and response.error_code == CoordinatorErrorCode.MEMBER_ID_REQUIRED:
            request = self.join_request(response.member_id, **fields)
            ticket = self.send(request, client=client, api_version=api_version)
        return ticket

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        **changes: Any,
    ) -> Ticket:
        """Send a SyncGroup of the current generation."""
        return self.send(
            SyncGroupRequest(
                **{
                    "group_id": GROUP,
                    "generation_id": (
                        self.group.generation_id if generation_id is None else generation_id
                    ),
                    "member_id": member_id,
                    "protocol_type": "consumer",
                    "protocol_name": self.group.protocol_name,
                    "assignments": assignments or {},
                    **changes,
                }
            )
        )

    def heartbeat(
        self,
        member_id: str,
        *,
        generation_id: int | None = None,
        instance_id: str | None = None,
    ) -> int:
        """Send a Heartbeat of the current generation, and return its error code."""
        response: Any = self.send(
            ClassicHeartbeatRequest(
                group_id=GROUP,
                generation_id=self.group.generation_id if generation_id is None else generation_id,
                member_id=member_id,
                group_instance_id=instance_id,
            )
        ).response
        return int(response.error_code)

    def leave(self, *members: m.LeavingMember) -> tuple[int, ...]:
        """Send one LeaveGroup for some members, and return the error code of each."""
        response: Any = self.send(m.LeaveGroupRequest(group_id=GROUP, members=members)).response
        return tuple(each.error_code for each in response.members)

    def stabilise(self, *instance_ids: str | None, **joining: Any) -> list[str]:
        """Let members join an empty group and sync; return their member ids, in their order."""
        tickets = [self.join(instance_id=each, **joining) for each in instance_ids]
        self.wait_for(*tickets)
        responses: list[Any] = [each.response for each in tickets]
        self.sync_all()
        return [each.member_id for each in responses]

    def sync_all(self) -> None:
        """Let all members sync, the leader last; it assigns its member id to each."""
        group = self.group
        for member_id in sorted(group.members, key=lambda each: each == group.leader_id):
            leads = member_id == group.leader_id
            self.sync(member_id, {each: each.encode() for each in group.members} if leads else None)


def commit(
    driven: DrivenShard,
    member_id: str,
    generation_id: int,
    *,
    instance_id: str | None = None,
    api_version: int = 9,
) -> int:
    """Commit an offset of foo-0 and bar-0, and return the error."""
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=generation_id,
        instance_id=instance_id,
        offsets={FOO_0: OffsetAndMetadata(7), BAR_0: OffsetAndMetadata(8)},
    )
    response: Any = driven.send(request, api_version=api_version).response
    assert len(set(response.errors.values())) == 1
    return int(response.errors[FOO_0])
