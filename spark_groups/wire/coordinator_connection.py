"""Requests to the group coordinator over one connection that follows it.

A member keeps heartbeats on a connection of their own: a broker answers a connection strictly in
order, and a heartbeat must not wait behind another request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    UNANSWERED,
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
from spark_groups.types import TopicIdPartition
from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import (
    CLIENT_SOFTWARE_NAME,
    AdvertisedAddressError,
    Connection,
    RequestError,
)
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import (
    METADATA,
    OFFSET_COMMIT_V9,
    OFFSET_FETCH_V9,
    OFFSET_FETCH_V10,
    Message,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts
from spark_groups.wire.topic_metadata import ClusterMetadata, metadata_from_wire, metadata_to_wire
from spark_groups.wire.translation import TRANSLATIONS, fetch_all_to_wire, fetched_offsets, single

logger = logging.getLogger(__name__)

GroupRequest = (
    HeartbeatRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | DescribeGroupRequest
    | FindCoordinatorRequest
)
GroupResponse = (
    HeartbeatResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | DescribeGroupResponse
    | FindCoordinatorResponse
)


def exchange(connection: Connection, request: GroupRequest, timeout_s: float) -> GroupResponse:
    """Send one request over an open connection and return its response.

    Before Kafka 4.2, OffsetCommit and OffsetFetch take topic names. The names are then looked up
    by topic id, on the same connection, so that no offset of a deleted topic is written or read
    under the name of a new one; and after a commit again, because the topic may have been created
    again in between.

    Args:
        connection: To the coordinator, or to any broker for FindCoordinator.
        timeout_s: Until the response must have arrived.

    Raises:
        RequestError: No response arrived.
        ProtocolError: The response cannot be read, or does not match the request.
    """
    deadline = time.monotonic() + timeout_s
    translation = TRANSLATIONS[type(request)]
    message, metadata = translation.message, None
    if not connection.supports(message):
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message=f"{connection.address} does not support {message}",
            )
        if translation.message_by_name is not None:
            message = translation.message_by_name
            metadata = _metadata_of(connection, _partitions_of(request), timeout_s)
    values = connection.request(
        message, translation.to_wire(request, metadata), deadline - time.monotonic()
    )
    response: GroupResponse = translation.from_wire(values, request, metadata)
    if isinstance(request, HeartbeatRequest) and isinstance(response, HeartbeatResponse):
        return _with_reason(connection, request, response, deadline)
    if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
        return _without_new_topics(connection, request, response, metadata, deadline)
    return response


def _without_new_topics(
    connection: Connection,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    named: ClusterMetadata | None,
    deadline: float,
) -> OffsetCommitResponse:
    """Check that a commit by name was not stored for topics created again since their look-up.

    The coordinator checked the name when it took the commit, so its metadata is not older now.

    Args:
        named: The topics whose names were sent; None if ids were.
        deadline: Of `time.monotonic`.

    Returns:
        The response, with UNKNOWN_TOPIC_ID for topics that are gone.
    """
    taken = [key for key, code in response.errors.items() if not code]
    if named is None or not taken:
        return response
    try:
        now = _metadata_of(connection, taken, deadline - time.monotonic())
        gone = [key for key in taken if key.topic_id not in now.topics]
        if gone:
            names = {key: named.topics[key.topic_id].topic.name for key in gone}
            _set_back(connection, request, names, deadline)
    except RequestError as error:
        raise RequestError(error.reason, may_have_arrived=True) from error
    errors = dict.fromkeys(gone, ErrorCode.UNKNOWN_TOPIC_ID.value)
    return OffsetCommitResponse(errors={**response.errors, **errors})


def _set_back(
    connection: Connection,
    request: OffsetCommitRequest,
    names: Mapping[TopicIdPartition, str],
    deadline: float,
) -> None:
    """Commit the beginning of new topics that have an offset of their predecessor.

    Args:
        request: The commit of that offset.
        names: The partitions of deleted topics, with the name that a new topic may have.
        deadline: Of `time.monotonic`.
    """

    def ask(message: Message, values: Values) -> Values:
        return connection.request(message, values, deadline - time.monotonic())

    found = metadata_from_wire(ask(METADATA, metadata_to_wire(set(names.values()))))
    ids = {each.topic.name: topic_id for topic_id, each in found.topics.items()}
    old = {
        TopicIdPartition(ids[name], key.partition): request.offsets[key]
        for key, name in names.items()
        if name in ids
    }
    if not old:
        return
    fetch = OffsetFetchRequest(
        group_id=request.group_id,
        member_id=request.member_id or None,
        member_epoch=request.member_epoch,
        partitions=frozenset(old),
    )
    fetching, committing = TRANSLATIONS[OffsetFetchRequest], TRANSLATIONS[OffsetCommitRequest]
    values = ask(OFFSET_FETCH_V9, fetching.to_wire(fetch, found))
    fetched: OffsetFetchResponse = fetching.from_wire(values, fetch, found)
    answers = {key: fetched.answers.get(key, UNANSWERED) for key in old}
    wrong = {key: OffsetAndMetadata(0) for key, each in answers.items() if each == old[key]}
    unsure = {key for key, each in answers.items() if isinstance(each, PartitionError)}
    if wrong:
        again = replace(request, offsets=wrong)
        values = ask(OFFSET_COMMIT_V9, committing.to_wire(again, found))
        answer: OffsetCommitResponse = committing.from_wire(values, again, found)
        unsure |= {key for key, code in answer.errors.items() if code}
    for key in sorted(wrong.keys() | unsure):
        logger.warning(
            "group %s: %s-%d was deleted and created again while an offset of the old topic was"
            " committed: %s",
            request.group_id,
            found.topics[key.topic_id].topic.name,
            key.partition,
            f"the new one may begin at {old[key].committed_offset}; look with spark-groups describe"
            if key in unsure
            else "the new one is read from its beginning",
        )


def _with_reason(
    connection: Connection, request: HeartbeatRequest, response: HeartbeatResponse, deadline: float
) -> HeartbeatResponse:
    """Add the reason for a refused heartbeat, where the broker gives none."""
    reason = response.error_message
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not reason:
        reason = f"the cluster of {connection.address}: feature group.version is 0"
    elif response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        # One denied topic fails the whole heartbeat, and the answer does not name it.
        denied = _denied(connection, request.subscribed_topic_names or (), deadline)
        reason = f"no right to DESCRIBE {', '.join(map(repr, denied))}" if denied else reason
    return replace(response, error_message=reason)


def _denied(connection: Connection, names: Iterable[str], deadline: float) -> list[str]:
    """Return the topics that this principal may not describe, if the broker answers."""
    asked = metadata_to_wire(names)
    try:
        values = connection.request(METADATA, asked, deadline - time.monotonic())
    except RequestError:
        return []
    errors = metadata_from_wire(values).errors
    return sorted(e for e, code in errors.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _partitions_of(request: GroupRequest) -> Iterable[TopicIdPartition]:
    if isinstance(request, OffsetCommitRequest):
        return request.offsets
    return request.partitions if isinstance(request, OffsetFetchRequest) else ()


def _metadata_of(
    connection: Connection, partitions: Iterable[TopicIdPartition], timeout_s: float
) -> ClusterMetadata:
    topic_ids = {partition.topic_id for partition in partitions}
    if not topic_ids:
        return ClusterMetadata()
    asked = metadata_to_wire(topic_ids=topic_ids)
    try:
        return metadata_from_wire(connection.request(METADATA, asked, timeout_s))
    except RequestError as error:
        raise RequestError(error.reason, may_have_arrived=False) from error


def fetch_all(connection: Connection, group_id: str, timeout_s: float) -> OffsetFetchResponse:
    """Fetch every committed offset of a group, without a member; raises like `exchange`."""
    deadline = time.monotonic() + timeout_s
    by_id = connection.supports(OFFSET_FETCH_V10)
    message = OFFSET_FETCH_V10 if by_id else OFFSET_FETCH_V9
    values = connection.request(message, fetch_all_to_wire(group_id), timeout_s)
    group = single(values["groups"], "group_id", group_id)
    if group["error_code"]:
        return OffsetFetchResponse(error_code=group["error_code"])
    metadata = None
    if not by_id:
        asked = metadata_to_wire({each["name"] for each in group["topics"]})
        answer = connection.request(METADATA, asked, deadline - time.monotonic())
        metadata = metadata_from_wire(answer)
    return OffsetFetchResponse(answers=fetched_offsets(group["topics"], metadata))


class CoordinatorConnection:
    """One connection to the current coordinator.

    One thread uses it; any thread may call `interrupt` and `shutdown`.

    Args:
        client_id: Appears in the broker's logs and quotas.
        timeouts: For connecting.
        identity: The cluster, shared with other connections to it; None: the first one met.
    """

    def __init__(
        self,
        *,
        client_id: str = CLIENT_SOFTWARE_NAME,
        security: Security | None = None,
        timeouts: Timeouts = USUAL_TIMEOUTS,
        identity: ClusterIdentity | None = None,
    ) -> None:
        self._client_id = client_id
        self._security = security or Security()
        self._timeouts = timeouts
        self._failures = 0
        self._identity = identity or ClusterIdentity()
        self._connection: Connection | None = None
        self._reached: set[Address] = set()
        self._lock = threading.Lock()
        self._shut_down = False

    def send(self, node: Node, request: GroupRequest, timeout_s: float) -> GroupResponse:
        """Send one request to a broker and return its response.

        Args:
            node: The coordinator; a new one gets a new connection.
            timeout_s: Until the response must have arrived, including connecting.

        Raises:
            RequestError: No response arrived; states whether the request may have arrived.
            AnotherClusterError: The broker is one of another cluster; the request was not sent.
            ProtocolError: The response cannot be read, or does not match the request.
        """
        deadline = time.monotonic() + timeout_s
        connection = self._connection_to(node, timeout_s)
        return exchange(connection, request, deadline - time.monotonic())

    def _connection_to(self, node: Node, timeout_s: float) -> Connection:
        current = self._connection
        address = Address(node.host, node.port)
        if current is not None:
            if current.address == address and current.is_usable():
                return current
            current.close()
        fresh = Connection(
            node.host,
            node.port,
            client_id=self._client_id,
            security=self._security,
            timeouts=self._timeouts,
            identity=self._identity,
        )
        with self._lock:
            if self._shut_down:
                raise RequestError("the member was shut down", may_have_arrived=False)
            self._connection = fresh
        try:
            fresh.connect(timeout_s, self._timeouts.setup_after(self._failures))
        except RequestError as error:
            self._failures += 1
            if type(error) is RequestError and address not in self._reached:
                raise AdvertisedAddressError(error.reason) from error
            raise
        self._failures = 0
        self._reached = {address}
        return fresh

    def interrupt(self) -> None:
        """Make the current request fail at once; the next one opens a new connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.shutdown()

    def shutdown(self) -> None:
        """Make the current request and all later ones fail at once."""
        with self._lock:
            self._shut_down = True
            if self._connection is not None:
                self._connection.shutdown()

    def close(self) -> None:
        """Close the connection; only for the thread that uses it."""
        if self._connection is not None:
            self._connection.close()
