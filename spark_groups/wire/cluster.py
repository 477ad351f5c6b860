"""Requests to a cluster about topics, offsets, coordinators, groups and configuration.

These requests may be repeated, so each is retried until its deadline, on another broker if needed.
A member's requests to its coordinator use a `CoordinatorConnection`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from spark_groups.errors import ErrorCode, ProtocolError, rule_for
from spark_groups.group.member.backoff import Patience
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    DescribeGroupResponse,
    EpochEnd,
    Fetched,
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
    PartitionError,
    found_and_failed,
)
from spark_groups.group.member.near_names import near_names
from spark_groups.types import EARLIEST_TIMESTAMP, TopicId, TopicIdPartition
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.configuration import (
    ConfigEntry,
    ConfigResource,
    alteration_to_wire,
    check_alteration,
    configuration_from_wire,
    configurations_from_wire,
    configurations_to_wire,
    refuse,
)
from spark_groups.wire.connection import (
    CLIENT_SOFTWARE_NAME,
    AnotherClusterError,
    Connection,
    RequestError,
)
from spark_groups.wire.coordinator_connection import exchange, fetch_all
from spark_groups.wire.fetch.first_records import FirstRecords, FirstRecordSearch
from spark_groups.wire.fetch.first_unread import Passed
from spark_groups.wire.leader_requests import (
    ASK_AGAIN,
    LeaderCache,
    LeaderRequests,
)
from spark_groups.wire.pool import ConnectionPool
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import (
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_GROUPS,
    METADATA,
    Message,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts
from spark_groups.wire.topic_metadata import (
    ClusterMetadata,
    KnownTopic,
    metadata_from_wire,
    metadata_to_wire,
)
from spark_groups.wire.translation import TRANSLATIONS

MAX_METADATA_AGE_S: Final = 1.0
NEAR_S: Final = 5.0
"""How long to look for names that are near to those of missing topics."""
_RETRY_PAUSE_S: Final = 0.1
_EVERY_TOPIC: Final = metadata_to_wire() | {"topics": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group as ListGroups v5 names it."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class Answered(Protocol):
    """A coordinator's answer with one error code for the whole request."""

    @property
    def error_code(self) -> int:
        """Kafka's error code."""


Answer = TypeVar("Answer", bound=Answered)
Reply = TypeVar("Reply")
Ask = Callable[[Connection, float], Answer]


class Cluster:
    """A Kafka cluster; used by one thread, except for `shutdown`, which any thread may call.

    Each call raises a RequestError if no suitable broker answered in time, an AnotherClusterError
    if addresses lead to another cluster, and a ProtocolError if an answer cannot be read.

    Args:
        client_id: Appears in the brokers' logs and quotas.
        timeouts: For one connection and one request; None: those `within` a call's.
        request_timeout_s: For each call, including connecting and retries, until `call_s` is
            changed; None: as for one request.
        max_metadata_age_s: How long a topic id is assumed to keep its name.
        identity: The cluster, shared with other connections to it; None: the first one met.

    Raises:
        OptionsError: `bootstrap_servers` is empty or malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = CLIENT_SOFTWARE_NAME,
        security: Security | None = None,
        timeouts: Timeouts | None = None,
        request_timeout_s: float | None = None,
        max_metadata_age_s: float = MAX_METADATA_AGE_S,
        identity: ClusterIdentity | None = None,
    ) -> None:
        self._identity = identity or ClusterIdentity()
        if timeouts is None:
            given_s = request_timeout_s
            timeouts = USUAL_TIMEOUTS if given_s is None else Timeouts.within(given_s)
        self.call_s = timeouts.request_s if request_timeout_s is None else request_timeout_s
        self._pool = ConnectionPool(
            parse_bootstrap_servers(bootstrap_servers),
            client_id=client_id,
            security=security or Security(),
            timeouts=timeouts,
            identity=self._identity,
        )
        self._patience = Patience(timeouts.first_wait_s, timeouts.request_s)
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
        """Make the current call and all later ones fail at once; for any thread."""
        self._pool.shutdown()

    def unreached(self) -> list[str]:
        """Say which brokers cannot be reached, and why; for any thread."""
        return self._pool.unreached()

    def nodes(self) -> tuple[Node, ...]:
        """Return the live brokers, sorted by id."""
        found = self._metadata(metadata_to_wire(), self._deadline()).nodes
        return tuple(found[node_id] for node_id in sorted(found))

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return the existing topics of a request, and errors of the others by name."""
        deadline = self._deadline()
        topics: dict[TopicId, KnownTopic] = {}
        errors: dict[str, int] = {}
        near: Mapping[str, str] = {}
        if request.topic_names or not request.topic_ids:
            by_name = self._metadata(metadata_to_wire(request.topic_names), deadline)
            self._leaders.learn(by_name)
            topics.update(by_name.topics)
            errors.update(by_name.errors)
            if request.wants_near:
                found = {each.topic.name for each in by_name.topics.values()} | errors.keys()
                near = self._near_names(request.topic_names - found, found, deadline)
        if request.topic_ids:
            by_id = self._metadata(metadata_to_wire(topic_ids=request.topic_ids), deadline)
            self._leaders.learn(by_id, request.topic_ids)
            topics.update(by_id.topics)
            errors.update(by_id.errors)
        return MetadataResponse(
            topics=tuple(e.topic for e in topics.values()), errors=errors, near=near
        )

    def _near_names(
        self, missing: Collection[str], found: Collection[str], deadline: float
    ) -> Mapping[str, str]:
        """Return the visible topic nearest to each missing one, best effort.

        It reads the names of all topics, unless nothing is missing.
        """
        if not missing:
            return {}
        try:
            every = self._metadata(_EVERY_TOPIC, min(deadline, time.monotonic() + NEAR_S)).topics
        except (RequestError, ProtocolError):
            return {}
        names = {each.topic.name for each in every.values()}
        return near_names(missing, names.difference(found))

    def feature_levels(self) -> Mapping[str, int]:
        """Return the level of each finalized feature; one at level 0 is missing."""
        return self._pool.any(self._deadline()).versions.feature_levels

    def topics(
        self, names: Iterable[str], deadline: float = inf, *, with_operations: bool = False
    ) -> ClusterMetadata:
        """Return the topics with these names and their leaders.

        Args:
            deadline: When to give up (of `time.monotonic`), if that is before the timeout.
            with_operations: Whether to ask for the principal's rights on each topic.
        """
        asked = metadata_to_wire(names)
        asked["include_topic_authorized_operations"] = with_operations
        return self._metadata(asked, min(deadline, self._deadline()))

    def every_topic(self) -> ClusterMetadata:
        """Return all topics that this principal may see."""
        return self._metadata(_EVERY_TOPIC, self._deadline())

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Return offsets of partitions: one wire request to each leader, all in parallel.

        A partition whose leader has moved is retried once after fresh metadata. The offset is -1
        for a timestamp later than every record.
        """
        answers = self._leader_requests.ask(request, request.partitions, self._deadline())
        return ListOffsetsResponse(answers=answers)

    def epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """Return the end offsets of leader epochs: one wire request to each leader."""
        answers = self._leader_requests.ask(request, request.lookups, self._deadline())
        return OffsetForLeaderEpochResponse(
            answers={
                key: answer
                if isinstance(answer, PartitionError)
                else EpochEnd(answer.offset, answer.leader_epoch)
                for key, answer in answers.items()
            }
        )

    def first_records(
        self,
        offsets: Mapping[TopicIdPartition, int],
        *,
        read_committed: bool = False,
        timeout_s: float = inf,
    ) -> FirstRecords:
        """Return the first record at or after an offset of each partition.

        The leaders return about one batch of each partition, so this is for few records. It needs
        READ on the topics; a partition that a leader refuses is unknown, which is no error.

        Args:
            read_committed: Whether to skip records of aborted and of unfinished transactions.
            timeout_s: When to give up, if that is before the timeout of a call.
        """
        return self._search(offsets, read_committed=read_committed, timeout_s=timeout_s)

    def sample_records(
        self, offsets: Mapping[TopicIdPartition, int], *, read_committed: bool, timeout_s: float
    ) -> FirstRecords:
        """Return the size of the first records at or after an offset of each partition.

        Where the broker has deleted the offset, they are the first ones of the log.

        Args:
            read_committed: As for `first_records`.
            timeout_s: As for `first_records`.
        """
        deadline = min(time.monotonic() + timeout_s, self._deadline())

        def sample(begins: Mapping[TopicIdPartition, int]) -> FirstRecords:
            return self._search(
                begins,
                read_committed=read_committed,
                timeout_s=deadline - time.monotonic(),
                is_sampling=True,
            )

        found = sample(offsets)
        refused = frozenset(
            key
            for key, reason in found.unknown.items()
            if reason == ErrorCode.OFFSET_OUT_OF_RANGE.name
        )
        if not refused:
            return found
        # A Fetch response with this error does not name the beginning of the log.
        request = ListOffsetsRequest(partitions=refused, timestamp_ms=EARLIEST_TIMESTAMP)
        listed, _ = found_and_failed(self._leader_requests.ask(request, refused, deadline))
        starts = {key: each.offset for key, each in listed.items() if each.offset > offsets[key]}
        again = sample(starts)
        left = {key: reason for key, reason in found.unknown.items() if key not in starts}
        return FirstRecords(
            unknown={**left, **again.unknown},
            reached={**found.reached, **again.reached},
            samples={**found.samples, **again.samples},
        )

    def missed_record(
        self, key: TopicIdPartition, passed: Passed, *, read_committed: bool, timeout_s: float
    ) -> FirstRecords:
        """Return the first record that a reader has missed among the offsets it has passed.

        Args:
            key: The partition.
            passed: What the reader has passed; something is missing.
            read_committed: As for `first_records`.
            timeout_s: As for `first_records`.
        """
        return self._search(
            {key: passed.missing[0].start},
            read_committed=read_committed,
            timeout_s=timeout_s,
            passed={key: passed},
        )

    def _search(
        self,
        offsets: Mapping[TopicIdPartition, int],
        *,
        read_committed: bool,
        timeout_s: float,
        passed: Mapping[TopicIdPartition, Passed] = MappingProxyType({}),
        is_sampling: bool = False,
    ) -> FirstRecords:
        """Search from an offset of each partition, like `FirstRecordSearch`, with fresh leaders."""
        deadline = min(time.monotonic() + timeout_s, self._deadline())
        self._refresh(self._leaders.outdated({each.topic_id for each in offsets}), deadline)
        search = FirstRecordSearch(
            self._pool,
            self._leaders,
            offsets,
            read_committed=read_committed,
            passed=passed,
            is_sampling=is_sampling,
        )
        return search.run(deadline)

    def _refresh(self, topic_ids: set[TopicId], deadline: float) -> None:
        if topic_ids:
            asked = metadata_to_wire(topic_ids=topic_ids)
            self._leaders.learn(self._metadata(asked, deadline), topic_ids)

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """Return the coordinator of a group from any broker; errors are returned, not retried."""
        return self._find_coordinator(request, self._deadline())

    def _find_coordinator(
        self, request: FindCoordinatorRequest, deadline: float
    ) -> FindCoordinatorResponse:
        translation = TRANSLATIONS[FindCoordinatorRequest]
        values = self._ask_any(FIND_COORDINATOR, translation.to_wire(request, None), deadline)
        response: FindCoordinatorResponse = translation.from_wire(values, request, None)
        return replace(response, cluster_id=self._identity.cluster_id)

    def describe_group(self, request: DescribeGroupRequest) -> DescribeGroupResponse:
        """Describe a consumer group.

        For a group of classic members only, the coordinator answers GROUP_ID_NOT_FOUND.
        """

        def ask(connection: Connection, timeout_s: float) -> DescribeGroupResponse:
            response = exchange(connection, request, timeout_s)
            if not isinstance(response, DescribeGroupResponse):
                raise ProtocolError(f"{type(response).__name__} in place of a description")
            return response

        return self.at_coordinator(request.group_id, DescribeGroupResponse, ask)

    def fetch_all_offsets(self, group_id: str) -> Fetched:
        """Fetch every committed offset of a group, without those of deleted topics.

        Raises:
            ProtocolError: The coordinator refused. A group that does not exist has no offsets.
        """

        def ask(connection: Connection, timeout_s: float) -> OffsetFetchResponse:
            return fetch_all(connection, group_id, timeout_s)

        fetched = self.at_coordinator(group_id, OffsetFetchResponse, ask)
        if fetched.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            refuse(fetched.error_code, f"OffsetFetch of {group_id!r}")
        return fetched.answers

    def coordinator_of(self, group_id: str) -> Node | None:
        """Return the coordinator that answered last, if it was for this group."""
        known = self._coordinator
        return known[1] if known is not None and known[0] == group_id else None

    def at_coordinator(
        self, group_id: str, kind: Callable[..., Answer], ask: Ask[Answer]
    ) -> Answer:
        """Send a request to the coordinator of a group, which may move, until the deadline.

        Args:
            kind: Makes an answer with an `error_code`, if there is no coordinator.
            ask: Sends the request over a connection, with a timeout in seconds.

        Raises:
            RequestError: No broker answered in time. If the deadline cut the last attempt short,
                this is the error of the one before, which had its time and knows the reason.
        """
        deadline = self._deadline()
        failure: RequestError | None = None
        while True:
            is_cut_short = deadline - time.monotonic() < self._patience.seconds()
            try:
                answer = self._ask_coordinator(group_id, kind, ask, deadline)
            except RequestError as error:
                self._coordinator = None
                if isinstance(error, AnotherClusterError):
                    raise
                failure = failure if failure is not None and is_cut_short else error
            else:
                failure = None
                if rule_for(answer.error_code).lookup not in ASK_AGAIN:
                    return answer
                self._coordinator = None
            if not self._pool.pause(_RETRY_PAUSE_S, deadline):
                if failure is not None:
                    raise failure
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
        connection = self._pool.to(node, deadline)
        return self._attempt(deadline, lambda timeout_s: ask(connection, timeout_s))

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> tuple[ListedGroup, ...]:
        """List the groups of the cluster, sorted by id; each broker lists those it coordinates.

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
                values = connection.request(LIST_GROUPS, asked, deadline - time.monotonic())
                retry = rule_for(values["error_code"]).lookup in ASK_AGAIN
                if not retry or not self._pool.pause(_RETRY_PAUSE_S, deadline):
                    break
            refuse(values["error_code"], f"ListGroups at {node}")
            found.update((each["group_id"], ListedGroup(**each)) for each in values["groups"])
        return tuple(found[group_id] for group_id in sorted(found))

    def describe_configuration(
        self, resource: ConfigResource, name: str, keys: Iterable[str] | None = None
    ) -> Mapping[str, ConfigEntry]:
        """Return the configuration of a group, broker or topic; a group need not exist.

        Args:
            name: Group id, broker id or topic name.
            keys: Only these keys; all if None.

        Raises:
            RequestError: No broker answered in time.
            ProtocolError: The broker refused, or its answer cannot be read.
        """
        asked = configurations_to_wire(resource, (name,), keys)
        deadline = self._deadline()
        if resource is ConfigResource.BROKER:
            nodes = self._metadata(metadata_to_wire(), deadline).nodes
            node = nodes.get(int(name)) if name.isdecimal() else None
            if node is None:
                raise ProtocolError(f"there is no broker {name!r}, only {sorted(nodes)}")
            connection = self._pool.to(node, deadline)
            values = connection.request(DESCRIBE_CONFIGS, asked, deadline - time.monotonic())
        else:
            values = self._ask_any(DESCRIBE_CONFIGS, asked, deadline)
        return configuration_from_wire(values, name)

    def topic_configurations(
        self, names: Iterable[str], keys: Iterable[str], *, timeout_s: float = inf
    ) -> tuple[Mapping[str, Mapping[str, ConfigEntry]], Mapping[str, str]]:
        """Return the configuration of topics, and the reasons of refusals, both by topic name.

        Args:
            keys: Only these keys.
            timeout_s: When to give up, if that is before the timeout of a call.
        """
        deadline = min(time.monotonic() + timeout_s, self._deadline())
        asked = configurations_to_wire(ConfigResource.TOPIC, names, keys)
        return configurations_from_wire(self._ask_any(DESCRIBE_CONFIGS, asked, deadline))

    def alter_configuration(
        self, resource: ConfigResource, name: str, changes: Mapping[str, str | None]
    ) -> None:
        """Change the configuration of a group or topic: all changes, or none.

        Args:
            name: Group id or topic name.
            changes: New values by key; None removes a value.

        Raises:
            RequestError: No broker answered in time.
            ProtocolError: The broker refused, or its answer cannot be read.
        """
        asked = alteration_to_wire(resource, name, changes)
        check_alteration(self._ask_any(INCREMENTAL_ALTER_CONFIGS, asked, self._deadline()), name)

    def _deadline(self) -> float:
        return time.monotonic() + self.call_s

    def _attempt(self, deadline: float, ask: Callable[[float], Reply]) -> Reply:
        """Ask with a timeout; a broker that hangs leaves time for another one."""
        began_at = time.monotonic()
        try:
            answer = ask(min(self._patience.seconds(), deadline - began_at))
        except RequestError:
            self._patience.failed(time.monotonic() - began_at)
            raise
        self._patience.answered(time.monotonic() - began_at)
        return answer

    def _metadata(self, asked: Values, deadline: float) -> ClusterMetadata:
        connection, answer = self._ask_any_broker(METADATA, asked, deadline)
        metadata = metadata_from_wire(answer)
        self._pool.learn(metadata.nodes.values())
        if len(metadata.topics) + len(metadata.errors) < len(asked["topics"] or ()):
            # Its metadata may be older than that of others, which then know these topics.
            self._pool.pass_over(connection.address)
        return metadata

    def _ask_any(self, message: Message, values: Values, deadline: float) -> Values:
        return self._ask_any_broker(message, values, deadline)[1]

    def _ask_any_broker(
        self, message: Message, values: Values, deadline: float
    ) -> tuple[Connection, Values]:
        while True:
            connection = self._pool.any(deadline)
            try:
                answer = self._attempt(deadline, partial(connection.request, message, values))
            except RequestError as error:
                self._pool.failed(connection.address)
                if not self._pool.pause(0.0, deadline):
                    raise RequestError(
                        f"no broker answered: {error}", may_have_arrived=error.may_have_arrived
                    ) from error
            else:
                return connection, answer
