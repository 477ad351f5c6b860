"""Topics, their partitions and leaders, as a Metadata response lists them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import UNKNOWN_AUTHORIZED_OPERATIONS, Node, TopicMetadata
from spark_groups.types import TopicId
from spark_groups.wire.schemas.codec import Values

NO_LEADER: Final = -1
ZERO_TOPIC_ID: Final = uuid.UUID(int=0)
_ABSENT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value,
        ErrorCode.UNKNOWN_TOPIC_ID.value,
        ErrorCode.INCONSISTENT_TOPIC_ID.value,
    }
)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition.

    Args:
        node_id: The broker; `NO_LEADER` if there is none.
        leader_epoch: The epoch of its leadership.
    """

    node_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic, and its partitions' leaders by index.

    Args:
        authorized_operations: A bit for each AclOperation that this principal may perform, if they
            were requested.
    """

    topic: TopicMetadata
    leaders: Mapping[int, Leader]
    authorized_operations: int = UNKNOWN_AUTHORIZED_OPERATIONS


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One Metadata response.

    Args:
        nodes: The live brokers, by id.
        topics: The existing topics, by id.
        errors: By topic name, except that the topic does not exist.
        id_errors: By topic id, of topics requested by id.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[TopicId, KnownTopic] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    id_errors: Mapping[TopicId, int] = field(default_factory=dict)


def metadata_to_wire(topic_names: Iterable[str] = (), topic_ids: Iterable[TopicId] = ()) -> Values:
    """Request topics by name or by id: a broker ignores the names if there is any id."""
    return {
        "topics": [
            *({"topic_id": ZERO_TOPIC_ID, "name": name} for name in sorted(topic_names)),
            *({"topic_id": topic_id, "name": None} for topic_id in sorted(topic_ids)),
        ],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def metadata_from_wire(values: Values) -> ClusterMetadata:
    """Read a Metadata response."""
    topics: dict[TopicId, KnownTopic] = {}
    errors: dict[str, int] = {}
    id_errors: dict[TopicId, int] = {}
    for each in values["topics"]:
        error_code, name, topic_id = each["error_code"], each["name"], each["topic_id"]
        if not error_code and name is not None:
            topics[topic_id] = _known_topic(each)
        elif name is not None and error_code not in _ABSENT:
            errors[name] = error_code
        if error_code and topic_id != ZERO_TOPIC_ID:
            id_errors[topic_id] = error_code
    return ClusterMetadata(
        {
            each["node_id"]: Node(each["node_id"], each["host"], each["port"])
            for each in values["brokers"]
        },
        topics,
        errors,
        id_errors,
    )


def _known_topic(values: Values) -> KnownTopic:
    leaders = {
        each["partition_index"]: Leader(each["leader_id"], each["leader_epoch"])
        for each in values["partitions"]
    }
    return KnownTopic(
        TopicMetadata(
            values["topic_id"], values["name"], len(leaders), is_internal=values["is_internal"]
        ),
        MappingProxyType(leaders),
        values["topic_authorized_operations"],
    )
