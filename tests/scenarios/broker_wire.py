"""Requests that only scenarios send: old versions, and turning features off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_groups.lab.coordinator import messages as c
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition
from spark_groups.wire.configuration import ConfigOrigin
from spark_groups.wire.connection import Connection
from spark_groups.wire.schemas.messages import (
    BOOL,
    DELETE_GROUPS,
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
)
from tests.scenarios.world import Operated, Operation

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
