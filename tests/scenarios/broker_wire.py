"""Requests that only scenarios send: old versions, and what operators change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_groups.kafka.schemas import BOOL, INT8, INT16, INT32, STRING, Field, Message, Struct
from spark_groups.kafka.topic_schemas import OFFSET_COMMIT_V9
from spark_groups.types import TopicId, TopicIdPartition

OFFSET_COMMIT_V8 = replace(OFFSET_COMMIT_V9, version=8)

GROUP_RESOURCE = 32
SET, DELETE = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
_NAMED = (Field("resource_type", INT8), Field("resource_name", STRING))
_REFUSED = (Field("error_code", INT16), Field("error_message", STRING, nullable=True))

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
                        *_NAMED,
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
                Struct("AlterConfigsResourceResponse", (*_REFUSED, *_NAMED)),
                array=True,
            ),
        ),
    ),
)

_SYNONYM = Struct(
    "DescribeConfigsSynonym",
    (Field("name", STRING), Field("value", STRING, nullable=True), Field("source", INT8)),
)
DESCRIBE_CONFIGS = Message(
    "DescribeConfigs",
    32,
    4,
    Struct(
        "DescribeConfigsRequest",
        (
            Field(
                "resources",
                Struct(
                    "DescribeConfigsResource",
                    (*_NAMED, Field("configuration_keys", STRING, array=True, nullable=True)),
                ),
                array=True,
            ),
            Field("include_synonyms", BOOL),
            Field("include_documentation", BOOL),
        ),
    ),
    Struct(
        "DescribeConfigsResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "results",
                Struct(
                    "DescribeConfigsResult",
                    (
                        *_REFUSED,
                        *_NAMED,
                        Field(
                            "configs",
                            Struct(
                                "DescribeConfigsResourceResult",
                                (
                                    Field("name", STRING),
                                    Field("value", STRING, nullable=True),
                                    Field("read_only", BOOL),
                                    Field("config_source", INT8),
                                    Field("is_sensitive", BOOL),
                                    Field("synonyms", _SYNONYM, array=True),
                                    Field("config_type", INT8),
                                    Field("documentation", STRING, nullable=True),
                                ),
                            ),
                            array=True,
                        ),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)
CONFIG_SOURCES = {4: "the broker's file", 5: "Kafka's default", 8: "the group"}

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
