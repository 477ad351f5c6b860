"""Shared by test_coordinator_connection.py and other tests."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    Node,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from spark_groups.types import NO_PARTITIONS, TopicId
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from workshop.parts.waiting import LONG_S, wait_until


@dataclass
class Member:
    """A member of a group on a real broker."""

    connection: CoordinatorConnection
    node: Node
    group_id: str
    member_id: str
    joined: HeartbeatResponse

    def send(self, request, timeout_s: float = LONG_S):
        return self.connection.send(self.node, request, timeout_s)

    def commit(self, offsets, member_epoch: int | None = None, member_id: str | None = None):
        request = OffsetCommitRequest(
            group_id=self.group_id,
            member_id=member_id or self.member_id,
            member_epoch=self.joined.member_epoch if member_epoch is None else member_epoch,
            offsets=offsets,
        )
        return self.send(request).errors

    def fetch(self, partitions, member_epoch: int | None = None):
        request = OffsetFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.joined.member_epoch if member_epoch is None else member_epoch,
            partitions=frozenset(partitions),
        )
        return self.send(request)


def coordinator(cluster: Cluster, group_id: str) -> Node:
    request = FindCoordinatorRequest(group_id=group_id)
    return wait_until(lambda: cluster.find_coordinator(request).coordinator, what="a coordinator")


def topic_id(cluster: Cluster, name: str) -> TopicId:
    request = MetadataRequest(topic_names=frozenset({name}))
    (topic,) = wait_until(lambda: cluster.metadata(request).topics, what=name)
    return topic.topic_id


def join(connection: CoordinatorConnection, node: Node, group_id: str, topic: str) -> Member:
    """Join, and wait until the member has partitions."""
    request = HeartbeatRequest(
        group_id=group_id,
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=(topic,),
        topic_partitions=NO_PARTITIONS,
    )
    retried = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    member = Member(connection, node, group_id, request.member_id, HeartbeatResponse())

    def assigned() -> bool:
        answer = connection.send(
            node, replace(request, member_epoch=member.joined.member_epoch), LONG_S
        )
        if answer.error_code in retried:
            return False
        assert answer.error_code == 0, answer
        member.joined = answer
        return bool(answer.assignment)

    wait_until(assigned, what="an assignment")
    return member
