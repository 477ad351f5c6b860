"""A client's requests and their answers, in a line each; what goes without saying is left out."""

from __future__ import annotations

from collections.abc import Mapping

from lab.tests.scenarios.wording import Names, code_text
from spark_groups.group.member import messages as m
from spark_groups.types import TopicIdPartition

WORDS = {
    m.MetadataRequest: "ask for metadata",
    m.DescribeGroupRequest: "describe the group",
    m.FindCoordinatorRequest: "find the coordinator",
    m.GroupSettingsRequest: "ask for the group's settings",
    m.OffsetForLeaderEpochRequest: "ask where leader epochs end",
}


def exchange_text(
    names: Names,
    group_id: str,
    request: m.Request,
    answer: m.Response | m.RequestFailed,
    *,
    in_any_case: bool = False,
) -> list[str]:
    """Return a request and its answer, nothing if they are of no interest.

    Heartbeats without changes on either side are left out, and so are requests about the cluster.

    Args:
        names: How topics and epochs are shown.
        group_id: The group.
        request: The request.
        answer: What came back.
        in_any_case: True if it is always of interest.
    """
    match request, answer:
        case _, m.RequestFailed(reason=reason):
            return [f"{asked(names, group_id, request)} -> no answer: {reason}"]
        case m.HeartbeatRequest(), m.HeartbeatResponse():
            is_news = answer.error_code or answer.assignment is not None
            is_same = answer.member_epoch == request.member_epoch
            if _is_plain(request) and not is_news and is_same and not in_any_case:
                return []
            said = _heartbeat_answer(names, group_id, answer)
        case m.OffsetCommitRequest(), m.OffsetCommitResponse(errors=errors):
            said = _codes(names, errors)
        case m.OffsetFetchRequest(), m.OffsetFetchResponse():
            said = _fetched(names, answer)
        case _ if not in_any_case:
            return []
        case _:
            said = _code_of(answer)
    return [f"{asked(names, group_id, request)} -> {said}"]


def asked(names: Names, group_id: str, request: m.Request) -> str:
    """Return a request in words."""
    match request:
        case m.HeartbeatRequest():
            return _heartbeat(names, group_id, request)
        case m.OffsetCommitRequest(offsets=offsets):
            listed = ", ".join(
                f"{_name(names, key)} {offsets[key].committed_offset}" for key in sorted(offsets)
            )
            return f"commit {listed} at epoch {names.epoch_out(group_id, request.member_epoch)}"
        case m.OffsetFetchRequest(partitions=partitions):
            epoch = names.epoch_out(group_id, request.member_epoch)
            return f"fetch {names.partitions(partitions)} at epoch {epoch}"
        case m.ListOffsetsRequest(partitions=partitions):
            return f"offsets of {names.partitions(partitions)}"
        case _:
            return WORDS.get(type(request), type(request).__name__)


def _code_of(answer: m.Response | m.RequestFailed) -> str:
    codes = [*getattr(answer, "errors", {}).values()]
    codes += m.found_and_failed(getattr(answer, "answers", {}))[1].values()
    return code_text(getattr(answer, "error_code", 0) or next(iter(codes), 0))


def _is_plain(request: m.HeartbeatRequest) -> bool:
    return (
        request.member_epoch > 0
        and request.topic_partitions is None
        and request.rebalance_timeout_ms < 0
    )


def _heartbeat(names: Names, group_id: str, request: m.HeartbeatRequest) -> str:
    verb = {0: "join", -1: "leave", -2: "leave for a moment"}.get(request.member_epoch)
    words = [f"{verb} as {request.member_id}" if verb else "heartbeat"]
    if verb is None:
        words.append(f"at epoch {names.epoch_out(group_id, request.member_epoch)}")
        full = request.rebalance_timeout_ms > 0 and request.topic_partitions is not None
        if full:
            words.append("in full")
        if request.topic_partitions is not None:
            words.append(f"with {names.partitions(request.topic_partitions)}")
    return " ".join(words)


def _heartbeat_answer(names: Names, group_id: str, answer: m.HeartbeatResponse) -> str:
    if answer.error_code:
        return code_text(answer.error_code)
    if answer.member_epoch < 0:
        return "left"
    said = f"epoch {names.epoch_out(group_id, answer.member_epoch)}"
    if answer.assignment is not None:
        said += f", assigned {names.partitions(answer.assignment)}"
    return said


def _fetched(names: Names, answer: m.OffsetFetchResponse) -> str:
    if answer.error_code:
        return code_text(answer.error_code)
    found = {
        key: code_text(each.error_code)
        if isinstance(each, m.PartitionError)
        else str(each.committed_offset)
        for key, each in answer.answers.items()
    }
    return ", ".join(f"{_name(names, key)} {found[key]}" for key in sorted(found))


def _codes(names: Names, errors: Mapping[TopicIdPartition, int]) -> str:
    codes = set(errors.values())
    if len(codes) == 1:
        return code_text(codes.pop())
    return ", ".join(f"{_name(names, key)} {code_text(errors[key])}" for key in sorted(errors))


def _name(names: Names, key: TopicIdPartition) -> str:
    return f"{names.name(key.topic_id)}-{key.partition}"
