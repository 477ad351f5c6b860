"""Groups constructed for tests of views."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from spark_groups.group.member.messages import (
    DescribedMember,
    DescribeGroupResponse,
    Node,
    OffsetAndMetadata,
    TopicMetadata,
)
from spark_groups.observation.reading import GroupReading
from spark_groups.types import Assignment, TopicIdPartition
from tests.answers import fetch_answer, list_answer

FLIGHTS = uuid.UUID("00000000-0000-0000-0000-0000000f1194")
ONE = "11111111-1111-4111-8111-111111111111"
TWO = "22222222-2222-4222-8222-222222222222"


def key(partition: int, topic_id: uuid.UUID = FLIGHTS) -> TopicIdPartition:
    """Return a partition of the topic `flights`."""
    return TopicIdPartition(topic_id, partition)


def flights(partitions: Iterable[int]) -> Assignment:
    """Return an assignment of the topic `flights`."""
    return Assignment.of({FLIGHTS: partitions})


def member(
    member_id: str,
    current: Iterable[int] = (),
    target: Iterable[int] | None = None,
    **fields: Any,
) -> DescribedMember:
    """Return a member of the topic `flights`; by default it has what it is meant to have."""
    current = tuple(current)
    defaults: dict[str, Any] = {
        "member_epoch": 7,
        "client_id": f"app-{member_id[0]}",
        "client_host": "/127.0.0.1",
        "member_type": 1,
        "subscribed_topic_names": ("flights",),
    }
    return DescribedMember(
        member_id=member_id,
        assignment=flights(current),
        target_assignment=flights(current if target is None else target),
        **(defaults | fields),
    )


def described(*members: DescribedMember, state: str = "Stable") -> DescribeGroupResponse:
    """Return a description of the group `flight-readers`."""
    return DescribeGroupResponse(
        group_id="flight-readers",
        group_state=state,
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="uniform",
        members=members,
        topic_names={FLIGHTS: "flights"} if members else {},
    )


def read(
    *members: DescribedMember,
    partitions: int = 2,
    committed: Mapping[int, int] | None = None,
    starts: Mapping[int, int] | None = None,
    ends: Mapping[int, int] | None = None,
    state: str = "Stable",
    **errors: Mapping[int, int],
) -> GroupReading:
    """Return a reading of a group of one topic; offsets that are not given are not known.

    Args:
        members: Its members.
        partitions: How many partitions the topic has.
        committed: Committed offsets by partition.
        starts: Log start offsets by partition.
        ends: Log end offsets by partition.
        state: The coordinator's word for the state.
        errors: `committed_errors`, `start_errors`, `end_errors`: error codes by partition.
    """

    def keyed(values: Mapping[int, int] | None) -> dict[TopicIdPartition, int]:
        return {key(partition): value for partition, value in (values or {}).items()}

    return GroupReading(
        description=described(*members, state=state),
        coordinator=Node(1, "127.0.0.1", 9092),
        committed=fetch_answer(
            offsets={each: OffsetAndMetadata(value) for each, value in keyed(committed).items()},
            errors=keyed(errors.get("committed_errors")),
        ).answers,
        log_starts=list_answer(offsets=keyed(starts), errors=keyed(errors.get("start_errors"))),
        log_ends=list_answer(offsets=keyed(ends), errors=keyed(errors.get("end_errors"))),
        topics=(TopicMetadata(FLIGHTS, "flights", partitions),),
    )
