"""Requests and responses of the design for Kafka 0.9, as frozen values.

Field names are those of the design ("Request formats"), in this project's spelling.
ConsumerMetadata is FindCoordinator today. OffsetCommit v1 is that of `group.member.messages`, with
the consumer id as member id, and the group's generation id as member epoch.

Source: Kafka 0.9 Consumer Rewrite Design, "Request formats" and "Configs".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from spark_groups.group.member.embedded import NO_GENERATION
from spark_groups.group.member.messages import OffsetCommitRequest, OffsetFetchRequest
from spark_groups.types import TopicPartition
from spark_groups.values import dataclass


class DesignErrorCode(IntEnum):
    """The design's error codes, with the numbers of the codes that replaced them.

    The design has no code for a coordinator whose write failed, and calls its code for a join
    during the catch-up "probably IllegalProtocolState", which has no number in Kafka.
    """

    ILLEGAL_PROTOCOL_STATE = -9
    NONE = 0
    COORDINATOR_STARTUP_NOT_COMPLETE = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR_FOR_GROUP = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_PARTITIONING_STRATEGY = 23
    UNKNOWN_PARTITIONING_STRATEGY = 24
    UNKNOWN_CONSUMER = 25
    SESSION_TIMEOUT_TOO_HIGH = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignJoinGroupRequest:
    """JoinGroup of the design: the coordinator assigns, so there is no SyncGroup.

    Args:
        session_timeout_ms: How long the coordinator waits for a heartbeat, or for the join.
        topics: The subscription.
        consumer_id: "" at first, and for a consumer that does not send the id it was assigned.
        partition_assignment_strategy: The friendly name of a strategy of the brokers.
    """

    group_id: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    consumer_id: str = ""
    partition_assignment_strategy: str = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignJoinGroupResponse:
    """JoinGroup response of the design, with the partitions to own."""

    error_code: int = 0
    group_generation_id: int = NO_GENERATION
    consumer_id: str = ""
    partitions_to_own: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignHeartbeatRequest:
    """Heartbeat of the design."""

    group_id: str
    group_generation_id: int
    consumer_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignHeartbeatResponse:
    """Heartbeat response of the design."""

    error_code: int = 0


LOADING_ERRORS: Final[Mapping[type, int]] = {
    DesignHeartbeatRequest: DesignErrorCode.COORDINATOR_STARTUP_NOT_COMPLETE,
    DesignJoinGroupRequest: DesignErrorCode.ILLEGAL_PROTOCOL_STATE,
    OffsetCommitRequest: DesignErrorCode.COORDINATOR_STARTUP_NOT_COMPLETE,
    OffsetFetchRequest: DesignErrorCode.COORDINATOR_STARTUP_NOT_COMPLETE,
}
"""The answers of a coordinator that catches up, by request.

"Co-ordinator" (3) has the code for starting up in JoinGroup responses too; the section about
failover, which gives a reason, calls such a join illegal, and wins.
"""
