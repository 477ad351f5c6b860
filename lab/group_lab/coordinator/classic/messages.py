"""Requests and responses of the classic protocol, as frozen values.

Field names are those of the schemas (org.apache.kafka.common.message). LeaveGroup, OffsetCommit and
OffsetFetch are shared with consumer groups; the member epoch of a commit is then the generation id
(GenerationIdOrMemberEpoch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from spark_groups.group.member.embedded import CONSUMER_PROTOCOL_TYPE, NO_GENERATION
from spark_groups.values import dataclass

MEMBER_ID_REQUIRED_VERSION: Final = 4
"""The JoinGroup version from which a dynamic member joins with the id that it was given."""


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """An assignor that a member supports, with its embedded metadata."""

    name: str
    metadata: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest:
    """JoinGroup v2 to v9; the versions differ in MEMBER_ID_REQUIRED (v4) and skipAssignment (v9).

    Args:
        session_timeout_ms: How long the coordinator waits for a heartbeat.
        rebalance_timeout_ms: How long it waits for the member to join a rebalance.
        member_id: "" in the first join.
        protocols: The assignors that the member supports, best first.
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = CONSUMER_PROTOCOL_TYPE
    protocols: tuple[ClassicProtocol, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, as the leader sees it: its metadata for the selected protocol."""

    member_id: str
    group_instance_id: str | None = None
    metadata: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse:
    """JoinGroup response; only the leader's has members."""

    error_code: int = 0
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest:
    """SyncGroup v0 to v5; only the leader's has assignments, by member id."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse:
    """SyncGroup response."""

    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeatRequest:
    """Heartbeat v0 to v4, of a member of the classic protocol."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeatResponse:
    """Heartbeat response."""

    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsRequest:
    """DescribeGroups v6 of one group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedClassicMember:
    """A member in the description of a classic group."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponse:
    """DescribeGroups response of one group."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    """The selected protocol, "" unless the group is stable."""
    members: tuple[DescribedClassicMember, ...] = ()
