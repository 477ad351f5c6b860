"""Targets that members compute, at random: legal at all times, and stable in the end."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from group_lab.coordinator import messages as m
from group_lab.coordinator.group import GroupState
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import ClientAssignor
from group_lab.coordinator.profile import KIP_848
from group_lab.coordinator.settings import Settings
from group_lab.coordinator.shard import Shard
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId

FOO = TopicImage(TopicId(int=1), "foo", 3)
TOPICS = TopicsImage.of([FOO])
INSTANCES = {"s1": "i", "s2": "i"}
RANGES = (ClientAssignor("s", 0, 5, metadata_version=5), ClientAssignor("s", 1, 4, 0, 4))


class World:
    """Two dynamic members and two lives of a static one; most bring an assignor."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.log = Log()
        self.now = 0.0
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Assignment] = {}
        self.prepared: dict[str, m.PrepareAssignmentResponse] = {}
        self.asked: set[str] = set()
        self.fail_over()

    def fail_over(self) -> None:
        self.shard = Shard(KIP_848, Settings(), TOPICS, self.log, self.now)

    def elapse(self, seconds: float) -> None:
        self.now += seconds
        self.shard.wake(self.now)
        self.shard.replicate(self.now)

    def heartbeat(self, member_id: str, member_epoch: int, **fields: Any) -> None:
        request = m.KipHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=member_epoch,
            instance_id=INSTANCES.get(member_id),
            **fields,
        )
        response = self.shard.ask(request, self.now)
        assert isinstance(response, HeartbeatResponse)
        if response.error_code != ErrorCode.NONE or member_epoch < 0:
            if response.error_code != ErrorCode.UNRELEASED_INSTANCE_ID:
                self.forget(member_id)
            return
        assert isinstance(response, m.KipHeartbeatResponse)
        self.epochs[member_id] = response.member_epoch
        if response.assignment is not None:
            self.owned[member_id] = response.assignment
        if response.should_compute_assignment:
            self.asked.add(member_id)

    def forget(self, member_id: str) -> None:
        self.epochs.pop(member_id, None)
        self.owned.pop(member_id, None)

    def beat(self, member_id: str) -> None:
        member_epoch = self.epochs.get(member_id, 0)
        owned = self.owned.get(member_id, NO_PARTITIONS)
        if member_epoch:
            self.heartbeat(member_id, member_epoch, topic_partitions=owned)
            return
        brought = (self.chance.choice(RANGES),) if self.chance.random() < 0.95 else None
        self.heartbeat(
            member_id,
            0,
            rebalance_timeout_ms=5000,
            subscribed_topic_names=("foo",),
            topic_partitions=NO_PARTITIONS,
            client_assignors=brought,
        )

    def prepare(self, member_id: str) -> None:
        if member_id not in self.epochs:
            return
        response = self.shard.ask(
            m.PrepareAssignmentRequest(
                group_id="g", member_id=member_id, member_epoch=self.epochs[member_id]
            ),
            self.now,
        )
        assert isinstance(response, m.PrepareAssignmentResponse)
        if response.error_code == ErrorCode.NONE:
            self.prepared[member_id] = response

    def install(self, member_id: str) -> None:
        prepared = self.prepared.pop(member_id, None)
        if prepared is None or member_id not in self.epochs:
            return
        ids = [each.member_id for each in prepared.members]
        owners = [self.chance.choice(ids) for _ in range(FOO.partition_count)]
        members = tuple(
            m.InstalledMember(
                member_id=each,
                partitions=Assignment.of(
                    {FOO.topic_id: [index for index, by in enumerate(owners) if by == each]}
                ),
            )
            for each in ids
        )
        request = m.InstallAssignmentRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=self.epochs[member_id],
            group_epoch=prepared.group_epoch,
            members=members,
        )
        self.shard.ask(request, self.now)

    def step(self) -> None:
        member_id = self.chance.choice(("a", "b", "s1", "s2"))
        what = self.chance.random()
        if what < 0.6:
            self.beat(member_id)
        elif what < 0.65:
            self.heartbeat(member_id, -1)
        elif what < 0.7:
            self.heartbeat(member_id, -2 if member_id in INSTANCES else -1)
        elif what < 0.83:
            self.prepare(member_id)
        elif what < 0.97:
            self.install(member_id)
        else:
            self.fail_over()

    def check(self) -> None:
        group = self.shard.groups.get("g")
        if group is None:
            return
        assert set(group.targets) <= set(group.members)
        given = [key for each in group.targets.values() for key in each.partitions]
        assert len(given) == len(set(given))
        members = group.members.values()
        held = [key for each in members for key in (*each.assigned, *each.pending_revocation)]
        assert len(held) == len(set(held))


@pytest.mark.parametrize("seed", range(60))
def test_every_target_is_legal_and_the_group_gets_stable(seed: int) -> None:
    world = World(seed)
    for _ in range(80):
        world.elapse(world.chance.random() * 2)
        world.step()
        world.check()
    world.elapse(50.0)
    for each in ("a", "b", "s1", *["a", "b", "s1"] * 12):
        world.elapse(0.3)
        world.asked.clear()
        world.beat(each)
        if each in world.asked:
            world.prepare(each)
            world.install(each)
        world.check()
    group = world.shard.groups["g"]
    assert set(group.members) == {"a", "b", "s1"}
    assert group.state is GroupState.STABLE
    assert sum(len(each.assigned) for each in group.members.values()) == FOO.partition_count
