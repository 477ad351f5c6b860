"""The wire messages of this package: one schema for each request and response.

Names and order are those of Kafka's own schemas (clients/src/main/resources/common/message), in
snake case. Only versions common to Kafka 4.0 to 4.4 are here, except OffsetCommit and OffsetFetch
v10 beside their v9: v10 (Kafka 4.2) has topic ids.

A schema lists fields as `name type`. `[type]` is an array, `type?` is nullable, `type @n` is the
tagged field n. A capitalized type is a structure: its fields are the indented lines below it, or
those of the structure with the same name above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from textwrap import dedent
from typing import Final


class Primitive(Enum):
    """A field that is not a structure; the value of a fixed-width one is its `struct` format."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    STRING = "compact or legacy, like its structure"
    LEGACY_STRING = "always legacy"
    TEXT = "a string for display: reading it replaces control characters"
    BYTES = "compact, in flexible structures only"
    RECORDS = "compact or null; a view of the frame, not a copy, if that is a memoryview"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure.

    Args:
        name: Kafka's name in snake case.
        array: Whether it is an array of `kind`.
        nullable: Whether the field itself (never an element of it) may be null.
        tag: The tag of a tagged field, which is read and never written.
        default: The value of a tagged field that a message omits.
    """

    name: str
    kind: Primitive | Struct
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    default: object = None


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A structure: fields in the order of the wire, compared by identity.

    Args:
        fields: Its fields; the tagged ones last.
        flexible: Whether it has compact lengths and tagged fields.
    """

    name: str
    fields: tuple[Field, ...]
    flexible: bool = True


STRINGS: Final = frozenset({Primitive.STRING, Primitive.LEGACY_STRING, Primitive.TEXT})


def is_fixed(spec: Field) -> bool:
    """Return whether a field belongs to a run of fixed-width ones; a uuid needs a conversion."""
    return isinstance(spec.kind, Primitive) and len(spec.kind.value) == 1 and not spec.array


def formats(run: list[Field]) -> str:
    """Return the `struct` format of a run of fixed-width fields."""
    return ">" + "".join(each.kind.value for each in run if isinstance(each.kind, Primitive))


BOOL, INT8, INT16, INT32, INT64, UUID = (
    *(Primitive.BOOL, Primitive.INT8, Primitive.INT16),
    *(Primitive.INT32, Primitive.INT64, Primitive.UUID),
)
STRING, TEXT, BYTES = Primitive.STRING, Primitive.TEXT, Primitive.BYTES
RECORDS = Primitive.RECORDS
_FIELD: Final = re.compile(r"(\w+) (\[)?(\w+)\]?(\?)?(?: @(\d+))?:?")


def struct_of(name: str, table: str, *, flexible: bool = True) -> Struct:
    """Return the structure that a table describes, in the notation of this module."""
    lines = [line for line in dedent(table).splitlines() if line]
    return Struct(name, _fields(lines, {}, flexible), flexible)


def _fields(lines: list[str], known: dict[str, Struct], flexible: bool) -> tuple[Field, ...]:
    """Remove the lines with the first one's indentation, and those below them, from the list."""
    fields: list[Field] = []
    indent = re.match(" *", lines[0])[0] if lines else ""  # type: ignore[index]
    while lines and re.match(f"{indent}[^ ]", lines[0]):
        for text in lines.pop(0).strip().split(", "):
            found = _FIELD.fullmatch(text)
            assert found, text
            name, array, kind, null, tag = found.groups()
            if text.endswith(":"):
                known[kind] = Struct(kind, _fields(lines, known, flexible), flexible)
            of = known[kind] if kind in known else Primitive[kind.upper()]
            default = None if tag is None else () if array else _default(of)
            number = None if tag is None else int(tag)
            fields.append(Field(name, of, bool(array), bool(null), number, default))
    return tuple(fields)


def _default(kind: Primitive | Struct) -> object:
    """Return the value of a tagged field that a message omits: -1 for numbers."""
    if isinstance(kind, Struct):
        return {field_.name: -1 for field_ in kind.fields}
    return False if kind is BOOL else -1


REQUEST_HEADER_V1 = struct_of(
    "RequestHeader v1",
    "request_api_key int16, request_api_version int16, correlation_id int32, client_id string?",
    flexible=False,
)
REQUEST_HEADER_V2 = struct_of(
    "RequestHeader v2",
    """
    request_api_key int16, request_api_version int16, correlation_id int32
    client_id legacy_string?
    """,
)
RESPONSE_HEADER_V0 = struct_of("ResponseHeader v0", "correlation_id int32", flexible=False)
RESPONSE_HEADER_V1 = struct_of("ResponseHeader v1", "correlation_id int32")


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One version of an API.

    Args:
        response_header: Without tagged fields for ApiVersions, whose response a client must read
            before it knows the broker's versions.
    """

    name: str
    api_key: int
    version: int
    request: Struct
    response: Struct
    response_header: Struct = RESPONSE_HEADER_V1

    @property
    def request_header(self) -> Struct:
        return REQUEST_HEADER_V2 if self.request.flexible else REQUEST_HEADER_V1

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


def _message(
    title: str,
    api_key: int,
    request: str,
    response: str,
    *,
    versioned: bool = False,
    flexible: bool = True,
    response_header: Struct = RESPONSE_HEADER_V1,
) -> Message:
    """Return a message from its title; `versioned` adds the version to its name in errors."""
    name, version = title.split(" v")
    suffix = f" v{version}" if versioned else ""
    return Message(
        name,
        api_key,
        int(version),
        struct_of(f"{name}Request{suffix}", request, flexible=flexible),
        struct_of(f"{name}Response{suffix}", response, flexible=flexible),
        response_header if flexible else RESPONSE_HEADER_V0,
    )


# Connections

API_VERSIONS_V0 = _message(
    "ApiVersions v0",
    18,
    "",
    """
    error_code int16
    api_keys [ApiVersion]:
        api_key int16, min_version int16, max_version int16
    """,
    versioned=True,
    flexible=False,
)
API_VERSIONS_V3, API_VERSIONS_V4 = (
    _message(
        f"ApiVersions v{version}",
        18,
        "client_software_name string, client_software_version string",
        """
        error_code int16
        api_keys [ApiVersion]:
            api_key int16, min_version int16, max_version int16
        throttle_time_ms int32
        supported_features [SupportedFeatureKey] @0:
            name string, min_version int16, max_version int16
        finalized_features_epoch int64 @1
        finalized_features [FinalizedFeatureKey] @2:
            name string, max_version_level int16, min_version_level int16
        zk_migration_ready bool @3
        """,
        versioned=True,
        response_header=RESPONSE_HEADER_V0,
    )
    for version in (3, 4)
)
"""Unlike v3, v4 also lists features whose lowest level is 0, such as group.version."""

SASL_HANDSHAKE = _message(
    "SaslHandshake v1",
    17,
    "mechanism string",
    "error_code int16, mechanisms [text]",
    flexible=False,
)
SASL_AUTHENTICATE = _message(
    "SaslAuthenticate v2",
    36,
    "auth_bytes bytes",
    "error_code int16, error_message text?, auth_bytes bytes, session_lifetime_ms int64",
)

# A member of a group

FIND_COORDINATOR = _message(
    "FindCoordinator v4",
    10,
    "key_type int8, coordinator_keys [string]",
    """
    throttle_time_ms int32
    coordinators [Coordinator]:
        key string, node_id int32, host string, port int32, error_code int16, error_message text?
    """,
)
CONSUMER_GROUP_HEARTBEAT = _message(
    "ConsumerGroupHeartbeat v1",
    68,
    """
    group_id string, member_id string, member_epoch int32, instance_id string?, rack_id string?
    rebalance_timeout_ms int32, subscribed_topic_names [string]?, subscribed_topic_regex string?
    server_assignor string?
    topic_partitions [TopicPartitions]?:
        topic_id uuid, partitions [int32]
    """,
    """
    throttle_time_ms int32, error_code int16, error_message text?
    member_id string?, member_epoch int32, heartbeat_interval_ms int32
    assignment Assignment?:
        topic_partitions [TopicPartitions]:
            topic_id uuid, partitions [int32]
    """,
)


def _offset_commit(version: int, topic_key: str) -> Message:
    return _message(
        f"OffsetCommit v{version}",
        8,
        f"""
        group_id string, generation_id_or_member_epoch int32, member_id string
        group_instance_id string?
        topics [OffsetCommitRequestTopic]:
            {topic_key}
            partitions [OffsetCommitRequestPartition]:
                partition_index int32, committed_offset int64, committed_leader_epoch int32
                committed_metadata string?
        """,
        f"""
        throttle_time_ms int32
        topics [OffsetCommitResponseTopic]:
            {topic_key}
            partitions [OffsetCommitResponsePartition]:
                partition_index int32, error_code int16
        """,
        versioned=True,
    )


def _offset_fetch(version: int, topic_key: str) -> Message:
    return _message(
        f"OffsetFetch v{version}",
        9,
        f"""
        groups [OffsetFetchRequestGroup]:
            group_id string, member_id string?, member_epoch int32
            topics [OffsetFetchRequestTopics]?:
                {topic_key}, partition_indexes [int32]
        require_stable bool
        """,
        f"""
        throttle_time_ms int32
        groups [OffsetFetchResponseGroup]:
            group_id string
            topics [OffsetFetchResponseTopics]:
                {topic_key}
                partitions [OffsetFetchResponsePartitions]:
                    partition_index int32, committed_offset int64, committed_leader_epoch int32
                    metadata string?, error_code int16
            error_code int16
        """,
        versioned=True,
    )


_BY_NAME, _BY_ID = "name string", "topic_id uuid"
OFFSET_COMMIT_V9, OFFSET_COMMIT_V10 = _offset_commit(9, _BY_NAME), _offset_commit(10, _BY_ID)
OFFSET_FETCH_V9, OFFSET_FETCH_V10 = _offset_fetch(9, _BY_NAME), _offset_fetch(10, _BY_ID)

# Topics

METADATA = _message(
    "Metadata v12",
    3,
    """
    topics [MetadataRequestTopic]?:
        topic_id uuid, name string?
    allow_auto_topic_creation bool, include_topic_authorized_operations bool
    """,
    """
    throttle_time_ms int32
    brokers [MetadataResponseBroker]:
        node_id int32, host string, port int32, rack string?
    cluster_id string?, controller_id int32
    topics [MetadataResponseTopic]:
        error_code int16, name string?, topic_id uuid, is_internal bool
        partitions [MetadataResponsePartition]:
            error_code int16, partition_index int32, leader_id int32, leader_epoch int32
            replica_nodes [int32], isr_nodes [int32], offline_replicas [int32]
        topic_authorized_operations int32
    """,
)
LIST_OFFSETS = _message(
    "ListOffsets v7",
    2,
    """
    replica_id int32, isolation_level int8
    topics [ListOffsetsRequestTopic]:
        name string
        partitions [ListOffsetsRequestPartition]:
            partition_index int32, current_leader_epoch int32, timestamp int64
    """,
    """
    throttle_time_ms int32
    topics [ListOffsetsResponseTopic]:
        name string
        partitions [ListOffsetsResponsePartition]:
            partition_index int32, error_code int16, timestamp int64, offset int64
            leader_epoch int32
    """,
)
OFFSET_FOR_LEADER_EPOCH = _message(
    "OffsetForLeaderEpoch v4",
    23,
    """
    replica_id int32
    topics [OffsetForLeaderTopic]:
        topic string
        partitions [OffsetForLeaderPartition]:
            partition int32, current_leader_epoch int32, leader_epoch int32
    """,
    """
    throttle_time_ms int32
    topics [OffsetForLeaderTopicResult]:
        topic string
        partitions [EpochEndOffset]:
            error_code int16, partition int32, leader_epoch int32, end_offset int64
    """,
)
FETCH = _message(
    "Fetch v16",
    1,
    """
    max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8
    session_id int32, session_epoch int32
    topics [FetchTopic]:
        topic_id uuid
        partitions [FetchPartition]:
            partition int32, current_leader_epoch int32, fetch_offset int64
            last_fetched_epoch int32, log_start_offset int64, partition_max_bytes int32
    forgotten_topics_data [ForgottenTopic]:
        topic_id uuid, partitions [int32]
    rack_id string
    """,
    """
    throttle_time_ms int32, error_code int16, session_id int32
    responses [FetchableTopicResponse]:
        topic_id uuid
        partitions [PartitionData]:
            partition_index int32, error_code int16
            high_watermark int64, last_stable_offset int64, log_start_offset int64
            aborted_transactions [AbortedTransaction]?:
                producer_id int64, first_offset int64
            preferred_read_replica int32, records records?
            diverging_epoch EpochEndOffset @0:
                epoch int32, end_offset int64
            current_leader LeaderIdAndEpoch @1:
                leader_id int32, leader_epoch int32
            snapshot_id SnapshotId @2:
                end_offset int64, epoch int32
    node_endpoints [NodeEndpoint] @0:
        node_id int32, host string, port int32, rack string?
    """,
)
"""With topic ids, and leaders that moved (KIP-951)."""

# Operators

CONSUMER_GROUP_DESCRIBE = _message(
    "ConsumerGroupDescribe v1",
    69,
    "group_ids [string], include_authorized_operations bool",
    """
    throttle_time_ms int32
    groups [DescribedGroup]:
        error_code int16, error_message text?, group_id string, group_state string
        group_epoch int32, assignment_epoch int32, assignor_name string
        members [Member]:
            member_id string, instance_id string?, rack_id string?, member_epoch int32
            client_id string, client_host string
            subscribed_topic_names [string], subscribed_topic_regex string?
            assignment Assignment:
                topic_partitions [TopicPartitions]:
                    topic_id uuid, topic_name string, partitions [int32]
            target_assignment Assignment, member_type int8
        authorized_operations int32
    """,
)
LIST_GROUPS = _message(
    "ListGroups v5",
    16,
    "states_filter [string], types_filter [string]",
    """
    throttle_time_ms int32, error_code int16
    groups [ListedGroup]:
        group_id string, protocol_type string, group_state string, group_type string
    """,
)
DESCRIBE_CONFIGS = _message(
    "DescribeConfigs v4",
    32,
    """
    resources [DescribeConfigsResource]:
        resource_type int8, resource_name string, configuration_keys [string]?
    include_synonyms bool, include_documentation bool
    """,
    """
    throttle_time_ms int32
    results [DescribeConfigsResult]:
        error_code int16, error_message text?, resource_type int8, resource_name string
        configs [DescribeConfigsResourceResult]:
            name string, value string?, read_only bool, config_source int8, is_sensitive bool
            synonyms [DescribeConfigsSynonym]:
                name string, value string?, source int8
            config_type int8, documentation string?
    """,
)
INCREMENTAL_ALTER_CONFIGS = _message(
    "IncrementalAlterConfigs v1",
    44,
    """
    resources [AlterConfigsResource]:
        resource_type int8, resource_name string
        configs [AlterableConfig]:
            name string, config_operation int8, value string?
    validate_only bool
    """,
    """
    throttle_time_ms int32
    responses [AlterConfigsResourceResponse]:
        error_code int16, error_message text?, resource_type int8, resource_name string
    """,
)
LEAVE_GROUP = _message(
    "LeaveGroup v5",
    13,
    """
    group_id string
    members [MemberIdentity]:
        member_id string, group_instance_id string?, reason string?
    """,
    """
    throttle_time_ms int32, error_code int16
    members [MemberResponse]:
        member_id string, group_instance_id string?, error_code int16
    """,
)
DELETE_GROUPS = _message(
    "DeleteGroups v2",
    42,
    "groups_names [string]",
    """
    throttle_time_ms int32
    results [DeletableGroupResult]:
        group_id string, error_code int16
    """,
)
OFFSET_DELETE = _message(
    "OffsetDelete v0",
    47,
    """
    group_id string
    topics [OffsetDeleteRequestTopic]:
        name string
        partitions [OffsetDeleteRequestPartition]:
            partition_index int32
    """,
    """
    error_code int16, throttle_time_ms int32
    topics [OffsetDeleteResponseTopic]:
        name string
        partitions [OffsetDeleteResponsePartition]:
            partition_index int32, error_code int16
    """,
    flexible=False,
)

# Groups of the classic protocol

DESCRIBE_GROUPS = _message(
    "DescribeGroups v6",
    15,
    "groups [string], include_authorized_operations bool",
    """
    throttle_time_ms int32
    groups [DescribedGroup]:
        error_code int16, error_message text?, group_id string, group_state string
        protocol_type string, protocol_data string
        members [DescribedGroupMember]:
            member_id string, group_instance_id string?, client_id string, client_host string
            member_metadata bytes, member_assignment bytes
        authorized_operations int32
    """,
)
