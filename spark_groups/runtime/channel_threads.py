"""Threads that send a client's requests to brokers and return the answers: one for each channel."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from spark_groups.errors import AccessError, ProtocolError
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    FindCoordinatorRequest,
    GroupSettingsRequest,
    GroupSettingsResponse,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    Node,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    RequestFailed,
    Response,
    SampleRecordsRequest,
    SampleRecordsResponse,
)
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import AnotherClusterError, RequestError
from spark_groups.wire.coordinator_connection import CoordinatorConnection
from spark_groups.wire.group_settings import SESSION_TIMEOUT_MS, group_settings
from spark_groups.wire.security.security import Security
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts

Answered = Callable[[Outgoing, "Response | RequestFailed"], None]
Crashed = Callable[[BaseException], None]


class ChannelThreads:
    """Sends one request on each channel at a time.

    Args:
        answered: Called in a channel's thread with each answer, or the reason for a missing one.
        crashed: Called when a channel's thread fails with another error; with an AccessError when a
            broker refuses the client, and with an AnotherClusterError if not one address led to the
            cluster yet, while the threads continue.
        identity: The cluster, shared with other connections to it; None: the first one met.
    """

    def __init__(
        self,
        bootstrap_servers: tuple[str, ...],
        *,
        client_id: str,
        security: Security,
        answered: Answered,
        crashed: Crashed,
        timeouts: Timeouts = USUAL_TIMEOUTS,
        identity: ClusterIdentity | None = None,
    ) -> None:
        self._answered = answered
        self._crashed = crashed
        self._identity = identity = identity or ClusterIdentity()
        self._search, self._cluster, self._leaders = (
            Cluster(
                bootstrap_servers,
                client_id=client_id,
                security=security,
                timeouts=timeouts,
                identity=identity,
            )
            for _ in range(3)
        )
        self._coordinators = {
            channel: CoordinatorConnection(
                client_id=client_id, security=security, timeouts=timeouts, identity=identity
            )
            for channel in Channel
            if channel.leads_to_coordinator
        }
        self._inbox: dict[Channel, queue.SimpleQueue[Outgoing | None]] = {
            channel: queue.SimpleQueue() for channel in Channel
        }
        self._offsets_node: Node | None = None
        self._threads = [
            threading.Thread(
                target=self._carry,
                args=(channel,),
                name=f"kafka-group-{channel.name.lower()}",
                daemon=True,
            )
            for channel in Channel
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def send(self, outgoing: Outgoing) -> None:
        """Queue a request; `answered` receives the answer in another thread."""
        self._inbox[outgoing.channel].put(outgoing)

    def coordinator_is(self, node: Node) -> None:
        """Interrupt a request to another coordinator, which would wait until its deadline."""
        if self._offsets_node not in (None, node):
            self._coordinators[Channel.OFFSETS].interrupt()

    def shutdown(self, timeout_s: float) -> None:
        """Interrupt all requests and end the threads, waiting `timeout_s` for each."""
        for channel in self._coordinators.values():
            channel.shutdown()
        for cluster in (self._search, self._cluster, self._leaders):
            cluster.shutdown()
        for inbox in self._inbox.values():
            inbox.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(timeout_s)

    def _carry(self, channel: Channel) -> None:
        try:
            while (outgoing := self._inbox[channel].get()) is not None:
                self._answered(outgoing, self._ask(outgoing))
        except Exception as error:
            self._crashed(error)
        finally:
            match channel:
                case Channel.SEARCH:
                    self._search.close()
                case Channel.CLUSTER:
                    self._cluster.close()
                case Channel.TRIGGER:
                    self._leaders.close()
                case _:
                    self._coordinators[channel].close()

    def _ask(self, outgoing: Outgoing) -> Response | RequestFailed:
        try:
            if outgoing.node is None:
                return self._ask_cluster(outgoing)
            return self._ask_coordinator(outgoing, outgoing.node)
        except RequestError as error:
            if isinstance(error, AnotherClusterError) and not self._identity.is_met:
                self._crashed(error)
            return error.as_failure()
        except ProtocolError as error:
            return RequestFailed(str(error), may_have_arrived=True)
        except AccessError as error:
            self._crashed(error)
            return RequestFailed(str(error), may_have_arrived=True)

    def _ask_coordinator(self, outgoing: Outgoing, node: Node) -> Response:
        request = outgoing.request
        assert isinstance(
            request,
            HeartbeatRequest | OffsetCommitRequest | OffsetFetchRequest | DescribeGroupRequest,
        )
        if outgoing.channel is Channel.OFFSETS:
            self._offsets_node = node
        return self._coordinators[outgoing.channel].send(node, request, outgoing.timeout_s)

    def _ask_cluster(self, outgoing: Outgoing) -> Response:
        request = outgoing.request
        cluster = {Channel.SEARCH: self._search, Channel.TRIGGER: self._leaders}.get(
            outgoing.channel, self._cluster
        )
        # A longer call would hide its reason; a connection that it began is used by the next one.
        cluster.call_s = outgoing.timeout_s
        match request:
            case FindCoordinatorRequest():
                return cluster.find_coordinator(request)
            case MetadataRequest():
                return cluster.metadata(request)
            case ListOffsetsRequest():
                return cluster.list_offsets(request)
            case OffsetForLeaderEpochRequest():
                return cluster.epoch_ends(request)
            case SampleRecordsRequest():
                found = cluster.sample_records(
                    request.offsets,
                    read_committed=request.read_committed,
                    timeout_s=request.timeout_s,
                )
                return SampleRecordsResponse(
                    samples=found.samples,
                    reached=found.reached,
                    problem=", ".join(sorted({*found.unknown.values()})),
                )
            case GroupSettingsRequest():
                settings = group_settings(cluster, request.group_id)
                setting = settings.of(SESSION_TIMEOUT_MS)
                return GroupSettingsResponse(
                    session_timeout_ms=settings.session_timeout_ms,
                    session_timeout_max_ms=None if setting is None else setting.maximum,
                    reason=settings.reason,
                )
            case other:
                raise TypeError(f"{type(other).__name__} does not go to any broker")
