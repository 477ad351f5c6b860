"""The last heartbeat of a member whose threads are dead: nobody should wait for its session."""

from __future__ import annotations

import logging

from spark_groups.errors import SparkGroupsError
from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.messages import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
    Node,
)
from spark_groups.wire.connection import RequestError
from spark_groups.wire.coordinator import CoordinatorLane
from spark_groups.wire.security.security import Security

logger = logging.getLogger(__name__)


def leave_at_once(
    config: MemberConfig,
    member_id: str,
    coordinator: Node,
    *,
    will_return: bool,
    client_id: str,
    security: Security,
    timeout_s: float,
) -> bool:
    """Leave a group over a connection made for that; best effort.

    Args:
        config: The member.
        member_id: Its id.
        coordinator: Where the group is coordinated.
        will_return: True for a static member that keeps its partitions.
        client_id: What the broker calls this client.
        security: How the connection is secured.
        timeout_s: Seconds that it may take.

    Returns:
        True if the coordinator took it.
    """
    is_static = will_return and config.instance_id is not None
    request = HeartbeatRequest(
        group_id=config.group_id,
        member_id=member_id,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH if is_static else LEAVE_GROUP_MEMBER_EPOCH,
        instance_id=config.instance_id,
    )
    lane = CoordinatorLane(client_id=client_id, security=security)
    try:
        response = lane.send(coordinator, request, timeout_s)
    except (RequestError, SparkGroupsError) as error:
        logger.warning("the group could not be left, its session has to run out: %s", error)
        return False
    finally:
        lane.close()
    return getattr(response, "error_code", None) == 0
