"""Topics as the cluster has them now, and what their leaders are asked, still by name.

A leader answers ListOffsets and OffsetForLeaderEpoch alike with an offset and a leader epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import (
    ListOffsetsRequest,
    Node,
    OffsetForLeaderEpochRequest,
    TopicMetadata,
)
from spark_groups.types import TopicId, TopicIdPartition
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.messages import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, Message

NO_LEADER: Final = -1
ZERO_TOPIC_ID: Final = uuid.UUID(int=0)
_CONSUMER_REPLICA_ID: Final = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_ABSENT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value,
        ErrorCode.UNKNOWN_TOPIC_ID.value,
        ErrorCode.INCONSISTENT_TOPIC_ID.value,
    }
)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition.

    Args:
        node_id: The broker; `NO_LEADER` if there is none at the moment.
        leader_epoch: The epoch of its leadership.
    """

    node_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic, and who leads its partitions.

    Args:
        topic: Its id, name and size.
        leaders: By partition index.
    """

    topic: TopicMetadata
    leaders: Mapping[int, Leader]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One Metadata response.

    Args:
        nodes: The brokers that are alive, by id.
        topics: The topics that exist, by id.
        errors: By topic name: errors other than that the topic does not exist.
        id_errors: By topic id, of topics asked for by id: why there is no answer.
    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[TopicId, KnownTopic] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    id_errors: Mapping[TopicId, int] = field(default_factory=dict)


def metadata_to_wire(topic_names: Iterable[str] = (), topic_ids: Iterable[TopicId] = ()) -> Values:
    """Ask for topics by name or by id: a broker ignores the names if any id is there."""
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
        TopicMetadata(values["topic_id"], values["name"], len(leaders)), MappingProxyType(leaders)
    )


class LeaderAnswer(NamedTuple):
    """What a leader says of one partition; there are thousands of them for each plan.

    Args:
        offset: The offset.
        leader_epoch: The leader epoch that belongs to it.
    """

    offset: int
    leader_epoch: int


LeaderAnswers = dict[TopicIdPartition, LeaderAnswer]
Topics = Mapping[TopicId, KnownTopic]


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """How one kind of request crosses the wire to the leader of some partitions.

    Args:
        message: The wire message.
        to_wire: From the request, the partitions this leader has and their topics, fresh.
        from_wire: From wire values, the same partitions and topics: answers, and error codes.
    """

    message: Message
    to_wire: Callable[[Any, Iterable[TopicIdPartition], Topics], Values]
    from_wire: Callable[
        [Values, Iterable[TopicIdPartition], Topics],
        tuple[LeaderAnswers, dict[TopicIdPartition, int]],
    ]


def _by_name(
    partitions: Iterable[TopicIdPartition], topics: Topics
) -> dict[str, list[tuple[TopicIdPartition, Leader]]]:
    by_name: dict[str, list[tuple[TopicIdPartition, Leader]]] = {}
    for each in partitions:
        known = topics[each.topic_id]
        by_name.setdefault(known.topic.name, []).append((each, known.leaders[each.partition]))
    return by_name


def _list_offsets_to_wire(
    request: ListOffsetsRequest, partitions: Iterable[TopicIdPartition], topics: Topics
) -> Values:
    timestamp_ms = request.timestamp_ms
    return {
        "replica_id": _CONSUMER_REPLICA_ID,
        "isolation_level": _READ_COMMITTED if request.read_committed else _READ_UNCOMMITTED,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "current_leader_epoch": leader.leader_epoch,
                        "timestamp": timestamp_ms,
                    }
                    for each, leader in found
                ],
            }
            for name, found in _by_name(partitions, topics).items()
        ],
    }


def _list_offsets_from_wire(
    values: Values, partitions: Iterable[TopicIdPartition], topics: Topics
) -> tuple[LeaderAnswers, dict[TopicIdPartition, int]]:
    answers = {
        (topic["name"], each["partition_index"]): each
        for topic in values["topics"]
        for each in topic["partitions"]
    }
    return _sorted_out(answers, partitions, topics, "offset")


def _epoch_ends_to_wire(
    request: OffsetForLeaderEpochRequest, partitions: Iterable[TopicIdPartition], topics: Topics
) -> Values:
    """Ask for the ends of leader epochs; a leader that was deposed since must not answer."""
    lookups = request.lookups
    return {
        "replica_id": _CONSUMER_REPLICA_ID,
        "topics": [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": each.partition,
                        "current_leader_epoch": max(
                            leader.leader_epoch, lookups[each].current_leader_epoch
                        ),
                        "leader_epoch": lookups[each].leader_epoch,
                    }
                    for each, leader in found
                ],
            }
            for name, found in _by_name(partitions, topics).items()
        ],
    }


def _epoch_ends_from_wire(
    values: Values, partitions: Iterable[TopicIdPartition], topics: Topics
) -> tuple[LeaderAnswers, dict[TopicIdPartition, int]]:
    answers = {
        (topic["topic"], each["partition"]): each
        for topic in values["topics"]
        for each in topic["partitions"]
    }
    return _sorted_out(answers, partitions, topics, "end_offset")


def _sorted_out(
    answers: Mapping[tuple[str, int], Values],
    partitions: Iterable[TopicIdPartition],
    topics: Topics,
    offset_field: str,
) -> tuple[LeaderAnswers, dict[TopicIdPartition, int]]:
    """Return offsets and errors; a partition nothing is said of gets UNKNOWN_SERVER_ERROR."""
    found: LeaderAnswers = {}
    errors: dict[TopicIdPartition, int] = {}
    for each in partitions:
        answer = answers.get((topics[each.topic_id].topic.name, each.partition))
        if answer is None:
            errors[each] = ErrorCode.UNKNOWN_SERVER_ERROR.value
        elif answer["error_code"]:
            errors[each] = answer["error_code"]
        else:
            found[each] = LeaderAnswer(answer[offset_field], answer["leader_epoch"])
    return found, errors


LEADER_QUESTIONS: Final[Mapping[type, LeaderQuestion]] = MappingProxyType(
    {
        ListOffsetsRequest: LeaderQuestion(
            LIST_OFFSETS, _list_offsets_to_wire, _list_offsets_from_wire
        ),
        OffsetForLeaderEpochRequest: LeaderQuestion(
            OFFSET_FOR_LEADER_EPOCH, _epoch_ends_to_wire, _epoch_ends_from_wire
        ),
    }
)
"""What the leaders of partitions are asked: one wire request to each."""
