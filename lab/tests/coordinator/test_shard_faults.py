"""The event loop of a partition under faults: memory always equals the log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from group_lab.coordinator import messages as m
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.log import Batch, Log
from group_lab.coordinator.profile import KAFKA_4_0, KAFKA_4_3, KIP_848, PROFILES, Profile
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Shard, Ticket
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId, TopicIdPartition

FOO = TopicImage(TopicId(int=1), "foo", 3)
GROWN = TopicImage(FOO.topic_id, "foo", 4)
BAR = TopicImage(TopicId(int=2), "bar", 1)


def replayed(batches: Iterable[Batch]) -> dict[str, ConsumerGroup]:
    groups: dict[str, ConsumerGroup] = {}
    for batch in batches:
        for record in batch.records:
            group_id = record.key.group_id
            groups.setdefault(group_id, ConsumerGroup(group_id)).apply(record)
    return {key: each for key, each in groups.items() if not each.is_empty_of_records}


class World:
    """A partition with members that believe their answers."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.now = 0.0
        self.topics = TopicsImage.of([FOO, BAR])
        self.log = Log()
        self.shard = self.load()
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Assignment] = {}
        self.waiting: list[Ticket] = []

    def load(self) -> Shard:
        return Shard(self.profile, Settings(), self.topics, self.log, self.now)

    def step(self, kind: str, member_id: str) -> None:
        self.now += 0.5
        getattr(self, kind)(member_id)

    def heartbeat(self, member_id: str) -> None:
        member_epoch = self.epochs.get(member_id, 0)
        owned = self.owned.get(member_id, NO_PARTITIONS) if member_epoch else NO_PARTITIONS
        self.submit(
            HeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=member_epoch,
                rebalance_timeout_ms=3000,
                subscribed_topic_names=("foo",) if member_id != "c" else ("bar", "foo"),
                subscribed_topic_regex="b.*" if member_id == "b" else None,
                topic_partitions=owned,
            )
        )

    def leave(self, member_id: str) -> None:
        self.submit(HeartbeatRequest(group_id="g", member_id=member_id, member_epoch=-1))
        self.epochs.pop(member_id, None)

    def commit(self, member_id: str) -> None:
        self.submit(
            OffsetCommitRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=self.epochs.get(member_id, 0),
                offsets={TopicIdPartition(FOO.topic_id, 0): OffsetAndMetadata(int(self.now * 2))},
            )
        )

    def delete(self, _member_id: str) -> None:
        self.submit(m.DeleteGroupsRequest(group_id="g"))

    def submit(self, request: m.CoordinatorRequest) -> None:
        ticket = self.shard.submit(request, self.now)
        self.waiting.append(ticket)
        self.hear()

    def hear(self) -> None:
        for ticket in [each for each in self.waiting if each.response is not None]:
            self.waiting.remove(ticket)
            request, response = ticket.request, ticket.response
            if not isinstance(request, HeartbeatRequest) or request.member_epoch < 0:
                continue
            assert isinstance(response, HeartbeatResponse)
            if response.error_code == ErrorCode.NONE:
                self.epochs[request.member_id] = response.member_epoch
                if response.assignment is not None:
                    self.owned[request.member_id] = response.assignment
            elif response.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.epochs.pop(request.member_id, None)

    def replicate(self, _member_id: str) -> None:
        answered = self.shard.replicate(self.now)
        assert answered == self.waiting
        self.hear()
        assert not self.waiting

    def fail_append(self, _member_id: str) -> None:
        before = self.replicated()
        assert self.shard.fail_append(self.now) == self.waiting
        assert self.shard.groups == before
        self.hear()

    def fail_over_with_all(self, _member_id: str) -> None:
        self.waiting.clear()
        before = self.shard.groups
        self.shard = self.load()
        if not self.profile.assigns_by_itself:
            assert self.shard.groups == before

    def fail_over_with_loss(self, _member_id: str) -> None:
        self.log.truncate()
        self.waiting.clear()
        self.shard = self.load()

    def compact(self, _member_id: str) -> None:
        self.log.compact(self.log.end_offset - 2, drops_tombstones=bool(int(self.now) % 2))

    def wake(self, _member_id: str) -> None:
        self.now += 20.0
        self.shard.wake(self.now)

    def grow(self, _member_id: str) -> None:
        self.topics = self.topics.with_topic(GROWN)
        self.shard.set_topics(self.topics, self.now)

    def shrink(self, _member_id: str) -> None:
        self.topics = self.topics.without("bar")
        self.shard.set_topics(self.topics, self.now)

    def check(self) -> None:
        assert replayed(self.log.batches) == self.shard.groups
        replicated = [
            each for each in self.log.batches if each.base_offset < self.log.high_watermark
        ]
        assert replayed(replicated) == self.replicated()

    def replicated(self) -> dict[str, ConsumerGroup]:
        """Return the groups that have records as far as these are replicated."""
        groups = self.shard.memory.all_replicated()
        return {each.group_id: each for each in groups if not each.is_empty_of_records}


STEPS = (
    *("heartbeat",) * 8,
    *("replicate",) * 4,
    *("leave", "commit", "delete", "fail_append", "fail_over_with_all", "fail_over_with_loss"),
    *("compact", "wake", "grow", "shrink"),
)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from("abc")), min_size=10, max_size=60)
)
def test_memory_is_what_the_log_says(profile: Profile, steps: list[tuple[str, str]]) -> None:
    world = World(profile)
    for kind, member_id in steps:
        world.step(kind, member_id)
        world.check()


def test_a_timer_whose_records_are_not_appended_fires_again_soon() -> None:
    world = World(KAFKA_4_3)
    world.step("heartbeat", "a")
    world.step("replicate", "a")
    at = world.shard.next_wakeup()
    assert at == 45.5
    world.now = at
    world.shard.wake(at)
    assert not world.shard.groups["g"].members
    world.shard.fail_append(at)
    assert world.shard.groups["g"].members
    assert world.shard.next_wakeup() == at + 0.5
    world.shard.wake(at + 0.5)
    world.shard.replicate(at + 0.5)
    assert not world.shard.groups["g"].members


def test_a_failed_append_restores_the_session_timer() -> None:
    world = World(KAFKA_4_3)
    world.step("heartbeat", "a")
    world.step("replicate", "a")
    at = world.shard.next_wakeup()
    world.step("leave", "a")
    assert world.shard.next_wakeup() != at
    world.step("fail_append", "a")
    assert world.shard.next_wakeup() == at


def test_every_member_has_a_whole_session_after_a_failover() -> None:
    world = World(KAFKA_4_0)
    world.step("heartbeat", "a")
    world.step("replicate", "a")
    world.now = 40.0
    world.shard = world.load()
    assert world.shard.next_wakeup() == 85.0


def test_an_offset_is_fetched_once_it_is_replicated() -> None:
    world = World(KAFKA_4_3)
    world.step("heartbeat", "a")
    world.step("replicate", "a")
    world.step("commit", "a")
    key = TopicIdPartition(FOO.topic_id, 0)
    ticket = world.shard.submit(
        OffsetFetchRequest(group_id="g", partitions=frozenset({key})), world.now
    )
    assert ticket.response is None
    world.shard.replicate(world.now)
    assert isinstance(ticket.response, OffsetFetchResponse)
    assert ticket.response.answers[key].committed_offset == 3


def test_a_batch_of_more_than_a_megabyte_is_refused_every_time() -> None:
    world = World(KAFKA_4_3)
    world.topics = TopicsImage.of([TopicImage(FOO.topic_id, "foo", 300)])
    world.shard = world.load()
    world.step("heartbeat", "a")
    world.step("replicate", "a")

    def codes(partitions: int) -> set[int]:
        offset = OffsetAndMetadata(1, "x" * 4000)
        keys = [TopicIdPartition(FOO.topic_id, each) for each in range(partitions)]
        request = OffsetCommitRequest(
            group_id="g",
            member_id="a",
            member_epoch=world.epochs["a"],
            offsets=dict.fromkeys(keys, offset),
        )
        response = world.shard.ask(request, world.now)
        assert isinstance(response, OffsetCommitResponse)
        return set(response.errors.values())

    assert codes(270) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert codes(270) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert not world.shard.groups["g"].offsets
    assert codes(250) == {ErrorCode.NONE}


def test_under_the_kip_the_coordinator_makes_member_ids() -> None:
    world = World(KIP_848)
    ids = set()
    for _ in range(3):
        request = HeartbeatRequest(
            group_id="g",
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=3000,
            subscribed_topic_names=("foo",),
            topic_partitions=NO_PARTITIONS,
        )
        response = world.shard.ask(request, world.now)
        assert isinstance(response, HeartbeatResponse)
        ids.add(response.member_id)
    assert len(ids) == 3
    assert set(world.shard.groups["g"].members) == ids


def test_old_offsets_and_the_empty_group_are_forgotten_in_the_end() -> None:
    world = World(KAFKA_4_3)
    for kind in ("heartbeat", "replicate", "commit", "leave", "replicate"):
        world.step(kind, "a")
    assert world.shard.groups["g"].offsets
    retention_s = Settings().broker.offsets_retention_s
    while (at := world.shard.next_wakeup()) is not None and at < retention_s - 600:
        world.shard.wake(at)
    assert not world.log.end_offset > world.log.high_watermark
    assert world.shard.groups["g"].offsets
    world.shard.wake(retention_s + 1300)
    world.shard.replicate(retention_s + 1300)
    assert world.shard.groups == {}
