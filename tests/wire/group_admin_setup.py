"""Shared by test_group_admin.py and other tests."""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.types import NO_PARTITIONS
from tests.runtime.members import heartbeat
from workshop.parts.waiting import wait_until


def join(servers: str, group_id: str, topic: str, member_id: str, instance_id: str | None) -> None:
    request = HeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        instance_id=instance_id,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=(topic,),
        topic_partitions=NO_PARTITIONS,
    )
    wait_until(
        lambda: heartbeat(servers, request).error_code == ErrorCode.NONE,
        what=f"{member_id} in the group",
    )
