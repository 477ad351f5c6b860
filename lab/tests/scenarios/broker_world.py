"""The world of a real broker: requests over sockets, time that passes by itself."""

from __future__ import annotations

import contextlib
import itertools
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lab.tests.scenarios.broker_wire import (
    CONFIG_SOURCES,
    OFFSET_COMMIT_V8,
    SAFE_DOWNGRADE,
    UPDATE_FEATURES,
    UPGRADE,
    by_topic,
    classic_from_wire,
    classic_to_wire,
    operated,
    topic_of,
)
from lab.tests.scenarios.classic import ClassicConsumer
from lab.tests.scenarios.world import (
    CLIENT_ID,
    ClassicRequest,
    ClassicResponse,
    Listed,
    Operated,
    Operation,
)
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import NO_PARTITIONS, TopicId, TopicIdPartition
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import (
    ConfigResource,
    alteration_to_wire,
    configuration_from_wire,
    configurations_to_wire,
)
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.coordinator_connection import exchange
from spark_groups.wire.group_settings import group_settings
from spark_groups.wire.schemas.wire_messages import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    OFFSET_COMMIT_V9,
    OFFSET_COMMIT_V10,
    OFFSET_FETCH_V9,
    OFFSET_FETCH_V10,
)
from workshop.parts import brokers
from workshop.parts.waiting import wait_until

SERVER_PROPERTIES = {
    # The probe's group stands for all groups: there is one shard of the coordinator.
    "offsets.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "20000",
    "group.consumer.max.size": "5",
    "group.max.size": "5",
    "group.min.session.timeout.ms": "1000",
    # Long enough for several members to join an empty group of the classic protocol together.
    "group.initial.rebalance.delay.ms": "1000",
    # So that a commit of few partitions can be too large.
    "offset.metadata.max.bytes": "32000",
    # Where resources have no rules everybody may do everything, as without an authorizer.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
BATCHING = {"group.consumer.assignment.interval.ms": "0"}
"""Only from Kafka 4.3 on; older ones have no batching to switch off."""
MIGRATION_POLICY = "group.consumer.migration.policy"

ANSWER_S = 120.0
WAITING_S = 1800.0
"""How long an answer to a join or a sync may take: longer than a script on a slow machine."""
SETTLED, SETTLED_S = 2, 0.05
"""Rounds of the probe, and a pause, after which a request on another connection is handled, and the
answer has arrived."""
COMMITS = {8: OFFSET_COMMIT_V8, 9: OFFSET_COMMIT_V9, 10: OFFSET_COMMIT_V10}
FETCHES = {9: OFFSET_FETCH_V9, 10: OFFSET_FETCH_V10}
PROBE = "probe"


class SentRequest:
    """A request of the classic protocol on a connection of its own.

    Args:
        connection: The connection, which answers nothing else until then.
        request: The request.
        answered: Called with the connection once it is free again.
    """

    def __init__(
        self,
        connection: Connection,
        request: ClassicRequest,
        answered: Callable[[Connection], None],
    ) -> None:
        self._connection, self._request, self._answered = connection, request, answered
        self._answer: ClassicResponse | None = None
        connection.send(*classic_to_wire(request), WAITING_S)

    def answer(self) -> ClassicResponse | None:
        """Return the answer, None as long as there is none: for ever, if the broker stopped."""
        is_open = self._connection.is_open
        if self._answer is None and is_open and select.select([self._connection], [], [], 0.0)[0]:
            self._answer = classic_from_wire(self._request, self._connection.receive())
            self._answered(self._connection)
        return self._answer


class BrokerWorld:
    """One running broker for one scenario at a time; `end` takes away what a scenario made.

    Args:
        bootstrap_servers: The broker.
        restart: Stops it and starts it again; None where no script wants that.
    """

    def __init__(self, bootstrap_servers: str, restart: Callable[[], None] | None = None) -> None:
        self._servers = bootstrap_servers
        self._restart = restart
        self._connections: dict[str, Connection] = {}
        self._free: dict[str, list[Connection]] = {}
        self._waiting: list[Connection] = []
        self._cluster = Cluster(bootstrap_servers, client_id=CLIENT_ID)
        self._admin: AdminClient = brokers.admin(bootstrap_servers)
        self._topics: set[str] = set()
        self._consumers: list[ClassicConsumer] = []
        self._feature: tuple[str, int] | None = None
        self._is_restricted = False
        self._probe_interval_ms = itertools.cycle(range(501, 1_000))
        self._probe_numbers = itertools.count()
        self._await_coordinator()

    @property
    def _connection(self) -> Connection:
        return self._connected(CLIENT_ID)

    def _connected(self, client_id: str) -> Connection:
        """Return the open connection of a client id."""
        if client_id not in self._connections:
            self._connections[client_id] = self._opened(client_id)
        return self._connections[client_id]

    def _opened(self, client_id: str) -> Connection:
        (address,) = parse_bootstrap_servers(self._servers)
        connection = Connection(address.host, address.port, client_id=client_id)
        connection.connect(ANSWER_S)
        return connection

    def _await_coordinator(self) -> None:
        # Asking for the first group's coordinator is what makes the broker have one.
        self._cluster.find_coordinator(m.FindCoordinatorRequest(group_id=PROBE))
        wait_until(lambda: self._probed(()) is not None, what="the coordinator of the broker")

    def end(self) -> None:
        """Take away what the scenario made, for the next one."""
        for consumer in self._consumers:
            consumer.close()
        self._consumers.clear()
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()
        if self._feature is not None:
            self.set_feature(self._feature[0], 1)
            self._feature = None
        if self._is_restricted:
            everything = AclBindingFilter(
                *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
                *(AclOperation.ANY, AclPermissionType.ANY),
            )
            for future in self._admin.delete_acls([everything]).values():
                future.result(ANSWER_S)
            self._is_restricted = False
            for name in sorted(self._topics):
                self._await_access(name)
        for name in sorted(self._topics):
            self.delete_topic(name)

    def close(self) -> None:
        """Close all connections."""
        self._disconnect()
        self._cluster.close()

    def _disconnect(self) -> None:
        free = itertools.chain.from_iterable(self._free.values())
        for connection in (*self._connections.values(), *free, *self._waiting):
            connection.close()
        self._connections.clear()
        self._free.clear()
        self._waiting.clear()

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    # Topics.

    def create_topic(self, name: str, partitions: int) -> TopicId:
        assert name not in self._topics, f"topic {name} is there already"
        self._topics.add(name)
        brokers.create_topic(self._servers, name, partitions)
        self._await_probe((name,), partitions)
        (topic,) = self._cluster.metadata(m.MetadataRequest(topic_names=frozenset({name}))).topics
        return topic.topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        brokers.grow_topic(self._servers, name, partitions)
        self._await_probe((name,), partitions)

    def delete_topic(self, name: str) -> None:
        self._topics.discard(name)
        brokers.delete_topic(self._servers, name)
        self._await_probe((name,), 0)

    def produce(self, topic: str, rows: Mapping[int, int]) -> None:
        values = [brokers.Row(b"v", partition=each) for each in rows for _ in range(rows[each])]
        brokers.produce(self._servers, topic, values)

    # Requests.

    def ask(self, request: m.Request, client_id: str = CLIENT_ID) -> m.Response | m.RequestFailed:
        try:
            match request:
                case m.MetadataRequest():
                    return self._cluster.metadata(request)
                case m.ListOffsetsRequest():
                    return self._cluster.list_offsets(request)
                case m.OffsetForLeaderEpochRequest():
                    return self._cluster.epoch_ends(request)
                case m.GroupSettingsRequest():
                    found = group_settings(self._cluster, request.group_id)
                    return m.GroupSettingsResponse(
                        session_timeout_ms=found.session_timeout_ms, reason=found.reason
                    )
                case _:
                    return exchange(self._connected(client_id), request, ANSWER_S)
        except RequestError as error:
            return error.as_failure()

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> SentRequest:
        free = self._free.setdefault(client_id, [])
        usable = free and free[-1].is_usable()
        connection = free.pop() if usable else self._opened(client_id)
        self._waiting.append(connection)

        def answered(connection: Connection) -> None:
            self._waiting.remove(connection)
            free.append(connection)

        return SentRequest(connection, request, answered)

    def settle(self) -> None:
        # One shard handles requests in turn: it answers the probe after those sent before it.
        for _ in range(SETTLED):
            self._probed(())
        time.sleep(SETTLED_S)

    def commit(
        self, request: m.OffsetCommitRequest, names: Mapping[TopicId, str], api_version: int
    ) -> Mapping[tuple[TopicId, int], int]:
        message = COMMITS[api_version]
        if not self._connection.supports(message):
            unsupported = int(ErrorCode.UNSUPPORTED_VERSION)
            return {(key.topic_id, key.partition): unsupported for key in request.offsets}
        topics = [
            {
                **called,
                "partitions": [
                    {
                        "partition_index": key.partition,
                        "committed_offset": request.offsets[key].committed_offset,
                        "committed_leader_epoch": request.offsets[key].leader_epoch,
                        "committed_metadata": request.offsets[key].metadata,
                    }
                    for key in keys
                ],
            }
            for called, keys in by_topic(request.offsets, names, api_version)
        ]
        values = {
            "group_id": request.group_id,
            "generation_id_or_member_epoch": request.member_epoch,
            "member_id": request.member_id,
            "group_instance_id": request.instance_id,
            "topics": topics,
        }
        answer = self._connection.request(message, values, ANSWER_S)
        asked = {key.topic_id: names.get(key.topic_id, "") for key in request.offsets}
        return {
            (topic_of(topic, asked), each["partition_index"]): each["error_code"]
            for topic in answer["topics"]
            for each in topic["partitions"]
        }

    def fetch(
        self, request: m.OffsetFetchRequest, names: Mapping[TopicId, str], api_version: int
    ) -> m.OffsetFetchResponse:
        message = FETCHES[api_version]
        if not self._connection.supports(message):
            return m.OffsetFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        group = {
            "group_id": request.group_id,
            "member_id": request.member_id,
            "member_epoch": request.member_epoch,
            "topics": [
                {**called, "partition_indexes": [key.partition for key in keys]}
                for called, keys in by_topic(request.partitions, names, api_version)
            ],
        }
        asked = {"groups": [group], "require_stable": True}
        (answer,) = self._connection.request(message, asked, ANSWER_S)["groups"]
        by_id = {key.topic_id: names.get(key.topic_id, "") for key in request.partitions}
        answers: dict[TopicIdPartition, m.OffsetAndMetadata | m.PartitionError] = {}
        for topic in answer["topics"]:
            for each in topic["partitions"]:
                key = TopicIdPartition(topic_of(topic, by_id), each["partition_index"])
                if each["error_code"]:
                    answers[key] = m.PartitionError(each["error_code"])
                else:
                    answers[key] = m.OffsetAndMetadata(
                        each["committed_offset"], each["metadata"], each["committed_leader_epoch"]
                    )
        return m.OffsetFetchResponse(error_code=answer["error_code"], answers=answers)

    def list_groups(self, states: tuple[str, ...], types: tuple[str, ...]) -> list[Listed]:
        return [
            Listed(each.group_id, each.group_type, each.group_state)
            for each in self._cluster.list_groups(states=states, types=types)
        ]

    def await_patterns(self) -> None:
        """Wait until a pattern of another group is looked up: that is done in turn."""
        if PROBE not in self._topics:
            self.create_topic(PROBE, 1)
        group_id = f"{PROBE}-{next(self._probe_numbers)}"
        join = m.HeartbeatRequest(
            group_id=group_id,
            member_id=PROBE,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex=PROBE,
            topic_partitions=NO_PARTITIONS,
        )
        joined = self.ask(join)
        assert isinstance(joined, m.HeartbeatResponse), joined
        beat = m.HeartbeatRequest(
            group_id=group_id, member_id=PROBE, member_epoch=joined.member_epoch
        )

        def has_found() -> bool:
            answer = self.ask(beat)
            return isinstance(answer, m.HeartbeatResponse) and bool(answer.assignment)

        wait_until(has_found, what="the lookup of a pattern")
        self.ask(replace(beat, member_epoch=-1))

    # What operators do.

    def operate(self, request: Operation) -> Operated:
        return operated(self._connection, request, ANSWER_S)

    def restart(self) -> None:
        assert self._restart is not None, "this broker cannot be restarted"
        self._disconnect()
        self._restart()
        self._await_coordinator()

    def configure(self, group_id: str, values: Mapping[str, str | None]) -> tuple[int, str]:
        answer = self._alter(group_id, values)
        if answer[0] == ErrorCode.NONE:
            # Settings take effect in the order they were made: once the probe has got a new one
            # of its own, the coordinator has this one.
            interval_ms = next(self._probe_interval_ms)
            self._alter(PROBE, {"consumer.heartbeat.interval.ms": str(interval_ms)})
            wait_until(lambda: self._probed(()) == (interval_ms, 0), what="the settings of a group")
        return answer

    def _alter(self, group_id: str, values: Mapping[str, str | None]) -> tuple[int, str]:
        asked = alteration_to_wire(ConfigResource.GROUP, group_id, values)
        (answer,) = self._connection.request(INCREMENTAL_ALTER_CONFIGS, asked, ANSWER_S)[
            "responses"
        ]
        return answer["error_code"], answer["error_message"] or ""

    def configuration(self, group_id: str) -> dict[str, tuple[str, str]]:
        asked = configurations_to_wire(ConfigResource.GROUP, (group_id,), None)
        answer = self._connection.request(DESCRIBE_CONFIGS, asked, ANSWER_S)
        return {
            name: (str(entry.value), CONFIG_SOURCES[entry.origin])
            for name, entry in configuration_from_wire(answer, group_id).items()
        }

    def set_feature(self, name: str, level: int) -> None:
        update = {
            "feature": name,
            "max_version_level": level,
            "upgrade_type": UPGRADE if level else SAFE_DOWNGRADE,
        }
        asked = {"timeout_ms": 5_000, "feature_updates": [update], "validate_only": False}
        answer = self._connection.request(UPDATE_FEATURES, asked, ANSWER_S)
        assert answer["error_code"] == ErrorCode.NONE, answer
        self._feature = (name, level) if level == 0 else None
        wait_until(
            lambda: (self._probed(()) is None) == (level == 0), what=f"{name} at level {level}"
        )

    def allow(self, resource: str, name: str, operation: str) -> None:
        kind = {"group": ResourceType.GROUP, "topic": ResourceType.TOPIC}[resource]
        binding = AclBinding(
            *(kind, name, ResourcePatternType.LITERAL),
            "User:ANONYMOUS" if operation != "nothing" else "User:somebody-else",
            "*",
            AclOperation[operation] if operation != "nothing" else AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        self._is_restricted = True
        for future in self._admin.create_acls([binding]).values():
            future.result(ANSWER_S)

    def classic_client(
        self, client_id: str, group_id: str, topic: str, strategy: str
    ) -> ClassicConsumer:
        consumer = ClassicConsumer(self._servers, client_id, group_id, topic, strategy)
        self._consumers.append(consumer)
        return consumer

    # The probe: a member of its own group that shows what the coordinator knows.

    def _await_probe(self, topics: tuple[str, ...], partitions: int) -> None:
        wait_until(
            self._knows(topics, partitions),
            what=f"the coordinator to know {partitions} partitions of {topics}",
        )

    def _await_access(self, name: str) -> None:
        wait_until(lambda: self._probed((name,)) is not None, what=f"access to {name}")

    def _knows(self, topics: tuple[str, ...], partitions: int) -> Callable[[], bool]:
        def known() -> bool:
            probed = self._probed(topics)
            return probed is not None and probed[1] == partitions

        return known

    def _probed(self, topics: tuple[str, ...]) -> tuple[int, int] | None:
        """Join and leave: interval and number of partitions, None if the coordinator refuses."""
        join: dict[str, Any] = {"group_id": PROBE, "member_id": PROBE}
        answer = self.ask(
            m.HeartbeatRequest(
                **join,
                member_epoch=0,
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=topics,
                topic_partitions=NO_PARTITIONS,
            )
        )
        if not isinstance(answer, m.HeartbeatResponse) or answer.error_code != ErrorCode.NONE:
            return None
        with contextlib.suppress(RequestError):
            self.ask(m.HeartbeatRequest(**join, member_epoch=-1))
        return answer.heartbeat_interval_ms, len(answer.assignment or NO_PARTITIONS)


class StartWorld(Protocol):
    """Starts the world of a broker, or returns the one that runs."""

    def __call__(self, version: str, migration_policy: str | None = None) -> BrokerWorld:
        """Return the world of a version, with Kafka's migration policy or another one."""
