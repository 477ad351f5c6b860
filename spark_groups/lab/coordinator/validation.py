"""What a heartbeat must look like before anybody looks at its group.

Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid; the KIP's list under
"Request Validation" says the same, but for two places where it contradicts itself: a join without
a member id is how ids are asked for, and epoch -2 is how a static member leaves for a while.
"""

from __future__ import annotations

from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.effects import Surroundings
from spark_groups.lab.coordinator.profile import MemberIds, Profile
from spark_groups.lab.coordinator.refusal import RefusedError, Rule, check_rules
from spark_groups.protocol.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    HeartbeatRequest,
)
from spark_groups.types import NO_PARTITIONS

_MEMBER_ID_VERSION: Final = 1
"""The first version of ConsumerGroupHeartbeat whose members make their ids (KIP-1082)."""
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's String.trim takes away."""


def _is_blank(text: str | None) -> bool:
    """Tell whether there is a text with nothing in it (Utils.throwIfEmptyString)."""
    return text is not None and not text.strip(_TRIMMED)


_RULES_WITH_ID: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(lambda request: _is_blank(request.member_id), "MemberId can't be empty."),
)
_RULES: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(lambda request: _is_blank(request.group_id), "GroupId can't be empty."),
    Rule(lambda request: _is_blank(request.instance_id), "InstanceId can't be empty."),
    Rule(lambda request: _is_blank(request.rack_id), "RackId can't be empty."),
    Rule(
        lambda request: (
            request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None
        ),
        "InstanceId can't be null.",
    ),
    Rule(
        lambda request: request.member_epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        "MemberEpoch is invalid.",
    ),
)
_RULES_OF_JOINS: Final[tuple[Rule[HeartbeatRequest], ...]] = (
    Rule(
        lambda request: request.rebalance_timeout_ms == -1,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    Rule(
        lambda request: request.topic_partitions != NO_PARTITIONS,
        "TopicPartitions must be empty when (re-)joining.",
    ),
    Rule(
        lambda request: (
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None
        ),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
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
    if _needs_id(request, profile, around):
        check_rules(request, _RULES_WITH_ID)
    check_rules(request, _RULES)
    if request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
        check_rules(request, _RULES_OF_JOINS)
    assignors = around.settings.broker.assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported."
            f" Supported assignors: {', '.join(assignors)}.",
        )


def _needs_id(request: HeartbeatRequest, profile: Profile, around: Surroundings) -> bool:
    if request.member_epoch > 0 or request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return True
    return profile.member_ids is MemberIds.CLIENT and around.api_version >= _MEMBER_ID_VERSION
