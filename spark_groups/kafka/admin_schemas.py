"""The wire messages of operators: settings of a group, and members that others remove."""

from __future__ import annotations

from spark_groups.kafka.schemas import BOOL, INT8, INT16, INT32, STRING, Field, Message, Struct

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
                        Field("error_message", STRING, nullable=True),
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
