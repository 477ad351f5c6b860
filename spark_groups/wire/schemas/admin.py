"""The wire messages of operators: settings, classic groups, and what others remove from a group."""

from __future__ import annotations

from spark_groups.wire.schemas.messages import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    RESPONSE_HEADER_V0,
    STRING,
    TEXT,
    Field,
    Message,
    Struct,
)

INCREMENTAL_ALTER_CONFIGS = Message(
    "IncrementalAlterConfigs",
    44,
    1,
    Struct(
        "IncrementalAlterConfigsRequest",
        (
            Field(
                "resources",
                Struct(
                    "AlterConfigsResource",
                    (
                        Field("resource_type", INT8),
                        Field("resource_name", STRING),
                        Field(
                            "configs",
                            Struct(
                                "AlterableConfig",
                                (
                                    Field("name", STRING),
                                    Field("config_operation", INT8),
                                    Field("value", STRING, nullable=True),
                                ),
                            ),
                            array=True,
                        ),
                    ),
                ),
                array=True,
            ),
            Field("validate_only", BOOL),
        ),
    ),
    Struct(
        "IncrementalAlterConfigsResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "responses",
                Struct(
                    "AlterConfigsResourceResponse",
                    (
                        Field("error_code", INT16),
                        Field("error_message", TEXT, nullable=True),
                        Field("resource_type", INT8),
                        Field("resource_name", STRING),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)

LEAVE_GROUP = Message(
    "LeaveGroup",
    13,
    5,
    Struct(
        "LeaveGroupRequest",
        (
            Field("group_id", STRING),
            Field(
                "members",
                Struct(
                    "MemberIdentity",
                    (
                        Field("member_id", STRING),
                        Field("group_instance_id", STRING, nullable=True),
                        Field("reason", STRING, nullable=True),
                    ),
                ),
                array=True,
            ),
        ),
    ),
    Struct(
        "LeaveGroupResponse",
        (
            Field("throttle_time_ms", INT32),
            Field("error_code", INT16),
            Field(
                "members",
                Struct(
                    "MemberResponse",
                    (
                        Field("member_id", STRING),
                        Field("group_instance_id", STRING, nullable=True),
                        Field("error_code", INT16),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)

DESCRIBE_GROUPS = Message(
    "DescribeGroups",
    15,
    6,
    Struct(
        "DescribeGroupsRequest",
        (Field("groups", STRING, array=True), Field("include_authorized_operations", BOOL)),
    ),
    Struct(
        "DescribeGroupsResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "groups",
                Struct(
                    "DescribedGroup",
                    (
                        Field("error_code", INT16),
                        Field("error_message", TEXT, nullable=True),
                        Field("group_id", STRING),
                        Field("group_state", STRING),
                        Field("protocol_type", STRING),
                        Field("protocol_data", STRING),
                        Field(
                            "members",
                            Struct(
                                "DescribedGroupMember",
                                (
                                    Field("member_id", STRING),
                                    Field("group_instance_id", STRING, nullable=True),
                                    Field("client_id", STRING),
                                    Field("client_host", STRING),
                                    Field("member_metadata", BYTES),
                                    Field("member_assignment", BYTES),
                                ),
                            ),
                            array=True,
                        ),
                        Field("authorized_operations", INT32),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)

CONSUMER_PROTOCOL_SUBSCRIPTION = Struct(
    "ConsumerProtocolSubscription",
    (Field("version", INT16), Field("topics", STRING, array=True)),
    flexible=False,
)
"""How `member_metadata` of consumers begins, in every version of it."""
CONSUMER_PROTOCOL_ASSIGNMENT = Struct(
    "ConsumerProtocolAssignment",
    (
        Field("version", INT16),
        Field(
            "assigned_partitions",
            Struct(
                "TopicPartition",
                (Field("topic", STRING), Field("partitions", INT32, array=True)),
                flexible=False,
            ),
            array=True,
        ),
    ),
    flexible=False,
)
"""How `member_assignment` of consumers begins, in every version of it."""

DELETE_GROUPS = Message(
    "DeleteGroups",
    42,
    2,
    Struct("DeleteGroupsRequest", (Field("groups_names", STRING, array=True),)),
    Struct(
        "DeleteGroupsResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "results",
                Struct(
                    "DeletableGroupResult",
                    (Field("group_id", STRING), Field("error_code", INT16)),
                ),
                array=True,
            ),
        ),
    ),
)


def _offset_delete_topic(name: str, partition_fields: tuple[Field, ...]) -> Struct:
    fields = (Field("partition_index", INT32), *partition_fields)
    partition = Struct(f"{name}Partition", fields, flexible=False)
    return Struct(
        f"{name}Topic",
        (Field("name", STRING), Field("partitions", partition, array=True)),
        flexible=False,
    )


OFFSET_DELETE = Message(
    "OffsetDelete",
    47,
    0,
    Struct(
        "OffsetDeleteRequest",
        (
            Field("group_id", STRING),
            Field("topics", _offset_delete_topic("OffsetDeleteRequest", ()), array=True),
        ),
        flexible=False,
    ),
    Struct(
        "OffsetDeleteResponse",
        (
            Field("error_code", INT16),
            Field("throttle_time_ms", INT32),
            Field(
                "topics",
                _offset_delete_topic("OffsetDeleteResponse", (Field("error_code", INT16),)),
                array=True,
            ),
        ),
        flexible=False,
    ),
    response_header=RESPONSE_HEADER_V0,
)
