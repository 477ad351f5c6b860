"""A raw member of the classic protocol: it embeds any bytes, and does no more than it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    EmbeddedAssignment,
    Subscription,
)
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import Connection
from spark_groups.wire.group_admin import MemberIdentity, leave_group
from spark_groups.wire.schemas.codec import Values
from tests.wire.classic_schemas import JOIN_GROUP, SYNC_GROUP
from tests.wire.coordinator_connection_setup import coordinator
from workshop.parts.waiting import LONG_S, wait_until

SESSION_TIMEOUT_MS = 60_000
MEMBER_ID_REQUIRED = 79
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
NO_USER_DATA = encode_assignment(EmbeddedAssignment())


def subscribed_to(topic: str) -> bytes:
    """Return the metadata of a consumer of one topic."""
    return encode_subscription(Subscription(topics=(topic,)))


@contextmanager
def classic_leader(
    servers: str,
    group_id: str,
    metadata: bytes,
    assignment: bytes | None = NO_USER_DATA,
    *,
    protocol: str = "range",
    protocol_type: str = CONSUMER_PROTOCOL_TYPE,
    instance_id: str | None = None,
) -> Iterator[str]:
    """Be the only member of a classic group until the block ends; yields its member id.

    Args:
        metadata: What it embeds in JoinGroup.
        assignment: What it assigns to itself; None: it does not, and the rebalance lasts.
    """
    with Cluster(servers) as cluster:
        node = coordinator(cluster, group_id)
        connection = Connection(node.host, node.port)
        connection.connect(LONG_S)
        asked = {
            "group_id": group_id,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
            "group_instance_id": instance_id,
            "protocol_type": protocol_type,
            "protocols": ({"name": protocol, "metadata": metadata},),
            "reason": None,
        }
        joined = _join(connection, {**asked, "member_id": ""})
        member_id = str(joined["member_id"])
        try:
            if assignment is not None:
                _sync(connection, group_id, joined, instance_id, assignment)
            yield member_id
        finally:
            connection.close()
            leave_group(cluster, group_id, [MemberIdentity(member_id=member_id)], "")


def _join(connection: Connection, asked: Values) -> Values:
    def answered() -> Values | None:
        answer = connection.request(JOIN_GROUP, asked, LONG_S)
        return None if answer["error_code"] in LOADING else answer

    joined = wait_until(answered, what="a coordinator that has loaded the group")
    if joined["error_code"] == MEMBER_ID_REQUIRED:
        again = {**asked, "member_id": joined["member_id"]}
        joined = connection.request(JOIN_GROUP, again, LONG_S)
    assert joined["error_code"] == ErrorCode.NONE, joined
    return joined


def _sync(
    connection: Connection,
    group_id: str,
    joined: Values,
    instance_id: str | None,
    assignment: bytes,
) -> None:
    asked = {
        "group_id": group_id,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "group_instance_id": instance_id,
        "protocol_type": joined["protocol_type"],
        "protocol_name": joined["protocol_name"],
        "assignments": ({"member_id": joined["member_id"], "assignment": assignment},),
    }
    synced = connection.request(SYNC_GROUP, asked, LONG_S)
    assert synced["error_code"] == ErrorCode.NONE, synced
