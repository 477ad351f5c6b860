"""One group that is driven by hand: a heartbeat is decided, applied, and looked at."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from group_lab.coordinator import heartbeat, leaving
from group_lab.coordinator.effects import (
    NEWEST_API_VERSION,
    Outcome,
    RequestContext,
    Timer,
    TimerKey,
    TimerKind,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import GroupMember
from group_lab.coordinator.profile import KAFKA_4_3, PROFILES, Profile
from group_lab.coordinator.records import Record
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.shard import Origin, Shard, Ticket
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment, TopicIdPartition

FOO = uuid.UUID(int=0xF00)
BAR = uuid.UUID(int=0xBA2)
TOPICS = TopicsImage.of(
    (TopicImage(FOO, "foo", 6), TopicImage(BAR, "bar", 4)),
    version=1,
)
EVERY_PROFILE = pytest.mark.parametrize(
    "profile", tuple(PROFILES.values()), ids=lambda each: each.name
)
AT_ONCE = Settings(BrokerSettings(assignment_interval_s=0.0))


def foo(*partitions: int) -> Assignment:
    """Return partitions of the topic foo."""
    return Assignment.of({FOO: partitions})


def bar(*partitions: int) -> Assignment:
    """Return partitions of the topic bar."""
    return Assignment.of({BAR: partitions})


def given_at(epochs: dict[Assignment, int]) -> dict[TopicIdPartition, int]:
    """Return partitions with the member epoch at which they were given."""
    return {key: epoch for partitions, epoch in epochs.items() for key in partitions}


def group_of(group_id: str, *records: Record) -> ConsumerGroup:
    """Return the group that some records are of."""
    group = ConsumerGroup(group_id)
    for each in records:
        group.apply(each)
    return group


@dataclass
class Driven:
    """A group, the clock, and what surrounds them.

    Args:
        profile: Which coordinator it is.
        topics: The cluster's topics.
        settings: By default without an assignment interval.
    """

    profile: Profile = KAFKA_4_3
    topics: TopicsImage = TOPICS
    settings: Settings = AT_ONCE
    now: float = 1000.0
    api_version: int = 1
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup("g"))
    timers: dict[TimerKey, Timer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.group.first_epoch = self.profile.first_group_epoch

    @property
    def context(self) -> RequestContext:
        return RequestContext(
            now=self.now,
            topics=self.topics,
            settings=self.settings,
            client_id="client",
            client_host="/host",
            new_member_id=lambda: "made-here",
            new_classic_id=lambda _prefix: "made-here",
            api_version=self.api_version,
        )

    def take(self, outcome: Outcome[Any]) -> None:
        """Apply an outcome."""
        for record in outcome.records:
            self.group.apply(record)
        for timer in outcome.timers:
            if timer.at is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer
        if outcome.topics_version is not None:
            self.group.topics_version = outcome.topics_version

    def decide(
        self, member_id: str, member_epoch: int, **fields: Any
    ) -> Outcome[HeartbeatResponse]:
        """Send a heartbeat and apply what it brings."""
        request = HeartbeatRequest(
            group_id=self.group.group_id, member_id=member_id, member_epoch=member_epoch, **fields
        )
        outcome = heartbeat.heartbeat(self.group, request, self.profile, self.context)
        self.take(outcome)
        return outcome

    def send(self, member_id: str, member_epoch: int, **fields: Any) -> HeartbeatResponse:
        """Send a heartbeat and return the answer."""
        return self.decide(member_id, member_epoch, **fields).response

    def beat(self, member_id: str, **fields: Any) -> HeartbeatResponse:
        """Send a heartbeat with the epoch that the member has."""
        return self.send(member_id, self.member(member_id).member_epoch, **fields)

    def join(self, member_id: str, *topics: str, **fields: Any) -> HeartbeatResponse:
        """Join by topic names."""
        return self.send(member_id, 0, **(JOIN | {"subscribed_topic_names": topics} | fields))

    def fire(self, kind: TimerKind, member_id: str) -> None:
        """Let a timer fire that is set."""
        timer = self.timers.pop(TimerKey(kind, self.group.group_id, member_id))
        self.now = max(self.now, timer.at or 0.0)
        self.take(leaving.timed_out(self.group, timer, self.profile, self.context))

    def fence(self, *member_ids: str) -> Outcome[None]:
        """Take members out."""
        members = tuple(map(self.member, member_ids))
        outcome = leaving.fence(self.group, members, self.profile, self.context, None)
        self.take(outcome)
        return outcome

    def member(self, member_id: str) -> GroupMember:
        return self.group.members[member_id]


JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "topic_partitions": NO_PARTITIONS}


@dataclass
class ShardByHand:
    """A shard, and the clock; no request is sent, and no time passes, without a call.

    Args:
        replicates: Whether every append is replicated at once.
    """

    profile: Profile = KAFKA_4_3
    settings: Settings = field(default_factory=Settings)
    topics: TopicsImage = TOPICS
    log: Log = field(default_factory=Log)
    now: float = 0.0
    replicates: bool = True
    shard: Shard = field(init=False)
    answered: list[Ticket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fail_over()

    def fail_over(self) -> None:
        """Let another coordinator load the log."""
        self.shard = Shard(self.profile, self.settings, self.topics, self.log, self.now)

    def send(
        self, request: Any, *, client: str = "c", api_version: int = NEWEST_API_VERSION
    ) -> Ticket:
        """Send a request; its ticket may be unanswered."""
        ticket = self.shard.submit(request, self.now, Origin(client), api_version)
        self._after()
        return ticket

    def replicate(self) -> None:
        """Replicate all records."""
        self.shard.replicate(self.now)
        self.answered += self.shard.take_answered()

    def fail(self) -> None:
        """Lose all records that are not replicated."""
        self.shard.fail_append(self.now)
        self.answered += self.shard.take_answered()

    def wait(self, seconds: float) -> None:
        """Let time pass, and timers fire at their time."""
        end = self.now + seconds
        while (at := self.shard.next_wakeup()) is not None and at <= end:
            self.now = max(self.now, at)
            self.shard.wake(self.now)
            self._after()
        self.now = end

    def _after(self) -> None:
        if self.replicates:
            self.shard.replicate(self.now)
        self.answered += self.shard.take_answered()


def record_types(outcome: Outcome[Any]) -> list[int]:
    """Return the schema numbers of records, those of tombstones negative."""
    return [
        each.key.record_type if each.value is not None else -each.key.record_type
        for each in outcome.records
    ]


def two_members(profile: Profile = KAFKA_4_3) -> Driven:
    """Return a group of two members, the first of which must revoke."""
    driven = Driven(profile)
    driven.join("m1", "foo")
    driven.join("m2", "foo")
    driven.beat("m1")
    return driven


def settled_pair(profile: Profile = KAFKA_4_3) -> Driven:
    """Return a settled group of two: the first gave three partitions up to the second."""
    driven = two_members(profile)
    driven.beat("m1", topic_partitions=foo(0, 1, 2))
    driven.beat("m2")
    return driven
