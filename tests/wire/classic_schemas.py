"""Schemas of the requests of classic members, which the product never sends."""

from __future__ import annotations

from spark_groups.wire.schemas.wire_messages import (
    Message,
    struct_of,
)

JOIN_GROUP = Message(
    "JoinGroup",
    11,
    9,
    struct_of(
        "JoinGroupRequest",
        """
        group_id string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id string
        group_instance_id string?, protocol_type string
        protocols [JoinGroupRequestProtocol]:
            name string, metadata bytes
        reason string?
        """,
    ),
    struct_of(
        "JoinGroupResponse",
        """
        throttle_time_ms int32, error_code int16, generation_id int32, protocol_type string?
        protocol_name string?, leader string, skip_assignment bool, member_id string
        members [JoinGroupResponseMember]:
            member_id string, group_instance_id string?, metadata bytes
        """,
    ),
)


SYNC_GROUP = Message(
    "SyncGroup",
    14,
    5,
    struct_of(
        "SyncGroupRequest",
        """
        group_id string, generation_id int32, member_id string, group_instance_id string?
        protocol_type string?, protocol_name string?
        assignments [SyncGroupRequestAssignment]:
            member_id string, assignment bytes
        """,
    ),
    struct_of(
        "SyncGroupResponse",
        """
        throttle_time_ms int32, error_code int16, protocol_type string?, protocol_name string?
        assignment bytes
        """,
    ),
)
