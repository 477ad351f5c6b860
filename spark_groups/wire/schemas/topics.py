"""The wire messages about topics and their offsets; `schemas` has those about groups."""

from __future__ import annotations

from spark_groups.wire.schemas.messages import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TEXT,
    UUID,
    Field,
    Message,
    Struct,
)


def _offset_commit(version: int, topic_key: Field) -> Message:
    requested = Struct(
        "OffsetCommitRequestPartition",
        (
            Field("partition_index", INT32),
            Field("committed_offset", INT64),
            Field("committed_leader_epoch", INT32),
            Field("committed_metadata", STRING, nullable=True),
        ),
    )
    answered = Struct(
        "OffsetCommitResponsePartition",
        (Field("partition_index", INT32), Field("error_code", INT16)),
    )
    request_topic = Struct(
        "OffsetCommitRequestTopic", (topic_key, Field("partitions", requested, array=True))
    )
    response_topic = Struct(
        "OffsetCommitResponseTopic", (topic_key, Field("partitions", answered, array=True))
    )
    return Message(
        "OffsetCommit",
        8,
        version,
        Struct(
            f"OffsetCommitRequest v{version}",
            (
                Field("group_id", STRING),
                Field("generation_id_or_member_epoch", INT32),
                Field("member_id", STRING),
                Field("group_instance_id", STRING, nullable=True),
                Field("topics", request_topic, array=True),
            ),
        ),
        Struct(
            f"OffsetCommitResponse v{version}",
            (Field("throttle_time_ms", INT32), Field("topics", response_topic, array=True)),
        ),
    )


def _offset_fetch(version: int, topic_key: Field) -> Message:
    request_topic = Struct(
        "OffsetFetchRequestTopics", (topic_key, Field("partition_indexes", INT32, array=True))
    )
    request_group = Struct(
        "OffsetFetchRequestGroup",
        (
            Field("group_id", STRING),
            Field("member_id", STRING, nullable=True),
            Field("member_epoch", INT32),
            Field("topics", request_topic, array=True, nullable=True),
        ),
    )
    answered = Struct(
        "OffsetFetchResponsePartitions",
        (
            Field("partition_index", INT32),
            Field("committed_offset", INT64),
            Field("committed_leader_epoch", INT32),
            Field("metadata", STRING, nullable=True),
            Field("error_code", INT16),
        ),
    )
    response_topic = Struct(
        "OffsetFetchResponseTopics", (topic_key, Field("partitions", answered, array=True))
    )
    response_group = Struct(
        "OffsetFetchResponseGroup",
        (
            Field("group_id", STRING),
            Field("topics", response_topic, array=True),
            Field("error_code", INT16),
        ),
    )
    return Message(
        "OffsetFetch",
        9,
        version,
        Struct(
            f"OffsetFetchRequest v{version}",
            (Field("groups", request_group, array=True), Field("require_stable", BOOL)),
        ),
        Struct(
            f"OffsetFetchResponse v{version}",
            (Field("throttle_time_ms", INT32), Field("groups", response_group, array=True)),
        ),
    )


_BY_NAME, _BY_ID = Field("name", STRING), Field("topic_id", UUID)
OFFSET_COMMIT_V9, OFFSET_COMMIT_V10 = _offset_commit(9, _BY_NAME), _offset_commit(10, _BY_ID)
OFFSET_FETCH_V9, OFFSET_FETCH_V10 = _offset_fetch(9, _BY_NAME), _offset_fetch(10, _BY_ID)

_METADATA_BROKER = Struct(
    "MetadataResponseBroker",
    (
        Field("node_id", INT32),
        Field("host", STRING),
        Field("port", INT32),
        Field("rack", STRING, nullable=True),
    ),
)
_METADATA_PARTITION = Struct(
    "MetadataResponsePartition",
    (
        Field("error_code", INT16),
        Field("partition_index", INT32),
        Field("leader_id", INT32),
        Field("leader_epoch", INT32),
        Field("replica_nodes", INT32, array=True),
        Field("isr_nodes", INT32, array=True),
        Field("offline_replicas", INT32, array=True),
    ),
)
_METADATA_TOPIC = Struct(
    "MetadataResponseTopic",
    (
        Field("error_code", INT16),
        Field("name", STRING, nullable=True),
        Field("topic_id", UUID),
        Field("is_internal", BOOL),
        Field("partitions", _METADATA_PARTITION, array=True),
        Field("topic_authorized_operations", INT32),
    ),
)
METADATA = Message(
    "Metadata",
    3,
    12,
    Struct(
        "MetadataRequest",
        (
            Field(
                "topics",
                Struct(
                    "MetadataRequestTopic",
                    (Field("topic_id", UUID), Field("name", STRING, nullable=True)),
                ),
                array=True,
                nullable=True,
            ),
            Field("allow_auto_topic_creation", BOOL),
            Field("include_topic_authorized_operations", BOOL),
        ),
    ),
    Struct(
        "MetadataResponse",
        (
            Field("throttle_time_ms", INT32),
            Field("brokers", _METADATA_BROKER, array=True),
            Field("cluster_id", STRING, nullable=True),
            Field("controller_id", INT32),
            Field("topics", _METADATA_TOPIC, array=True),
        ),
    ),
)


def _list_offsets_topic(name: str, partition_fields: tuple[Field, ...]) -> Struct:
    partition = Struct(f"{name}Partition", (Field("partition_index", INT32), *partition_fields))
    return Struct(
        f"{name}Topic", (Field("name", STRING), Field("partitions", partition, array=True))
    )


LIST_OFFSETS = Message(
    "ListOffsets",
    2,
    7,
    Struct(
        "ListOffsetsRequest",
        (
            Field("replica_id", INT32),
            Field("isolation_level", INT8),
            Field(
                "topics",
                _list_offsets_topic(
                    "ListOffsetsRequest",
                    (Field("current_leader_epoch", INT32), Field("timestamp", INT64)),
                ),
                array=True,
            ),
        ),
    ),
    Struct(
        "ListOffsetsResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "topics",
                _list_offsets_topic(
                    "ListOffsetsResponse",
                    (
                        Field("error_code", INT16),
                        Field("timestamp", INT64),
                        Field("offset", INT64),
                        Field("leader_epoch", INT32),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Message(
    "OffsetForLeaderEpoch",
    23,
    4,
    Struct(
        "OffsetForLeaderEpochRequest",
        (
            Field("replica_id", INT32),
            Field(
                "topics",
                Struct(
                    "OffsetForLeaderTopic",
                    (
                        Field("topic", STRING),
                        Field(
                            "partitions",
                            Struct(
                                "OffsetForLeaderPartition",
                                (
                                    Field("partition", INT32),
                                    Field("current_leader_epoch", INT32),
                                    Field("leader_epoch", INT32),
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
    Struct(
        "OffsetForLeaderEpochResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "topics",
                Struct(
                    "OffsetForLeaderTopicResult",
                    (
                        Field("topic", STRING),
                        Field(
                            "partitions",
                            Struct(
                                "EpochEndOffset",
                                (
                                    Field("error_code", INT16),
                                    Field("partition", INT32),
                                    Field("leader_epoch", INT32),
                                    Field("end_offset", INT64),
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
                    (
                        Field("resource_type", INT8),
                        Field("resource_name", STRING),
                        Field("configuration_keys", STRING, array=True, nullable=True),
                    ),
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
                        Field("error_code", INT16),
                        Field("error_message", TEXT, nullable=True),
                        Field("resource_type", INT8),
                        Field("resource_name", STRING),
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
                                    Field(
                                        "synonyms",
                                        Struct(
                                            "DescribeConfigsSynonym",
                                            (
                                                Field("name", STRING),
                                                Field("value", STRING, nullable=True),
                                                Field("source", INT8),
                                            ),
                                        ),
                                        array=True,
                                    ),
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
