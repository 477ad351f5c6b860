"""The wire message that reads records: Fetch by topic ids, with leaders that moved (KIP-951)."""

from __future__ import annotations

from spark_groups.wire.schemas.messages import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Field,
    Message,
    Struct,
)

_NO_EPOCH_END = {"epoch": -1, "end_offset": -1}
_NO_LEADER = {"leader_id": -1, "leader_epoch": -1}
_NO_SNAPSHOT = {"end_offset": -1, "epoch": -1}

_ABORTED_TRANSACTION = Struct(
    "AbortedTransaction", (Field("producer_id", INT64), Field("first_offset", INT64))
)
_EPOCH_END = Struct("EpochEndOffset", (Field("epoch", INT32), Field("end_offset", INT64)))
_LEADER = Struct("LeaderIdAndEpoch", (Field("leader_id", INT32), Field("leader_epoch", INT32)))
_SNAPSHOT = Struct("SnapshotId", (Field("end_offset", INT64), Field("epoch", INT32)))
_NODE_ENDPOINT = Struct(
    "NodeEndpoint",
    (
        Field("node_id", INT32),
        Field("host", STRING),
        Field("port", INT32),
        Field("rack", STRING, nullable=True),
    ),
)
_REQUESTED_PARTITION = Struct(
    "FetchPartition",
    (
        Field("partition", INT32),
        Field("current_leader_epoch", INT32),
        Field("fetch_offset", INT64),
        Field("last_fetched_epoch", INT32),
        Field("log_start_offset", INT64),
        Field("partition_max_bytes", INT32),
    ),
)
_ANSWERED_PARTITION = Struct(
    "PartitionData",
    (
        Field("partition_index", INT32),
        Field("error_code", INT16),
        Field("high_watermark", INT64),
        Field("last_stable_offset", INT64),
        Field("log_start_offset", INT64),
        Field("aborted_transactions", _ABORTED_TRANSACTION, array=True, nullable=True),
        Field("preferred_read_replica", INT32),
        Field("records", RECORDS, nullable=True),
        Field("diverging_epoch", _EPOCH_END, tag=0, default=_NO_EPOCH_END),
        Field("current_leader", _LEADER, tag=1, default=_NO_LEADER),
        Field("snapshot_id", _SNAPSHOT, tag=2, default=_NO_SNAPSHOT),
    ),
)
FETCH = Message(
    "Fetch",
    1,
    16,
    Struct(
        "FetchRequest",
        (
            Field("max_wait_ms", INT32),
            Field("min_bytes", INT32),
            Field("max_bytes", INT32),
            Field("isolation_level", INT8),
            Field("session_id", INT32),
            Field("session_epoch", INT32),
            Field(
                "topics",
                Struct(
                    "FetchTopic",
                    (
                        Field("topic_id", UUID),
                        Field("partitions", _REQUESTED_PARTITION, array=True),
                    ),
                ),
                array=True,
            ),
            Field(
                "forgotten_topics_data",
                Struct(
                    "ForgottenTopic",
                    (Field("topic_id", UUID), Field("partitions", INT32, array=True)),
                ),
                array=True,
            ),
            Field("rack_id", STRING),
        ),
    ),
    Struct(
        "FetchResponse",
        (
            Field("throttle_time_ms", INT32),
            Field("error_code", INT16),
            Field("session_id", INT32),
            Field(
                "responses",
                Struct(
                    "FetchableTopicResponse",
                    (
                        Field("topic_id", UUID),
                        Field("partitions", _ANSWERED_PARTITION, array=True),
                    ),
                ),
                array=True,
            ),
            Field("node_endpoints", _NODE_ENDPOINT, array=True, tag=0, default=()),
        ),
    ),
)
