"""Requests and responses of the coordinator that `group.member.messages` does not have.

They are requests of operators, group configuration, and the parts of KIP-848 that Kafka dropped.
Fields are those of the schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    ClassicHeartbeatResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from group_lab.coordinator.design_0_9.messages import (
    DesignHeartbeatRequest,
    DesignHeartbeatResponse,
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.coordinator.member import ClientAssignor
from spark_groups.group.member import messages as p
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicPartition
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsRequest:
    """ListGroups v5; an empty filter matches all."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a list."""

    group_id: str
    protocol_type: str = "consumer"
    group_state: str = ""
    group_type: str = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResponse:
    """ListGroups response."""

    error_code: int = 0
    groups: tuple[ListedGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest:
    """DeleteGroups of one group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse:
    """DeleteGroups response of one group."""

    error_code: int = 0


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member to remove, by member id or instance id."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest:
    """LeaveGroup v5 as an operator sends it."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The result for one member of a LeaveGroup request."""

    member_id: str = ""
    instance_id: str | None = None
    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse:
    """LeaveGroup response: an error of the request, or one for each member in its order."""

    error_code: int = 0
    members: tuple[LeftMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest:
    """OffsetDelete v0; topics by name."""

    group_id: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse:
    """OffsetDelete response: an error of the request, or one for each partition."""

    error_code: int = 0
    errors: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterGroupConfigRequest:
    """IncrementalAlterConfigs of a GROUP: values by name; None removes one."""

    group_id: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterGroupConfigResponse:
    """IncrementalAlterConfigs response; an error changes nothing."""

    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupConfigRequest:
    """DescribeConfigs of a GROUP."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupConfigValue:
    """A value, and its source as a DescribeConfigsResponse.ConfigSource."""

    value: str
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupConfigResponse:
    """DescribeConfigs response: the effective settings; the group need not exist."""

    error_code: int = 0
    values: Mapping[str, GroupConfigValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KipHeartbeatRequest(HeartbeatRequest):
    """ConsumerGroupHeartbeat of KIP-848, with client-side assignors."""

    client_assignors: tuple[ClientAssignor, ...] | None = None
    """The list of client-side assignors, best first; None: unchanged or not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KipHeartbeatResponse(HeartbeatResponse):
    """ConsumerGroupHeartbeat response of KIP-848.

    `assignment` is its AssignedTopicPartitions; the fields below it belong to it.
    """

    should_compute_assignment: bool = False
    """True if the member should compute the assignment for the group."""
    assignment_error: int = 0
    """The error that the assignor reported."""
    pending_topic_partitions: Assignment = NO_PARTITIONS
    """Assigned to the member, but not yet released by their previous owners."""
    metadata_version: int = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class AssignorResult:
    """What a client-side assignor gave beside partitions."""

    error: int = 0
    metadata_version: int = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class KipDescribedMember(p.DescribedMember):
    """A member in the ConsumerGroupDescribe response of KIP-848."""

    assignor_result: AssignorResult = AssignorResult()
    """Part of the assignment, once the member has the epoch of the target."""
    target_assignor_result: AssignorResult = AssignorResult()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAssignmentRequest:
    """ConsumerGroupPrepareAssignment: the chosen member requests its input."""

    group_id: str
    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMember:
    """A member in the input of a computation.

    `reason`, `metadata_version` and `metadata_bytes` are those of the selected assignor.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_ids: frozenset[TopicId] = frozenset()
    reason: int = 0
    metadata_version: int = 0
    metadata_bytes: bytes = b""
    topic_partitions: Assignment = NO_PARTITIONS
    """The target topic-partitions of the member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTopic:
    """A topic that a member subscribes to."""

    topic_id: TopicId
    topic_name: str
    num_partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAssignmentResponse:
    """ConsumerGroupPrepareAssignment response: the group as it is now."""

    error_code: int = 0
    error_message: str | None = None
    group_epoch: int = 0
    assignor_name: str = ""
    members: tuple[PreparedMember, ...] = ()
    topics: tuple[PreparedTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledMember:
    """The computed target of a member."""

    member_id: str
    partitions: Assignment = NO_PARTITIONS
    metadata_version: int = -1
    metadata_bytes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignmentRequest:
    """ConsumerGroupInstallAssignment: the result of the chosen member."""

    group_id: str
    member_id: str
    member_epoch: int
    group_epoch: int
    error: int = 0
    """The assignor's error; with one, the current target is kept."""
    members: tuple[InstalledMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignmentResponse:
    """ConsumerGroupInstallAssignment response."""

    error_code: int = 0
    error_message: str | None = None


GroupRequest = (
    HeartbeatRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | DescribeGroupRequest
    | DeleteGroupsRequest
    | LeaveGroupRequest
    | OffsetDeleteRequest
    | PrepareAssignmentRequest
    | InstallAssignmentRequest
    | JoinGroupRequest
    | SyncGroupRequest
    | ClassicHeartbeatRequest
    | DescribeGroupsRequest
    | DesignJoinGroupRequest
    | DesignHeartbeatRequest
)
"""Requests about one group, sent to its coordinator."""
CoordinatorRequest = GroupRequest | ListGroupsRequest
CoordinatorResponse = (
    HeartbeatResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | DescribeGroupResponse
    | DeleteGroupsResponse
    | LeaveGroupResponse
    | OffsetDeleteResponse
    | PrepareAssignmentResponse
    | InstallAssignmentResponse
    | JoinGroupResponse
    | SyncGroupResponse
    | ClassicHeartbeatResponse
    | DescribeGroupsResponse
    | DesignJoinGroupResponse
    | DesignHeartbeatResponse
    | ListGroupsResponse
)


def _commit(request: p.OffsetCommitRequest, error_code: int) -> p.OffsetCommitResponse:
    return p.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, error_code))


def _with_code(response: Callable[..., Any]) -> Callable[[Any, int], Any]:
    return lambda _request, error_code: response(error_code=error_code)


_ANSWERS: Final[Mapping[type, Callable[[Any, int], Any]]] = {
    p.HeartbeatRequest: _with_code(p.HeartbeatResponse),
    p.OffsetCommitRequest: _commit,
    p.OffsetFetchRequest: _with_code(p.OffsetFetchResponse),
    p.DescribeGroupRequest: lambda request, error_code: p.DescribeGroupResponse(
        group_id=request.group_id, error_code=error_code
    ),
    ListGroupsRequest: _with_code(ListGroupsResponse),
    DeleteGroupsRequest: _with_code(DeleteGroupsResponse),
    LeaveGroupRequest: _with_code(LeaveGroupResponse),
    OffsetDeleteRequest: _with_code(OffsetDeleteResponse),
    KipHeartbeatRequest: _with_code(KipHeartbeatResponse),
    PrepareAssignmentRequest: _with_code(PrepareAssignmentResponse),
    InstallAssignmentRequest: _with_code(InstallAssignmentResponse),
    JoinGroupRequest: _with_code(JoinGroupResponse),
    SyncGroupRequest: _with_code(SyncGroupResponse),
    ClassicHeartbeatRequest: _with_code(ClassicHeartbeatResponse),
    DesignJoinGroupRequest: _with_code(DesignJoinGroupResponse),
    DesignHeartbeatRequest: _with_code(DesignHeartbeatResponse),
    DescribeGroupsRequest: lambda request, error_code: DescribeGroupsResponse(
        group_id=request.group_id, error_code=error_code
    ),
}


def error_answer(request: Any, error_code: int) -> Any:
    """Return the response to any request with only an error code."""
    return _ANSWERS[type(request)](request, error_code)
