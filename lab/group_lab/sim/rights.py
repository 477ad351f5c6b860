"""Authorization of requests, and requests by topic name.

Brokers authorize a request before the coordinator, a leader or the metadata serves it: the answer
has errors for denied topics beside results for allowed ones. Brokers before 4.2 use topic names.
Source: KafkaApis, the authorization of each request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final

from group_lab.coordinator.messages import error_answer
from group_lab.coordinator.topic_images import TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.batches.warm_up import READ_BIT
from spark_groups.group.member import messages as m
from spark_groups.types import TopicIdPartition

Finish = Callable[[m.Response], m.Response]
"""Completes the answer to the allowed part of a request."""
GROUP_DENIED: Final = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
TOPIC_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_OPERATIONS: Final = READ_BIT | 1 << 6 | 1 << 8
"""READ, DELETE and DESCRIBE, as authorized operations."""
_BY_PARTITION: Final[Mapping[type, tuple[str, m.Response]]] = {
    m.OffsetCommitRequest: ("offsets", m.OffsetCommitResponse(errors={})),
    m.OffsetFetchRequest: ("partitions", m.OffsetFetchResponse()),
    m.ListOffsetsRequest: ("partitions", m.ListOffsetsResponse()),
    m.OffsetForLeaderEpochRequest: ("lookups", m.OffsetForLeaderEpochResponse()),
}
"""The field with the partitions of a request, and a response without any."""
_OF_THE_GROUP: Final = (
    m.HeartbeatRequest,
    m.OffsetCommitRequest,
    m.OffsetFetchRequest,
    m.DescribeGroupRequest,
)


class Rights:
    """The missing ACLs, and until when each is missing."""

    def __init__(self) -> None:
        self.may_not_describe = False
        """Whether describing the group fails because of topics that the principal may not see."""
        self._group_until = -inf
        self._topics_until: dict[str, float] = {}

    def deny_group(self, until: float) -> None:
        """Deny READ on the group."""
        self._group_until = until

    def deny_topic(self, name: str, until: float) -> None:
        """Deny all operations on a topic."""
        self._topics_until[name] = until

    def missed_since(self, since: float) -> bool:
        """Return whether an ACL that a member needs was missing after an instant."""
        return any(until > since for until in (self._group_until, *self._topics_until.values()))

    def topic_missed_since(self, name: str | None, since: float) -> bool:
        """Return whether the ACLs of a topic were missing after an instant."""
        return name is not None and self._topics_until.get(name, -inf) > since

    def authorize(
        self, request: m.Request, topics: TopicsImage, now: float
    ) -> tuple[m.Request | None, Finish | None, m.Response | None]:
        """Authorize a request.

        Returns:
            The allowed part of the request, and what completes its answer if some is denied; or
            None, None and the refusal.
        """
        denied = {name for name, until in self._topics_until.items() if now < until}
        refusal = _group_refusal(request) if now < self._group_until else None
        if isinstance(request, m.DescribeGroupRequest) and (denied or self.may_not_describe):
            refusal = refusal or error_answer(request, TOPIC_DENIED)
        if isinstance(request, m.HeartbeatRequest) and denied & {
            *(request.subscribed_topic_names or ())
        }:
            refusal = refusal or error_answer(request, TOPIC_DENIED)
        if refusal is not None:
            return None, None, refusal
        if isinstance(request, m.DescribeGroupRequest):
            return request, partial(_with_operations, request), None
        if denied and isinstance(request, m.MetadataRequest):
            return _metadata(request, denied, topics)
        if denied and type(request) in _BY_PARTITION:
            return _by_partition(request, denied, topics)
        return request, None, None


def _group_refusal(request: m.Request) -> m.Response | None:
    if isinstance(request, m.FindCoordinatorRequest):
        return m.FindCoordinatorResponse(error_code=GROUP_DENIED)
    if isinstance(request, m.GroupSettingsRequest):
        return m.GroupSettingsResponse(reason="not authorized")
    if isinstance(request, _OF_THE_GROUP):
        response: m.Response = error_answer(request, GROUP_DENIED)
        return response
    return None


def _metadata(
    request: m.MetadataRequest, denied: Collection[str], topics: TopicsImage
) -> tuple[m.Request, Finish, None]:
    """Return the allowed part; denied topics by id get no error."""
    denied_ids = {topic.topic_id for name, topic in topics.by_name.items() if name in denied}
    allowed = replace(
        request,
        topic_names=request.topic_names - frozenset(denied),
        topic_ids=request.topic_ids - denied_ids,
    )
    errors = dict.fromkeys(sorted(request.topic_names & frozenset(denied)), TOPIC_DENIED)
    return allowed, lambda response: _with_errors(response, errors), None


def _by_partition(
    request: Any, denied: Collection[str], topics: TopicsImage
) -> tuple[m.Request | None, Finish | None, m.Response | None]:
    field, empty = _BY_PARTITION[type(request)]
    asked: Collection[TopicIdPartition] = getattr(request, field)
    denied_ids = {topic.topic_id for name, topic in topics.by_name.items() if name in denied}
    errors = {key: TOPIC_DENIED for key in asked if key.topic_id in denied_ids}
    if errors and len(errors) == len(asked):
        return None, None, _with_errors(empty, errors)
    if isinstance(asked, Mapping):
        rest: object = {key: asked[key] for key in asked if key not in errors}
    else:
        rest = frozenset(asked) - errors.keys()
    return replace(request, **{field: rest}), lambda each: _with_errors(each, errors), None


def _with_operations(request: m.DescribeGroupRequest, response: Any) -> m.Response:
    if not request.include_authorized_operations or response.error_code != ErrorCode.NONE:
        unchanged: m.Response = response
        return unchanged
    completed: m.Response = replace(response, authorized_operations=GROUP_OPERATIONS)
    return completed


def _with_errors(response: Any, errors: Mapping[Any, int]) -> m.Response:
    completed: m.Response
    if hasattr(response, "answers"):
        failed = {key: m.PartitionError(code) for key, code in errors.items()}
        completed = replace(response, answers={**response.answers, **failed})
    else:
        completed = replace(response, errors={**response.errors, **errors})
    return completed


def sent_by_name(request: m.Request, topics: TopicsImage) -> tuple[m.Request, Finish]:
    """Return the part of a request that `wire/` sends by topic name, and what completes its answer.

    Brokers before 4.2 accept commits and fetches by topic name only. `wire/` reads fresh metadata
    first, leaves out partitions of deleted topics, and answers UNKNOWN_TOPIC_ID for them. A topic
    that is created again between the two is left out of the model: no client can detect it.
    """
    there = {each.topic_id for each in topics.by_name.values()}
    gone_code = int(ErrorCode.UNKNOWN_TOPIC_ID)
    match request:
        case m.OffsetCommitRequest(offsets=offsets):
            sent = {key: offset for key, offset in offsets.items() if key.topic_id in there}
            gone = dict.fromkeys(offsets.keys() - sent.keys(), gone_code)
            return replace(request, offsets=sent), lambda answer: _with_errors(answer, gone)
        case m.OffsetFetchRequest(partitions=partitions):
            asked = frozenset(key for key in partitions if key.topic_id in there)
            gone = dict.fromkeys(partitions - asked, gone_code)
            return replace(request, partitions=asked), lambda answer: _with_errors(answer, gone)
        case _:
            return request, lambda answer: answer
