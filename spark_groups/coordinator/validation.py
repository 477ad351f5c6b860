"""What a heartbeat must look like before anybody looks at its group.

Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid; the KIP's list under
"Request Validation" says the same, but for two places where it contradicts itself: a join without
a member id is how ids are asked for, and epoch -2 is how a static member leaves for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_groups.coordinator.effects import Surroundings
from spark_groups.coordinator.profile import MemberIds, Profile
from spark_groups.coordinator.refusal import RefusedError
from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
)
from spark_groups.types import NO_PARTITIONS

CLIENT_MEMBER_ID_VERSION: Final = 1
"""The first version of ConsumerGroupHeartbeat whose members make their ids (KIP-1082)."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One sentence about requests.

    Args:
        is_broken: Whether a request breaks it.
        message: What the member is told then.
    """

    is_broken: Callable[[HeartbeatRequest], bool]
    message: str


def _joins(request: HeartbeatRequest) -> bool:
    return request.member_epoch == JOIN_GROUP_MEMBER_EPOCH


_MEMBER_ID: Final = _Rule(lambda request: not request.member_id, "MemberId can't be empty.")
_RULES: Final = (
    _Rule(lambda request: not request.group_id, "GroupId can't be empty."),
    _Rule(lambda request: request.instance_id == "", "InstanceId can't be empty."),
    _Rule(lambda request: request.rack_id == "", "RackId can't be empty."),
    _Rule(
        lambda request: _joins(request) and request.rebalance_timeout_ms == -1,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    _Rule(
        lambda request: _joins(request) and request.topic_partitions != NO_PARTITIONS,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    _Rule(
        lambda request: (
            _joins(request)
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
        ),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    _Rule(
        lambda request: (
            request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None
        ),
        "InstanceId can't be null.",
    ),
    _Rule(
        lambda request: request.member_epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        "MemberEpoch is invalid.",
    ),
)


def check(request: HeartbeatRequest, profile: Profile, around: Surroundings) -> None:
    """Refuse a heartbeat that no group would take.

    Args:
        request: The heartbeat.
        profile: Which coordinator it was sent to.
        around: With the version of the request and the assignors there are.

    Raises:
        RefusedError: INVALID_REQUEST or UNSUPPORTED_ASSIGNOR; the first rule that is broken counts.
    """
    for rule in (_MEMBER_ID, *_RULES) if _needs_id(request, profile, around) else _RULES:
        if rule.is_broken(request):
            raise RefusedError(ErrorCode.INVALID_REQUEST, rule.message)
    assignors = around.settings.broker.assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported."
            f" Supported assignors: {', '.join(assignors)}.",
        )


def _needs_id(request: HeartbeatRequest, profile: Profile, around: Surroundings) -> bool:
    members_make_ids = (
        profile.member_ids is MemberIds.CLIENT and around.api_version >= CLIENT_MEMBER_ID_VERSION
    )
    return members_make_ids or (
        request.member_epoch > 0 or request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH
    )
