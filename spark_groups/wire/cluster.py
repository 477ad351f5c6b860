"""What can be asked of a cluster: topics, offsets, coordinators, groups, configuration.

Whatever is asked here may be asked twice, so it is sent again, to another broker if need be, until
its deadline. Requests of a member to its coordinator go through a `CoordinatorConnection`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from spark_groups.errors import ProtocolError, rule_for
from spark_groups.protocol.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    EpochEnd,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    Node,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from spark_groups.types import TopicId
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.configuration import (
    ConfigEntry,
    ConfigResource,
    alteration_to_wire,
    check_alteration,
    configuration_from_wire,
    configuration_to_wire,
    refuse,
)
from spark_groups.wire.connection import (
    CLIENT_SOFTWARE_NAME,
    Connection,
    RequestError,
)
from spark_groups.wire.coordinator import exchange, fetch_all
from spark_groups.wire.leader_requests import (
    ASK_AGAIN,
    ATTEMPT_TIMEOUT_S,
    LeaderCache,
    LeaderRequests,
)
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.messages import (
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_GROUPS,
    METADATA,
    Message,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.topic_metadata import (
    ClusterMetadata,
    KnownTopic,
    metadata_from_wire,
    metadata_to_wire,
)
from spark_groups.wire.translation import TRANSLATIONS

CONNECT_TIMEOUT_S: Final = 1.0
REQUEST_TIMEOUT_S: Final = 10.0
MAX_METADATA_AGE_S: Final = 1.0
_RETRY_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group as ListGroups v5 names it."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class Answered(Protocol):
    """What a coordinator answers, with one error code for the whole of it."""

    @property
    def error_code(self) -> int:
        """Kafka's error code."""


Answer = TypeVar("Answer", bound=Answered)
Ask = Callable[[Connection, float], Answer]


class Cluster:
    """A Kafka cluster; used by one thread, but for `shutdown`, which any thread may call.

    Each call raises a RequestError if no broker, or not the right one, answered in time, and a
    ProtocolError if an answer cannot be read.

    Args:
        bootstrap_servers: `host:port` of one or more brokers, as `bootstrap.servers` has it.
        client_id: What the brokers call this client in their logs and quotas.
        security: How to secure connections.
        request_timeout_s: Seconds in which each call ends, connecting and retries included.
        connect_timeout_s: Seconds that one attempt to connect may take.
        max_metadata_age_s: Seconds for which a topic id is believed to still have its name.

    Raises:
        OptionsError: `bootstrap_servers` is empty or malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = CLIENT_SOFTWARE_NAME,
        security: Security | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_metadata_age_s: float = MAX_METADATA_AGE_S,
    ) -> None:
        self._pool = ConnectionPool(
            parse_bootstrap_servers(bootstrap_servers),
            client_id=client_id,
            security=security or Security(),
            connect_timeout_s=connect_timeout_s,
        )
        self._request_timeout_s = request_timeout_s
        self._coordinator: tuple[str, Node] | None = None
        self._leaders = LeaderCache(max_metadata_age_s)
        self._leader_requests = LeaderRequests(self._pool, self._leaders, self._refresh)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; only for the thread that uses the cluster."""
        self._pool.close()

    def shutdown(self) -> None:
        """Make the call under way, and all later ones, fail at once; for any thread."""
        self._pool.shutdown()

    def nodes(self) -> tuple[Node, ...]:
        """Return the brokers that are alive, sorted by id."""
        found = self._metadata(metadata_to_wire(), self._deadline()).nodes
        return tuple(found[node_id] for node_id in sorted(found))

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return the topics of a request that exist, and errors of others by name."""
        deadline = self._deadline()
        topics: dict[TopicId, KnownTopic] = {}
        errors: dict[str, int] = {}
        if request.topic_names or not request.topic_ids:
            by_name = self._metadata(metadata_to_wire(request.topic_names), deadline)
            self._leaders.learn(by_name)
            topics.update(by_name.topics)
            errors.update(by_name.errors)
        if request.topic_ids:
            by_id = self._metadata(metadata_to_wire(topic_ids=request.topic_ids), deadline)
            self._leaders.learn(by_id, request.topic_ids)
            topics.update(by_id.topics)
            errors.update(by_id.errors)
        return MetadataResponse(topics=tuple(e.topic for e in topics.values()), errors=errors)

    def topics(self, names: Iterable[str]) -> ClusterMetadata:
        """Return the topics of these names, and who leads their partitions now."""
        return self._metadata(metadata_to_wire(names), self._deadline())

    def every_topic(self) -> ClusterMetadata:
        """Return all topics that this principal may see."""
        return self._metadata(metadata_to_wire() | {"topics": None}, self._deadline())

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Return offsets of partitions: one wire request to each leader, all at the same time.

        A partition whose leader has moved is asked for once more after fresh metadata. An offset
        of -1 answers a timestamp that is later than every record.
        """
        found, errors = self._leader_requests.ask(request, request.partitions, self._deadline())
        return ListOffsetsResponse(
            offsets={key: each.offset for key, each in found.items()},
            errors=errors,
            leader_epochs={key: each.leader_epoch for key, each in found.items()},
        )

    def epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """Return how far the logs of leader epochs reach: one wire request to each leader."""
        found, errors = self._leader_requests.ask(request, request.lookups, self._deadline())
        ends = {key: EpochEnd(each.offset, each.leader_epoch) for key, each in found.items()}
        return OffsetForLeaderEpochResponse(ends=ends, errors=errors)

    def _refresh(self, topic_ids: set[TopicId], deadline: float) -> None:
        if topic_ids:
            asked = metadata_to_wire(topic_ids=topic_ids)
            self._leaders.learn(self._metadata(asked, deadline), topic_ids)

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """Ask any broker who coordinates a group; errors are returned, not retried."""
        return self._find_coordinator(request, self._deadline())

    def _find_coordinator(
        self, request: FindCoordinatorRequest, deadline: float
    ) -> FindCoordinatorResponse:
        translation = TRANSLATIONS[FindCoordinatorRequest]
        values = self._ask_any(FIND_COORDINATOR, translation.to_wire(request, None), deadline)
        response: FindCoordinatorResponse = translation.from_wire(values, request, None)
        return response

    def describe_group(self, request: DescribeGroupRequest) -> DescribeGroupResponse:
        """Describe a consumer group, finding its coordinator first.

        A group of classic members alone is answered with GROUP_ID_NOT_FOUND.
        """

        def ask(connection: Connection, timeout_s: float) -> DescribeGroupResponse:
            response = exchange(connection, request, timeout_s)
            if not isinstance(response, DescribeGroupResponse):
                raise ProtocolError(f"{type(response).__name__} in place of a description")
            return response

        return self.at_coordinator(request.group_id, DescribeGroupResponse, ask)

    def fetch_all_offsets(self, group_id: str) -> OffsetFetchResponse:
        """Fetch every committed offset of a group, as an operator does.

        Offsets of topics that no longer exist are left out.
        """

        def ask(connection: Connection, timeout_s: float) -> OffsetFetchResponse:
            return fetch_all(connection, group_id, timeout_s)

        return self.at_coordinator(group_id, OffsetFetchResponse, ask)

    def coordinator_of(self, group_id: str) -> Node | None:
        """Return who answered for a group last, if it was the last group that was asked for."""
        known = self._coordinator
        return known[1] if known is not None and known[0] == group_id else None

    def at_coordinator(
        self, group_id: str, kind: Callable[..., Answer], ask: Ask[Answer]
    ) -> Answer:
        """Ask the coordinator of a group, wherever it is or moves to, until the deadline.

        Args:
            group_id: The group.
            kind: Makes an answer of `error_code`, where there is no coordinator to ask.
            ask: Asks over a connection, within seconds.
        """
        deadline = self._deadline()
        while True:
            try:
                answer = self._ask_coordinator(group_id, kind, ask, deadline)
            except RequestError:
                self._coordinator = None
                if not self._pool.pause(_RETRY_PAUSE_S, deadline):
                    raise
                continue
            if rule_for(answer.error_code).lookup not in ASK_AGAIN:
                return answer
            self._coordinator = None
            if not self._pool.pause(_RETRY_PAUSE_S, deadline):
                return answer

    def _ask_coordinator(
        self, group_id: str, kind: Callable[..., Answer], ask: Ask[Answer], deadline: float
    ) -> Answer:
        node = self.coordinator_of(group_id)
        if node is None:
            found = self._find_coordinator(FindCoordinatorRequest(group_id=group_id), deadline)
            if found.coordinator is None:
                return kind(error_code=found.error_code)
            node = found.coordinator
            self._coordinator = group_id, node
        return ask(self._pool.to(node, deadline), self._attempt_s(deadline))

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> tuple[ListedGroup, ...]:
        """List the groups of the cluster, sorted by id; every broker names those it coordinates.

        Args:
            states: Only groups in these states; all if empty.
            types: Only groups of these types (classic, consumer, share, streams); all if empty.

        Raises:
            RequestError: A broker did not answer in time.
            ProtocolError: A broker refused, or its answer cannot be read.
        """
        deadline = self._deadline()
        asked = {"states_filter": tuple(states), "types_filter": tuple(types)}
        found: dict[str, ListedGroup] = {}
        for node in self._metadata(metadata_to_wire(), deadline).nodes.values():
            while True:
                connection = self._pool.to(node, deadline)
                values = connection.request(LIST_GROUPS, asked, self._attempt_s(deadline))
                retry = rule_for(values["error_code"]).lookup in ASK_AGAIN
                if not retry or not self._pool.pause(_RETRY_PAUSE_S, deadline):
                    break
            refuse(values["error_code"], f"ListGroups at {node}")
            found.update((each["group_id"], ListedGroup(**each)) for each in values["groups"])
        return tuple(found[group_id] for group_id in sorted(found))

    def describe_configuration(
        self, resource: ConfigResource, name: str, keys: Iterable[str] | None = None
    ) -> Mapping[str, ConfigEntry]:
        """Return the configuration of a group, a broker or a topic; a group need not exist.

        Args:
            resource: What it belongs to.
            name: Group id, broker id or topic name.
            keys: Only these keys; all if None.

        Raises:
            RequestError: No broker answered in time.
            ProtocolError: The broker refused, or its answer cannot be read.
        """
        asked = configuration_to_wire(resource, name, keys)
        deadline = self._deadline()
        if resource is ConfigResource.BROKER:
            nodes = self._metadata(metadata_to_wire(), deadline).nodes
            node = nodes.get(int(name)) if name.isdecimal() else None
            if node is None:
                raise ProtocolError(f"there is no broker {name!r}, only {sorted(nodes)}")
            connection = self._pool.to(node, deadline)
            values = connection.request(DESCRIBE_CONFIGS, asked, self._attempt_s(deadline))
        else:
            values = self._ask_any(DESCRIBE_CONFIGS, asked, deadline)
        return configuration_from_wire(values, name)

    def alter_configuration(
        self, resource: ConfigResource, name: str, changes: Mapping[str, str | None]
    ) -> None:
        """Change the configuration of a group or a topic: everything named, or nothing.

        Args:
            resource: What it belongs to.
            name: Group id or topic name.
            changes: New values by key; None takes the value away.

        Raises:
            RequestError: No broker answered in time.
            ProtocolError: The broker refused, with its own words, or its answer cannot be read.
        """
        asked = alteration_to_wire(resource, name, changes)
        check_alteration(self._ask_any(INCREMENTAL_ALTER_CONFIGS, asked, self._deadline()), name)

    def _deadline(self) -> float:
        return time.monotonic() + self._request_timeout_s

    def _attempt_s(self, deadline: float) -> float:
        """Return how long one attempt may take, so that a broker that hangs leaves time."""
        return min(ATTEMPT_TIMEOUT_S, deadline - time.monotonic())

    def _metadata(self, asked: Values, deadline: float) -> ClusterMetadata:
        metadata = metadata_from_wire(self._ask_any(METADATA, asked, deadline))
        self._pool.learn(metadata.nodes.values())
        return metadata

    def _ask_any(self, message: Message, values: Values, deadline: float) -> Values:
        while True:
            connection = self._pool.any(deadline)
            try:
                return connection.request(message, values, self._attempt_s(deadline))
            except RequestError as error:
                self._pool.failed(connection.address)
                if not self._pool.pause(0.0, deadline):
                    raise RequestError(
                        f"no broker answered: {error}", may_have_arrived=error.may_have_arrived
                    ) from error
