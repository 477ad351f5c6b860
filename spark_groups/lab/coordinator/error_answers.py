"""How each request is answered where there is nothing to say but an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_groups.lab.coordinator import messages as m
from spark_groups.protocol import messages as p


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
    m.ListGroupsRequest: _with_code(m.ListGroupsResponse),
    m.DeleteGroupsRequest: _with_code(m.DeleteGroupsResponse),
    m.LeaveGroupRequest: _with_code(m.LeaveGroupResponse),
    m.OffsetDeleteRequest: _with_code(m.OffsetDeleteResponse),
    m.KipHeartbeatRequest: _with_code(m.KipHeartbeatResponse),
    m.PrepareAssignmentRequest: _with_code(m.PrepareAssignmentResponse),
    m.InstallAssignmentRequest: _with_code(m.InstallAssignmentResponse),
}


def error_answer(request: Any, error_code: int) -> Any:
    """Return the answer to a request that says only that it failed.

    Args:
        request: Any request that a coordinator takes.
        error_code: Kafka's code.
    """
    return _ANSWERS[type(request)](request, error_code)
