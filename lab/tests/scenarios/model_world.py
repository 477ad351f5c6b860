"""The world of the model: one shard of a coordinator, and a clock that tests advance."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from group_lab.coordinator import messages as c
from group_lab.coordinator.log import Log
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.settings import (
    BrokerSettings,
    ConfigSource,
    MigrationPolicy,
    Settings,
    alter,
    describe_config,
)
from group_lab.coordinator.shard import Origin, Shard, Ticket
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.scenarios.world import (
    CLIENT_ID,
    ClassicClient,
    ClassicRequest,
    ClassicResponse,
    Listed,
    Operated,
    Operation,
)
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import LATEST_TIMESTAMP, TopicId, TopicIdPartition
from tests.answers import epoch_answer, list_answer

SETTINGS = BrokerSettings(
    session_timeout_s=20.0,
    min_session_timeout_s=1.0,
    heartbeat_interval_s=0.5,
    min_heartbeat_interval_s=0.1,
    max_size=5,
    classic_max_size=5,
    classic_min_session_timeout_s=1.0,
    classic_initial_rebalance_delay_s=1.0,
    assignment_interval_s=0.0,
    offset_metadata_max_bytes=32_000,
)
"""Those of `broker_world.SERVER_PROPERTIES`."""

SOURCES = {
    ConfigSource.STATIC_BROKER: "the broker's file",
    ConfigSource.DEFAULT: "Kafka's default",
    ConfigSource.GROUP: "the group",
}
NODE = m.Node(1, "model", 9092)


class NotInTheModelError(Exception):
    """The model has no such thing; the message says what."""


@dataclass(frozen=True)
class Sent:
    """A request of the classic protocol.

    Args:
        ticket: It, at the coordinator.
    """

    ticket: Ticket

    def answer(self) -> ClassicResponse | None:
        """Return the answer, None as long as there is none."""
        answer = self.ticket.response
        assert answer is None or isinstance(answer, ClassicResponse)
        return answer


@dataclass
class ModelWorld:
    """A cluster of one coordinator, for one scenario.

    Args:
        profile: Which coordinator it behaves like.
        migration_policy: `group.consumer.migration.policy`.
        ids: Which ids topics and classic members get: brokers draw them, and orders depend on them.
    """

    profile: Profile
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    ids: int = 0
    _now: float = 1_000.0
    _settings: Settings = field(default_factory=lambda: Settings(SETTINGS))
    _rows: dict[TopicIdPartition, int] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        broker = replace(self._settings.broker, migration_policy=self.migration_policy)
        self._settings = replace(self._settings, broker=broker)
        self.shard = Shard(
            self.profile,
            self._settings,
            TopicsImage(),
            Log(),
            self._now,
            make_classic_id=lambda prefix: f"{prefix}-{self._drawn_id()}",
        )

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass: timers fire in their turn."""
        ends = self._now + seconds
        while (fires_at := self.shard.next_wakeup()) is not None and fires_at <= ends:
            self._now = max(self._now, fires_at)
            self.shard.wake(self._now)
            self.shard.replicate(self._now)
        self._now = ends

    # Topics.

    def create_topic(self, name: str, partitions: int, topic_id: TopicId | None = None) -> TopicId:
        """Create a topic; with an id, it is that of a broker's topic."""
        assert name not in self.shard.topics.by_name, f"topic {name} is there already"
        topic = TopicImage(topic_id or self._drawn_id(), name, partitions)
        self.shard.set_topics(self.shard.topics.with_topic(topic), self._now)
        return topic.topic_id

    def _drawn_id(self) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.ids}-{next(self._ids)}")

    def grow_topic(self, name: str, partitions: int) -> None:
        grown = replace(self.shard.topics.by_name[name], partition_count=partitions)
        self.shard.set_topics(self.shard.topics.with_topic(grown), self._now)

    def delete_topic(self, name: str) -> None:
        self.shard.set_topics(self.shard.topics.without(name), self._now)

    def produce(self, topic: str, rows: Mapping[int, int]) -> None:
        for partition, count in rows.items():
            key = TopicIdPartition(self.shard.topics.by_name[topic].topic_id, partition)
            self._rows[key] = self._rows.get(key, 0) + count

    # Requests.

    def ask(self, request: m.Request, client_id: str = CLIENT_ID) -> m.Response | m.RequestFailed:
        answer: m.Response
        match request:
            case m.MetadataRequest():
                answer = self._metadata(request)
            case m.ListOffsetsRequest():
                answer = self._offsets(request)
            case m.OffsetForLeaderEpochRequest():
                ends = {key: m.EpochEnd(self._rows.get(key, 0), 0) for key in request.lookups}
                answer = epoch_answer(ends=ends)
            case m.FindCoordinatorRequest():
                answer = m.FindCoordinatorResponse(coordinator=NODE)
            case m.GroupSettingsRequest():
                session_s = self._settings.session_timeout_s(request.group_id)
                answer = m.GroupSettingsResponse(session_timeout_ms=round(session_s * 1000))
            case m.OffsetCommitRequest() | m.OffsetFetchRequest():
                # As this project's connections do: the newest version that the broker has.
                answer = self._ask(request, 10 if self.profile.commits_topic_ids else 9)
            case m.HeartbeatRequest() | m.DescribeGroupRequest():
                answer = self._ask(request, 1, client_id)
        return answer

    def _ask(
        self, request: c.CoordinatorRequest, api_version: int, client_id: str = CLIENT_ID
    ) -> m.Response:
        answer = self.shard.ask(request, self._now, Origin(client_id), api_version)
        assert isinstance(answer, m.Response)
        return answer

    def _metadata(self, request: m.MetadataRequest) -> m.MetadataResponse:
        return m.MetadataResponse(
            topics=tuple(
                m.TopicMetadata(each.topic_id, each.name, each.partition_count)
                for each in self.shard.topics.by_name.values()
                if each.name in request.topic_names or each.topic_id in request.topic_ids
            )
        )

    def _offsets(self, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
        is_latest = request.timestamp_ms == LATEST_TIMESTAMP
        there = [key for key in request.partitions if self.shard.topics.by_id(key.topic_id)]
        offsets = {key: self._rows.get(key, 0) if is_latest else 0 for key in there}
        return list_answer(offsets=offsets, leader_epochs=dict.fromkeys(there, 0))

    def send(self, request: ClassicRequest, client_id: str = CLIENT_ID) -> Sent:
        ticket = self.shard.submit(request, self._now, Origin(client_id))
        self.shard.replicate(self._now)
        return Sent(ticket)

    def settle(self) -> None:
        pass

    def commit(
        self, request: m.OffsetCommitRequest, names: Mapping[TopicId, str], api_version: int
    ) -> Mapping[tuple[TopicId, int], int]:
        if not self._supports(api_version):
            unsupported = int(ErrorCode.UNSUPPORTED_VERSION)
            return {(key.topic_id, key.partition): unsupported for key in request.offsets}
        asked = {self._called(key, names, api_version): key for key in request.offsets}
        offsets = {key: request.offsets[asked[key]] for key in asked}
        answer = self._ask(replace(request, offsets=offsets), api_version)
        assert isinstance(answer, m.OffsetCommitResponse)
        return {(asked[key].topic_id, key.partition): code for key, code in answer.errors.items()}

    def fetch(
        self, request: m.OffsetFetchRequest, names: Mapping[TopicId, str], api_version: int
    ) -> m.OffsetFetchResponse:
        if not self._supports(api_version):
            return m.OffsetFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        asked = {self._called(key, names, api_version): key for key in request.partitions}
        answer = self._ask(replace(request, partitions=frozenset(asked)), api_version)
        assert isinstance(answer, m.OffsetFetchResponse)
        return replace(answer, answers={asked[key]: each for key, each in answer.answers.items()})

    def _supports(self, api_version: int) -> bool:
        return api_version < 10 or self.profile.commits_topic_ids

    def _called(
        self, key: TopicIdPartition, names: Mapping[TopicId, str], api_version: int
    ) -> TopicIdPartition:
        """Return what a request by name, before v10, is about: the topic that has the name now."""
        topic = self.shard.topics.by_name.get(names.get(key.topic_id, ""))
        if api_version >= 10 or topic is None:
            return key
        return TopicIdPartition(topic.topic_id, key.partition)

    def list_groups(self, states: tuple[str, ...], types: tuple[str, ...]) -> list[Listed]:
        request = c.ListGroupsRequest(states_filter=states, types_filter=types)
        answer = self.operate(request)
        assert isinstance(answer, c.ListGroupsResponse)
        return [Listed(each.group_id, each.group_type, each.group_state) for each in answer.groups]

    def await_patterns(self) -> None:
        self.sleep(0.0)

    # What operators do.

    def operate(self, request: Operation) -> Operated:
        answer = self.shard.ask(request, self._now, Origin(CLIENT_ID))
        assert isinstance(answer, Operated)
        return answer

    def configure(self, group_id: str, values: Mapping[str, str | None]) -> tuple[int, str]:
        request = c.AlterGroupConfigRequest(group_id=group_id, changes=values)
        self._settings, answer = alter(self._settings, request, self.profile)
        self.shard.set_settings(self._settings, self._now)
        return answer.error_code, answer.error_message or ""

    def configuration(self, group_id: str) -> dict[str, tuple[str, str]]:
        request = c.DescribeGroupConfigRequest(group_id=group_id)
        answer = describe_config(self._settings, request, self.profile)
        return {
            name: (each.value, SOURCES[ConfigSource(each.source)])
            for name, each in answer.values.items()
        }

    def set_feature(self, name: str, level: int) -> None:
        raise NotInTheModelError("features of a cluster")

    def allow(self, resource: str, name: str, operation: str) -> None:
        raise NotInTheModelError("permissions")

    def restart(self, down_s: float = 0.0) -> None:
        """Load the log again; no timer fires while the coordinator is down."""
        self._now += down_s
        before = self.shard
        self.shard = Shard(self.profile, self._settings, before.topics, before.log, self._now)

    def classic_client(
        self, client_id: str, group_id: str, topic: str, strategy: str
    ) -> ClassicClient:
        raise NotInTheModelError("real consumers")
