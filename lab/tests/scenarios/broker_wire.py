"""Requests that only scenarios send: the classic protocol, old versions, turning features off."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace

from group_lab.coordinator import messages as c
from group_lab.coordinator.classic import messages as k
from lab.tests.scenarios.world import ClassicRequest, ClassicResponse, Operated, Operation
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition
from spark_groups.wire.configuration import ConfigOrigin
from spark_groups.wire.connection import Connection
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import (
    BOOL,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    INT8,
    INT16,
    INT32,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT_V9,
    OFFSET_DELETE,
    STRING,
    Field,
    Message,
    Struct,
    struct_of,
)
from tests.wire.classic_schemas import JOIN_GROUP, SYNC_GROUP

OFFSET_COMMIT_V8 = replace(OFFSET_COMMIT_V9, version=8)

UPGRADE, SAFE_DOWNGRADE = 1, 2
_REFUSED = (Field("error_code", INT16), Field("error_message", STRING, nullable=True))

CONFIG_SOURCES = {
    ConfigOrigin.STATIC_BROKER: "the broker's file",
    ConfigOrigin.DEFAULT: "Kafka's default",
    ConfigOrigin.GROUP: "the group",
}

UPDATE_FEATURES = Message(
    "UpdateFeatures",
    57,
    1,
    Struct(
        "UpdateFeaturesRequest",
        (
            Field("timeout_ms", INT32),
            Field(
                "feature_updates",
                Struct(
                    "FeatureUpdateKey",
                    (
                        Field("feature", STRING),
                        Field("max_version_level", INT16),
                        Field("upgrade_type", INT8),
                    ),
                ),
                array=True,
            ),
            Field("validate_only", BOOL),
        ),
    ),
    Struct(
        "UpdateFeaturesResponse",
        (
            Field("throttle_time_ms", INT32),
            *_REFUSED,
            Field(
                "results",
                Struct("UpdatableFeatureResult", (Field("feature", STRING), *_REFUSED)),
                array=True,
            ),
        ),
    ),
)

HEARTBEAT = Message(
    "Heartbeat",
    12,
    4,
    struct_of(
        "HeartbeatRequest",
        "group_id string, generation_id int32, member_id string, group_instance_id string?",
    ),
    struct_of("HeartbeatResponse", "throttle_time_ms int32, error_code int16"),
)


def classic_to_wire(request: ClassicRequest) -> tuple[Message, dict[str, object]]:
    """Return the message of a request of the classic protocol, and its fields."""
    match request:
        case k.JoinGroupRequest():
            values = _fields(request)
            protocols = (
                {"name": each.name, "metadata": each.metadata} for each in request.protocols
            )
            return JOIN_GROUP, values | {"protocols": tuple(protocols)}
        case k.SyncGroupRequest():
            values = _fields(request)
            assignments = (
                {"member_id": member_id, "assignment": assignment}
                for member_id, assignment in request.assignments.items()
            )
            return SYNC_GROUP, values | {"assignments": tuple(assignments)}
        case k.ClassicHeartbeatRequest():
            return HEARTBEAT, _fields(request)
        case k.DescribeGroupsRequest():
            asked = {"groups": (request.group_id,), "include_authorized_operations": False}
            return DESCRIBE_GROUPS, asked


def classic_from_wire(request: ClassicRequest, values: Values) -> ClassicResponse:
    """Return the response to a request of the classic protocol."""
    match request:
        case k.JoinGroupRequest():
            return k.JoinGroupResponse(
                **_without(values, "members"),
                members=tuple(k.JoinedMember(**each) for each in values["members"]),
            )
        case k.SyncGroupRequest():
            return k.SyncGroupResponse(**_without(values))
        case k.ClassicHeartbeatRequest():
            return k.ClassicHeartbeatResponse(**_without(values))
        case k.DescribeGroupsRequest():
            (group,) = values["groups"]
            return k.DescribeGroupsResponse(
                **_without(group, "members", "authorized_operations"),
                members=tuple(k.DescribedClassicMember(**each) for each in group["members"]),
            )


def _fields(request: ClassicRequest) -> dict[str, object]:
    return {each.name: getattr(request, each.name) for each in dataclasses.fields(request)}


def _without(values: Values, *names: str) -> Values:
    return {key: values[key] for key in values if key not in (*names, "throttle_time_ms")}


def operated(connection: Connection, request: Operation, timeout_s: float) -> Operated:
    """Send a request that only operators send."""
    match request:
        case c.ListGroupsRequest():
            asked = {"states_filter": request.states_filter, "types_filter": request.types_filter}
            answer = connection.request(LIST_GROUPS, asked, timeout_s)
            return c.ListGroupsResponse(
                error_code=answer["error_code"],
                groups=tuple(c.ListedGroup(**each) for each in answer["groups"]),
            )
        case c.DeleteGroupsRequest():
            asked = {"groups_names": (request.group_id,)}
            (result,) = connection.request(DELETE_GROUPS, asked, timeout_s)["results"]
            return c.DeleteGroupsResponse(error_code=result["error_code"])
        case c.LeaveGroupRequest():
            members = tuple(
                {"member_id": each.member_id, "group_instance_id": each.instance_id, "reason": None}
                for each in request.members
            )
            asked = {"group_id": request.group_id, "members": members}
            answer = connection.request(LEAVE_GROUP, asked, timeout_s)
            return c.LeaveGroupResponse(
                error_code=answer["error_code"],
                members=tuple(
                    c.LeftMember(each["member_id"], each["group_instance_id"], each["error_code"])
                    for each in answer["members"]
                ),
            )
        case c.OffsetDeleteRequest():
            topics: dict[str, list[dict[str, int]]] = {}
            for key in sorted(request.partitions):
                topics.setdefault(key.topic, []).append({"partition_index": key.partition})
            asked = {
                "group_id": request.group_id,
                "topics": tuple({"name": each, "partitions": topics[each]} for each in topics),
            }
            answer = connection.request(OFFSET_DELETE, asked, timeout_s)
            return c.OffsetDeleteResponse(
                error_code=answer["error_code"],
                errors={
                    TopicPartition(topic["name"], each["partition_index"]): each["error_code"]
                    for topic in answer["topics"]
                    for each in topic["partitions"]
                },
            )


def by_topic(
    keys: Iterable[TopicIdPartition], names: Mapping[TopicId, str], api_version: int
) -> list[tuple[dict[str, object], list[TopicIdPartition]]]:
    """Group partitions by topic, each with what the version calls it."""
    grouped: dict[TopicId, list[TopicIdPartition]] = {}
    for each in sorted(keys):
        grouped.setdefault(each.topic_id, []).append(each)
    return [
        ({"topic_id": topic_id} if api_version >= 10 else {"name": names[topic_id]}, each)
        for topic_id, each in grouped.items()
    ]


def topic_of(topic: Mapping[str, object], asked: Mapping[TopicId, str]) -> TopicId:
    """Return the topic id that an answer's topic was asked by."""
    if "topic_id" in topic:
        found = topic["topic_id"]
        assert isinstance(found, TopicId)
        return found
    return next(topic_id for topic_id, name in asked.items() if name == topic["name"])
