"""The wire messages this project speaks: one table for each request and response.

Names and order are those of Kafka's own schemas (clients/src/main/resources/common/message), in
snake case. Only the versions that Kafka 4.0 to 4.4 have in common are here, and OffsetCommit and
OffsetFetch v10 beside their v9, because topic ids come with v10 (Kafka 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Primitive(Enum):
    """A field that is not a structure; its value is what `struct` calls the fixed-width ones."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    STRING = "compact or legacy, as the structure is"
    LEGACY_STRING = "legacy, wherever it is"
    TEXT = "a string for people: what could move a terminal's cursor is replaced when it is read"
    BYTES = "compact, in flexible structures only"
    RECORDS = "compact or null; a part of the frame itself, not a copy, if that is a memoryview"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure.

    Args:
        name: Kafka's name in snake case.
        kind: A primitive, or the structure it is made of.
        array: Whether it is an array of `kind`.
        nullable: Whether the field itself (never an element of it) may be null.
        tag: Its tag, if it is a tagged field; such fields are read and never written.
        default: What a tagged field is when a message lacks it.
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
        name: What error messages call it.
        fields: Its fields; the tagged ones last.
        flexible: Whether it has compact lengths and tagged fields.
    """

    name: str
    fields: tuple[Field, ...]
    flexible: bool = True


STRINGS: Final = frozenset({Primitive.STRING, Primitive.LEGACY_STRING, Primitive.TEXT})
"""The kinds that are strings on the wire."""


def is_fixed(spec: Field) -> bool:
    """Say whether a field goes into a run of fixed-width ones; a uuid needs a conversion."""
    return isinstance(spec.kind, Primitive) and len(spec.kind.value) == 1 and not spec.array


def formats(run: list[Field]) -> str:
    """Return what `struct` calls a run of fixed-width fields."""
    return ">" + "".join(each.kind.value for each in run if isinstance(each.kind, Primitive))


BOOL, INT8, INT16, INT32, INT64 = (
    Primitive.BOOL,
    Primitive.INT8,
    Primitive.INT16,
    Primitive.INT32,
    Primitive.INT64,
)
UUID, STRING, TEXT, BYTES = Primitive.UUID, Primitive.STRING, Primitive.TEXT, Primitive.BYTES
RECORDS = Primitive.RECORDS

REQUEST_HEADER_V1 = Struct(
    "RequestHeader v1",
    (
        Field("request_api_key", INT16),
        Field("request_api_version", INT16),
        Field("correlation_id", INT32),
        Field("client_id", STRING, nullable=True),
    ),
    flexible=False,
)
REQUEST_HEADER_V2 = Struct(
    "RequestHeader v2",
    (
        Field("request_api_key", INT16),
        Field("request_api_version", INT16),
        Field("correlation_id", INT32),
        Field("client_id", Primitive.LEGACY_STRING, nullable=True),
    ),
)
RESPONSE_HEADER_V0 = Struct("ResponseHeader v0", (Field("correlation_id", INT32),), flexible=False)
RESPONSE_HEADER_V1 = Struct("ResponseHeader v1", (Field("correlation_id", INT32),))


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One API at one version.

    Args:
        name: Kafka's name of the API.
        api_key: Kafka's number of it.
        version: The version.
        request: Table of the request.
        response: Table of the response.
        response_header: Table of the response's header; without tagged fields for ApiVersions,
            whose answer a client must be able to read before it knows the broker's versions.
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


_API_VERSION_FIELDS = (
    Field("api_key", INT16),
    Field("min_version", INT16),
    Field("max_version", INT16),
)
API_VERSIONS_V0 = Message(
    "ApiVersions",
    18,
    0,
    Struct("ApiVersionsRequest v0", (), flexible=False),
    Struct(
        "ApiVersionsResponse v0",
        (
            Field("error_code", INT16),
            Field("api_keys", Struct("ApiVersion", _API_VERSION_FIELDS, False), array=True),
        ),
        flexible=False,
    ),
    response_header=RESPONSE_HEADER_V0,
)


def _api_versions(version: int) -> Message:
    supported = Struct(
        "SupportedFeatureKey",
        (Field("name", STRING), Field("min_version", INT16), Field("max_version", INT16)),
    )
    finalized = Struct(
        "FinalizedFeatureKey",
        (
            Field("name", STRING),
            Field("max_version_level", INT16),
            Field("min_version_level", INT16),
        ),
    )
    return Message(
        "ApiVersions",
        18,
        version,
        Struct(
            f"ApiVersionsRequest v{version}",
            (Field("client_software_name", STRING), Field("client_software_version", STRING)),
        ),
        Struct(
            f"ApiVersionsResponse v{version}",
            (
                Field("error_code", INT16),
                Field("api_keys", Struct("ApiVersion", _API_VERSION_FIELDS), array=True),
                Field("throttle_time_ms", INT32),
                Field("supported_features", supported, array=True, tag=0, default=()),
                Field("finalized_features_epoch", INT64, tag=1, default=-1),
                Field("finalized_features", finalized, array=True, tag=2, default=()),
                Field("zk_migration_ready", BOOL, tag=3, default=False),
            ),
        ),
        response_header=RESPONSE_HEADER_V0,
    )


API_VERSIONS_V3 = _api_versions(3)
API_VERSIONS_V4 = _api_versions(4)
"""Unlike v3 it also lists features whose lowest level is 0, such as group.version."""

FIND_COORDINATOR = Message(
    "FindCoordinator",
    10,
    4,
    Struct(
        "FindCoordinatorRequest",
        (Field("key_type", INT8), Field("coordinator_keys", STRING, array=True)),
    ),
    Struct(
        "FindCoordinatorResponse",
        (
            Field("throttle_time_ms", INT32),
            Field(
                "coordinators",
                Struct(
                    "Coordinator",
                    (
                        Field("key", STRING),
                        Field("node_id", INT32),
                        Field("host", STRING),
                        Field("port", INT32),
                        Field("error_code", INT16),
                        Field("error_message", TEXT, nullable=True),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)

_TOPIC_PARTITIONS = Struct(
    "TopicPartitions", (Field("topic_id", UUID), Field("partitions", INT32, array=True))
)
CONSUMER_GROUP_HEARTBEAT = Message(
    "ConsumerGroupHeartbeat",
    68,
    1,
    Struct(
        "ConsumerGroupHeartbeatRequest",
        (
            Field("group_id", STRING),
            Field("member_id", STRING),
            Field("member_epoch", INT32),
            Field("instance_id", STRING, nullable=True),
            Field("rack_id", STRING, nullable=True),
            Field("rebalance_timeout_ms", INT32),
            Field("subscribed_topic_names", STRING, array=True, nullable=True),
            Field("subscribed_topic_regex", STRING, nullable=True),
            Field("server_assignor", STRING, nullable=True),
            Field("topic_partitions", _TOPIC_PARTITIONS, array=True, nullable=True),
        ),
    ),
    Struct(
        "ConsumerGroupHeartbeatResponse",
        (
            Field("throttle_time_ms", INT32),
            Field("error_code", INT16),
            Field("error_message", TEXT, nullable=True),
            Field("member_id", STRING, nullable=True),
            Field("member_epoch", INT32),
            Field("heartbeat_interval_ms", INT32),
            Field(
                "assignment",
                Struct("Assignment", (Field("topic_partitions", _TOPIC_PARTITIONS, array=True),)),
                nullable=True,
            ),
        ),
    ),
)

_DESCRIBED_ASSIGNMENT = Struct(
    "Assignment",
    (
        Field(
            "topic_partitions",
            Struct(
                "TopicPartitions",
                (
                    Field("topic_id", UUID),
                    Field("topic_name", STRING),
                    Field("partitions", INT32, array=True),
                ),
            ),
            array=True,
        ),
    ),
)
_DESCRIBED_MEMBER = Struct(
    "Member",
    (
        Field("member_id", STRING),
        Field("instance_id", STRING, nullable=True),
        Field("rack_id", STRING, nullable=True),
        Field("member_epoch", INT32),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("subscribed_topic_names", STRING, array=True),
        Field("subscribed_topic_regex", STRING, nullable=True),
        Field("assignment", _DESCRIBED_ASSIGNMENT),
        Field("target_assignment", _DESCRIBED_ASSIGNMENT),
        Field("member_type", INT8),
    ),
)
CONSUMER_GROUP_DESCRIBE = Message(
    "ConsumerGroupDescribe",
    69,
    1,
    Struct(
        "ConsumerGroupDescribeRequest",
        (
            Field("group_ids", STRING, array=True),
            Field("include_authorized_operations", BOOL),
        ),
    ),
    Struct(
        "ConsumerGroupDescribeResponse",
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
                        Field("group_epoch", INT32),
                        Field("assignment_epoch", INT32),
                        Field("assignor_name", STRING),
                        Field("members", _DESCRIBED_MEMBER, array=True),
                        Field("authorized_operations", INT32),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)

LIST_GROUPS = Message(
    "ListGroups",
    16,
    5,
    Struct(
        "ListGroupsRequest",
        (Field("states_filter", STRING, array=True), Field("types_filter", STRING, array=True)),
    ),
    Struct(
        "ListGroupsResponse",
        (
            Field("throttle_time_ms", INT32),
            Field("error_code", INT16),
            Field(
                "groups",
                Struct(
                    "ListedGroup",
                    (
                        Field("group_id", STRING),
                        Field("protocol_type", STRING),
                        Field("group_state", STRING),
                        Field("group_type", STRING),
                    ),
                ),
                array=True,
            ),
        ),
    ),
)
