"""Reads a group from its brokers, within one timeout for all requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from spark_groups.errors import (
    BrokerUnreachableError,
    ErrorCode,
    GroupNotFoundError,
    ProtocolError,
    rule_for,
)
from spark_groups.group.member.messages import (
    NO_OFFSET,
    DescribeGroupRequest,
    DescribeGroupResponse,
    Fetched,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetAndMetadata,
    TopicMetadata,
    found_and_failed,
)
from spark_groups.group.member.near_names import nearest
from spark_groups.observation.plain_values import partition_ranges
from spark_groups.observation.reading import GroupReading, GroupType, described_as_consumer_group
from spark_groups.observation.unread_times import UnreadTimes
from spark_groups.observation.views import GroupView, view_group
from spark_groups.runtime.snapshot_sockets import read_snapshots
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TopicIdPartition,
    TopicPartition,
    topic_id_text,
)
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster import Cluster, ListedGroup
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.configuration import refuse
from spark_groups.wire.connection import RequestError
from spark_groups.wire.group_admin import describe_classic_group
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.security_settings import security_of
from spark_groups.wire.timeouts import Timeouts

CLIENT_ID: Final = "spark-groups-observer"
OBSERVE_TIMEOUT_S: Final = 10.0
_GRACE_S: Final = 0.2
"""How long after the timeout connections are closed; until then the pending request may fail with
a more precise reason."""


class GroupObserver:
    """Reads groups repeatedly over the same connections; for one thread.

    Args:
        bootstrap_servers: `host:port` of one or more brokers.
        timeout_s: The timeout of one observation.
        security: TLS and authentication; None: neither.
        read_committed: Whether the groups skip records of aborted transactions.
        identity: Their cluster; None: the first one met.
        timeouts: Of connections and requests; None: those of a command within `timeout_s`.

    Raises:
        OptionsError: `bootstrap_servers` is empty or malformed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_s: float = OBSERVE_TIMEOUT_S,
        security: Security | None = None,
        read_committed: bool = False,
        identity: ClusterIdentity | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._timeouts = timeouts
        self._servers = parse_bootstrap_servers(bootstrap_servers)
        self._timeout_s = timeout_s
        self._security = security
        self._identity = identity or ClusterIdentity()
        self._cluster: Cluster | None = None
        self._unread_times = UnreadTimes(read_committed=read_committed)

    def __enter__(self) -> GroupObserver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def view(self, group_id: str) -> GroupView:
        """Read a group, its lag in time, and the snapshots of its members on this machine.

        Raises as `observe` does.
        """
        deadline = time.monotonic() + self._timeout_s
        reading = self.observe(group_id)
        if self._cluster is not None:
            unread = self._unread_times.read(
                self._cluster,
                reading.unread_offsets(),
                reading.topic_names(),
                deadline - time.monotonic(),
            )
            reading = replace(reading, unread=unread)
        return view_group(reading, read_snapshots(group_id))

    def observe(self, group_id: str, *, timeout_s: float | None = None) -> GroupReading:
        """Read description, offsets and topics of a consumer or classic group.

        Raises:
            GroupNotFoundError: The group does not exist, or has another protocol.
            BrokerUnreachableError: A request failed or timed out; names the addresses.
            ProtocolError: A broker returned an error, or a response cannot be decoded.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        if self._cluster is None:
            self._cluster = Cluster(
                [str(server) for server in self._servers],
                client_id=CLIENT_ID,
                security=self._security,
                timeouts=self._timeouts,
                request_timeout_s=self._timeout_s,
                identity=self._identity,
            )
        cluster = self._cluster
        # Each call may take the whole timeout; this timer limits all calls together.
        unreached: list[str] = []

        def end() -> None:
            unreached.extend(cluster.unreached())
            cluster.shutdown()

        cut_off = threading.Timer(limit_s + _GRACE_S, end)
        cut_off.daemon = True
        cut_off.start()
        try:
            return _read_group(cluster, group_id)
        except RequestError as error:
            # A cluster that was shut down cannot be used again.
            self.close()
            reason = error.reason
            if time.monotonic() > deadline + _GRACE_S:
                reason = not_answered(limit_s, unreached)
            raise BrokerUnreachableError(f"{self._addresses()}: {reason}") from error
        finally:
            cut_off.cancel()

    def _addresses(self) -> str:
        return ",".join(str(server) for server in self._servers)


def not_answered(limit_s: float, unreached: Iterable[str]) -> str:
    """Return the reason of requests that were cut off.

    Args:
        limit_s: When they were.
        unreached: Brokers that could not be reached by then, each with its reason.
    """
    return "; ".join((f"brokers did not answer all requests within {limit_s:g} s", *unreached))


def describe(
    group_id: str,
    bootstrap_servers: str,
    *,
    settings: Mapping[str, str] | None = None,
    timeout_s: float = OBSERVE_TIMEOUT_S,
) -> GroupView:
    """Read a group as `spark-groups describe` shows it: members, partitions, offsets and lag.

    Reading neither joins nor commits. Classic groups are supported. Members that run on this
    machine as this user have `local`. `to_json()` is the document of `describe --json`.

    Args:
        bootstrap_servers: `host:port` of one or more brokers, separated by commas.
        settings: Kafka client settings by name, such as `security.protocol`.
        timeout_s: The timeout for all requests together.

    Raises:
        GroupNotFoundError: The group does not exist, or has another protocol.
        OptionsError: An address or a setting is invalid.
        BrokerUnreachableError: A request failed or timed out; names the addresses.
        ProtocolError: A broker returned an error, or a response cannot be decoded.
    """
    security = security_of(settings, prefix="") if settings else None
    with GroupObserver(bootstrap_servers, timeout_s=timeout_s, security=security) as observer:
        return observer.view(group_id)


def _described_if_found(cluster: Cluster, group_id: str) -> DescribeGroupResponse | None:
    request = DescribeGroupRequest(group_id=group_id, include_authorized_operations=True)
    described = cluster.describe_group(request)
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    refuse(described.error_code, f"ConsumerGroupDescribe of {group_id!r}", described.error_message)
    return described


def describe_any_group(cluster: Cluster, group_id: str) -> tuple[GroupType, DescribeGroupResponse]:
    """Return the protocol and the description of a consumer or classic group.

    Raises:
        GroupNotFoundError: The group does not exist, or has another protocol.
        RequestError: The coordinator did not answer in time.
        ProtocolError: It returned an error, or a response cannot be decoded.
    """
    described = _described_if_found(cluster, group_id)
    if described is not None:
        return GroupType.CONSUMER, described
    group = describe_classic_group(cluster, group_id)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise GroupNotFoundError(why_not_found(group_id, cluster.list_groups()))
    refuse(group.error_code, f"DescribeGroups of {group_id!r}", group.error_message)
    names = {name for member in group.members for name in member.subscribed_topic_names}
    names |= {has.topic for member in group.members for has in member.assignment}
    request = MetadataRequest(topic_names=frozenset(names))
    topics = cluster.metadata(request).topics if names else ()
    return GroupType.CLASSIC, described_as_consumer_group(group_id, group, topics)


def known_offsets(
    cluster: Cluster, group_id: str, wanted: Container[TopicIdPartition] | None = None
) -> dict[TopicIdPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; a partition that has none is missing.

    Args:
        wanted: The partitions whose offsets must be known; None: all.

    Raises:
        ProtocolError: The coordinator refused, or an offset is unknown; names partition and cure.
    """
    found, failed = found_and_failed(cluster.fetch_all_offsets(group_id))
    unknown = {key: code for key, code in failed.items() if wanted is None or key in wanted}
    if unknown:
        request = MetadataRequest(topic_ids=frozenset(key.topic_id for key in unknown))
        names = {topic.topic_id: topic.name for topic in cluster.metadata(request).topics}
        raise ProtocolError(
            why_unknown(
                f"committed offset of group {group_id!r}",
                {
                    TopicPartition(
                        names.get(key.topic_id) or topic_id_text(key.topic_id), key.partition
                    ): code
                    for key, code in unknown.items()
                },
            )
        )
    return {key: each for key, each in found.items() if each.committed_offset != NO_OFFSET}


def why_unknown(what: str, codes: Mapping[TopicPartition, int]) -> str:
    """Return which offsets are unknown, by which errors, and what to do.

    Args:
        what: The kind of the offsets.
        codes: Kafka's error code of each partition.
    """
    return "; ".join(
        f"the {what} is unknown for {partition_ranges(e for e in codes if codes[e] == code)}:"
        f" {ErrorCode.name_of(code)}, {rule_for(code).remedy}"
        for code in sorted(set(codes.values()))
    )


def _read_group(cluster: Cluster, group_id: str) -> GroupReading:
    group_type, described = describe_any_group(cluster, group_id)
    committed = cluster.fetch_all_offsets(group_id)
    reading = GroupReading(
        description=described,
        group_type=group_type,
        coordinator=cluster.coordinator_of(group_id),
        committed=committed,
        topics=_read_topics(cluster, described, committed),
    )
    partitions = reading.partitions()
    if not partitions:
        return reading
    starts, ends = (
        cluster.list_offsets(ListOffsetsRequest(partitions=partitions, timestamp_ms=timestamp))
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )
    return replace(reading, log_starts=starts, log_ends=ends)


def _read_topics(
    cluster: Cluster, described: DescribeGroupResponse, committed: Fetched
) -> tuple[TopicMetadata, ...]:
    """Request topics with partitions in the group by id, other subscribed topics by name."""
    topic_ids = {each.topic_id for each in committed}
    topic_names: set[str] = set()
    for member in described.members:
        held = member.assignment | member.target_assignment
        topic_ids.update(partition.topic_id for partition in held.partitions)
        topic_names.update(member.subscribed_topic_names)
    topic_names -= set(described.topic_names.values())
    if not topic_ids and not topic_names:
        return ()
    request = MetadataRequest(topic_names=frozenset(topic_names), topic_ids=frozenset(topic_ids))
    unique = {topic.topic_id: topic for topic in cluster.metadata(request).topics}
    return tuple(unique.values())


def why_not_found(group_id: str, groups: tuple[ListedGroup, ...]) -> str:
    """Return why ConsumerGroupDescribe did not find a group; classic groups are not found."""
    for group in groups:
        if group.group_id == group_id and group.group_type.lower() != "consumer":
            kind = group.group_type.lower()
            state = f", {group.group_state}" if group.group_state else ""
            tool = "spark-groups describe" if kind == "classic" else f"kafka-{kind}-groups.sh"
            return (
                f"group {group_id!r} is a {kind} group{state}, not a group of the consumer protocol"
                f" (KIP-848): {tool} shows it"
            )
    known = [e.group_id for e in groups if e.group_type.lower() in ("consumer", "classic")]
    near = nearest(group_id, known)
    if near is not None:
        return f"there is no group {group_id!r}: did you mean {near!r}?"
    there = f"{len(known)} consumer groups" if len(known) != 1 else "1 consumer group"
    return f"there is no group {group_id!r}: the cluster has {there}, none with a similar name"
