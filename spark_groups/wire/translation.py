"""The group's requests and responses as wire values, and back.

The values of `group.member.messages` always use topic ids. Where the wire takes names, the caller
provides fresh metadata; partitions of deleted topics are not sent, and get UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from spark_groups.errors import ErrorCode, ProtocolError
from spark_groups.group.member.messages import (
    DescribedMember,
    DescribeGroupRequest,
    DescribeGroupResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Node,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    OFFSET_COMMIT_V9,
    OFFSET_COMMIT_V10,
    OFFSET_FETCH_V9,
    OFFSET_FETCH_V10,
    Message,
)
from spark_groups.wire.topic_metadata import ClusterMetadata

GROUP_KEY_TYPE: Final = 0


@dataclass(frozen=True, slots=True)
class Translation:
    """The wire form of one kind of request.

    Args:
        message: The wire message, with topic ids if it has topics.
        message_by_name: Its older version with topic names, if there is one.
        to_wire: From the request to wire values; with names if there is metadata, else with ids.
        from_wire: From wire values, the request and the same metadata to the response.
    """

    message: Message
    message_by_name: Message | None
    to_wire: Callable[[Any, ClusterMetadata | None], Values]
    from_wire: Callable[[Values, Any, ClusterMetadata | None], Any]


def single(groups: tuple[Values, ...], key: str, group_id: str) -> Values:
    """Return the one group of a response.

    Raises:
        ProtocolError: It is missing, or is not the only one.
    """
    if len(groups) != 1 or groups[0][key] != group_id:
        raise ProtocolError(
            f"the answer is about {[group[key] for group in groups]}, not about {group_id!r}"
        )
    return groups[0]


def assignment_of(topic_partitions: Iterable[Values]) -> Assignment:
    """Read the partitions of an assignment.

    Raises:
        ProtocolError: A partition index is negative.
    """
    partitions = frozenset(
        TopicIdPartition(topic_partition["topic_id"], index)
        for topic_partition in topic_partitions
        for index in topic_partition["partitions"]
    )
    if any(each.partition < 0 for each in partitions):
        raise ProtocolError("an assignment with a negative partition index")
    return Assignment(partitions)


# ConsumerGroupHeartbeat


def _heartbeat_to_wire(request: HeartbeatRequest, _: ClusterMetadata | None) -> Values:
    # The fields of a request have the names of the message's fields.
    values = {field_.name: getattr(request, field_.name) for field_ in fields(request)}
    owned = request.topic_partitions
    if owned is not None:
        values["topic_partitions"] = [
            {"topic_id": topic_id, "partitions": indexes}
            for topic_id, indexes in owned.by_topic().items()
        ]
    return values


def _heartbeat_from_wire(
    values: Values, _request: HeartbeatRequest, _metadata: ClusterMetadata | None
) -> HeartbeatResponse:
    assignment = values.pop("assignment")
    return HeartbeatResponse(
        **values,
        assignment=None if assignment is None else assignment_of(assignment["topic_partitions"]),
    )


# OffsetCommit and OffsetFetch


def _by_topic(
    partitions: Iterable[TopicIdPartition], metadata: ClusterMetadata | None
) -> list[tuple[Values, list[TopicIdPartition]]]:
    """Group partitions by topic, each with its key on the wire, without ids that have no name."""
    grouped: dict[TopicId, list[TopicIdPartition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic_id, []).append(partition)
    if metadata is None:
        return [({"topic_id": topic_id}, each) for topic_id, each in grouped.items()]
    return [
        ({"name": metadata.topics[topic_id].topic.name}, each)
        for topic_id, each in grouped.items()
        if topic_id in metadata.topics
    ]


def _answers(
    topics: Iterable[Values], metadata: ClusterMetadata | None
) -> Iterable[tuple[TopicIdPartition, Values]]:
    """Yield the answer for each partition, without topics that were not requested."""
    known = {} if metadata is None else metadata.topics
    ids = {each.topic.name: topic_id for topic_id, each in known.items()}
    for topic in topics:
        topic_id = topic["topic_id"] if metadata is None else ids.get(topic["name"])
        if topic_id is not None:
            for answer in topic["partitions"]:
                yield TopicIdPartition(topic_id, answer["partition_index"]), answer


def _gone(
    partitions: Iterable[TopicIdPartition], metadata: ClusterMetadata | None
) -> dict[TopicIdPartition, int]:
    """Return error codes of partitions that were not sent: their topic has no name any more."""
    if metadata is None:
        return {}
    gone = ErrorCode.UNKNOWN_TOPIC_ID.value
    return {
        partition: metadata.id_errors.get(partition.topic_id, gone)
        for partition in partitions
        if partition.topic_id not in metadata.topics
    }


def _check_complete(asked: Iterable[TopicIdPartition], answered: Iterable[Any]) -> None:
    missing = set(asked).difference(answered)
    if missing:
        raise ProtocolError(
            f"{len(missing)} partitions are missing in the answer, among them {min(missing)}"
        )


def _commit_to_wire(request: OffsetCommitRequest, metadata: ClusterMetadata | None) -> Values:
    return {
        "group_id": request.group_id,
        "generation_id_or_member_epoch": request.member_epoch,
        "member_id": request.member_id,
        "group_instance_id": request.instance_id,
        "topics": [
            {
                **key,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "committed_offset": committed.committed_offset,
                        "committed_leader_epoch": committed.leader_epoch,
                        "committed_metadata": committed.metadata,
                    }
                    for each in partitions
                    for committed in (request.offsets[each],)
                ],
            }
            for key, partitions in _by_topic(request.offsets, metadata)
        ],
    }


def _commit_from_wire(
    values: Values, request: OffsetCommitRequest, metadata: ClusterMetadata | None
) -> OffsetCommitResponse:
    errors = _gone(request.offsets, metadata)
    for each, answer in _answers(values["topics"], metadata):
        if each in request.offsets:
            errors[each] = answer["error_code"]
    _check_complete(request.offsets, errors)
    return OffsetCommitResponse(errors=errors)


def _fetch_to_wire(request: OffsetFetchRequest, metadata: ClusterMetadata | None) -> Values:
    return {
        "groups": [
            {
                "group_id": request.group_id,
                "member_id": request.member_id,
                "member_epoch": request.member_epoch,
                "topics": [
                    {**key, "partition_indexes": [each.partition for each in partitions]}
                    for key, partitions in _by_topic(request.partitions, metadata)
                ],
            }
        ],
        "require_stable": True,
    }


def fetch_all_to_wire(group_id: str) -> Values:
    """Request every committed offset of a group, without a member."""
    asked = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
    return {"groups": [asked], "require_stable": True}


def _fetch_from_wire(
    values: Values, request: OffsetFetchRequest, metadata: ClusterMetadata | None
) -> OffsetFetchResponse:
    group = single(values["groups"], "group_id", request.group_id)
    if group["error_code"]:
        return OffsetFetchResponse(error_code=group["error_code"])
    gone = {key: PartitionError(code) for key, code in _gone(request.partitions, metadata).items()}
    answers = gone | fetched_offsets(group["topics"], metadata)
    _check_complete(request.partitions, answers)
    return OffsetFetchResponse(
        answers={key: answer for key, answer in answers.items() if key in request.partitions}
    )


def fetched_offsets(
    topics: Iterable[Values], metadata: ClusterMetadata | None
) -> dict[TopicIdPartition, OffsetAndMetadata | PartitionError]:
    """Read the topics of an OffsetFetch response.

    Args:
        topics: Their wire values.
        metadata: The topics whose names were sent; None if ids were.
    """
    return {
        key: PartitionError(answer["error_code"])
        if answer["error_code"]
        else OffsetAndMetadata(
            answer["committed_offset"], answer["metadata"] or "", answer["committed_leader_epoch"]
        )
        for key, answer in _answers(topics, metadata)
    }


# FindCoordinator and ConsumerGroupDescribe


def _coordinator_to_wire(request: FindCoordinatorRequest, _: ClusterMetadata | None) -> Values:
    return {"key_type": GROUP_KEY_TYPE, "coordinator_keys": (request.group_id,)}


def _coordinator_from_wire(
    values: Values, request: FindCoordinatorRequest, _: ClusterMetadata | None
) -> FindCoordinatorResponse:
    answer = single(values["coordinators"], "key", request.group_id)
    if answer["error_code"]:
        return FindCoordinatorResponse(
            error_code=answer["error_code"], error_message=answer["error_message"]
        )
    return FindCoordinatorResponse(
        coordinator=Node(answer["node_id"], answer["host"], answer["port"])
    )


def _describe_to_wire(request: DescribeGroupRequest, _: ClusterMetadata | None) -> Values:
    return {
        "group_ids": (request.group_id,),
        "include_authorized_operations": request.include_authorized_operations,
    }


def _describe_from_wire(
    values: Values, request: DescribeGroupRequest, _: ClusterMetadata | None
) -> DescribeGroupResponse:
    group = single(values["groups"], "group_id", request.group_id)
    names: dict[TopicId, str] = {}
    members = []
    for member in group.pop("members"):
        assigned = member.pop("assignment")["topic_partitions"]
        target = member.pop("target_assignment")["topic_partitions"]
        names.update((each["topic_id"], each["topic_name"]) for each in (*assigned, *target))
        members.append(
            DescribedMember(
                **member,
                assignment=assignment_of(assigned),
                target_assignment=assignment_of(target),
            )
        )
    return DescribeGroupResponse(**group, members=tuple(members), topic_names=names)


TRANSLATIONS: Final[Mapping[type, Translation]] = MappingProxyType(
    {
        HeartbeatRequest: Translation(
            CONSUMER_GROUP_HEARTBEAT, None, _heartbeat_to_wire, _heartbeat_from_wire
        ),
        OffsetCommitRequest: Translation(
            OFFSET_COMMIT_V10, OFFSET_COMMIT_V9, _commit_to_wire, _commit_from_wire
        ),
        OffsetFetchRequest: Translation(
            OFFSET_FETCH_V10, OFFSET_FETCH_V9, _fetch_to_wire, _fetch_from_wire
        ),
        DescribeGroupRequest: Translation(
            CONSUMER_GROUP_DESCRIBE, None, _describe_to_wire, _describe_from_wire
        ),
        FindCoordinatorRequest: Translation(
            FIND_COORDINATOR, None, _coordinator_to_wire, _coordinator_from_wire
        ),
    }
)
