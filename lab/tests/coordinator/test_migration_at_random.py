"""Requests of both protocols at random to one group: what holds while it converts to and fro."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.coordinator.classic.messages import (
    ClassicHeartbeatRequest,
    ClassicProtocol,
    SyncGroupRequest,
)
from group_lab.coordinator.group import ConsumerGroup
from group_lab.coordinator.messages import LeaveGroupRequest, LeavingMember
from group_lab.coordinator.profile import PROFILES, Profile
from group_lab.coordinator.settings import BrokerSettings, MigrationPolicy, Settings
from lab.tests.coordinator.classic.driving import GROUP, DrivenShard
from lab.tests.coordinator.driving import TOPICS
from lab.tests.coordinator.mixed_group import owned
from spark_groups.errors import ErrorCode
from spark_groups.group.member.embedded import EmbeddedAssignment, Subscription, decode_assignment
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.types import NO_PARTITIONS, Assignment

PARTITIONS = TOPICS.by_name["foo"].partition_count


@dataclass
class RandomMembers:
    """Members of both protocols that send requests at random.

    Args:
        conversions: How often the group became of the other type.
    """

    driven: DrivenShard
    chance: random.Random
    conversions: Counter[str] = field(default_factory=Counter)
    was_consumer: bool = False

    @property
    def group(self) -> ConsumerGroup:
        return self.driven.shard.memory.group(GROUP)

    def act(self) -> None:
        """Do one thing."""
        actions: tuple[tuple[int, Callable[[], object]], ...] = (
            (6, self.classic_join),
            (5, self.classic_sync),
            (4, self.classic_beat),
            (2, self.join),
            (8, self.beat),
            (3, self.leave),
            (4, lambda: self.driven.wait(self.chance.choice((0.5, 3.0, 12.0)))),
            (1, lambda: self.driven.wait(61.0)),
            (
                2,
                self.driven.fail if self.chance.random() < 0.3 else self.driven.replicate,
            ),
            (1, self.fail_over),
        )
        weights, calls = zip(*actions, strict=True)
        (call,) = self.chance.choices(calls, weights)
        self.driven.replicates = self.chance.random() < 0.85
        call()

    def member(self, *, is_classic: bool) -> tuple[str, str | None, int]:
        """Return member id, instance id and epoch of a member, most of the time of a protocol."""
        classic = self.group.classic
        if classic is not None and is_classic:
            found = [
                (each.member_id, each.instance_id, classic.generation_id)
                for each in classic.members.values()
            ]
        else:
            found = [
                (each.member_id, each.instance_id, each.member_epoch)
                for each in self.group.members.values()
                if bool(each.classic) is is_classic or self.chance.random() < 0.05
            ]
        return self.chance.choice(found) if found else ("m9", None, 1)

    def classic_join(self) -> None:
        """Join as a new classic member, a static one that restarts, or a known one."""
        member_id, instance_id, epoch = self.member(is_classic=True)
        if self.chance.random() < 0.3:
            member_id, instance_id = "", self.chance.choice((None, "A", "B"))
        member = self.group.members.get(member_id)
        has = sorted(each.partition for each in member.assigned) if member else []
        kept = has[: self.chance.randint(0, len(has))]
        embedded = encode_subscription(
            Subscription(
                topics=self.chance.choice((("foo",), ("foo",), ("foo", "bar"))),
                owned_partitions=owned("foo", *(each for each in kept if each < PARTITIONS)),
                generation_id=epoch,
            )
        )
        self.driven.join(
            member_id,
            instance_id,
            protocols=(ClassicProtocol("range", embedded),),
            rebalance_s=self.chance.choice((5.0, 60.0)),
            session_s=self.chance.choice((6.0, 30.0)),
            api_version=self.chance.choice((3, 9)),
        )

    def classic_sync(self) -> None:
        """Sync; a leader assigns each partition once."""
        member_id, instance_id, epoch = self.member(is_classic=True)
        members = list(self.group.classic.members) if self.group.classic else []
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments={
                each: encode_assignment(
                    EmbeddedAssignment(
                        partitions=owned("foo", *range(number, PARTITIONS, len(members)))
                    )
                )
                for number, each in enumerate(members)
            },
        )
        response: Any = self.driven.send(request).response
        if response and not response.error_code:
            decode_assignment(response.assignment)

    def classic_beat(self) -> None:
        """Send a Heartbeat."""
        member_id, instance_id, epoch = self.member(is_classic=True)
        self.driven.send(
            ClassicHeartbeatRequest(
                group_id=GROUP,
                generation_id=epoch,
                member_id=member_id,
                group_instance_id=instance_id,
            )
        )

    def join(self) -> None:
        """Join with the new protocol, sometimes in the place of another member."""
        member_id = f"m{self.chance.randint(0, 3)}"
        if self.chance.random() < 0.2:
            member_id = self.member(is_classic=True)[0]
        self.driven.send(
            HeartbeatRequest(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=0,
                instance_id=self.chance.choice((None, None, "A", "B")),
                rebalance_timeout_ms=20_000,
                topic_partitions=NO_PARTITIONS,
                subscribed_topic_names=self.chance.choice((("foo",), ("foo", "bar"))),
            )
        )

    def beat(self) -> None:
        """Send a heartbeat that reports the whole assignment, or nothing."""
        member_id, instance_id, epoch = self.member(is_classic=False)
        member = self.group.members.get(member_id)
        has = Assignment(frozenset(member.assigned)) if member else NO_PARTITIONS
        response: Any = self.driven.send(
            HeartbeatRequest(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                topic_partitions=self.chance.choice((has, None)),
            )
        ).response
        assert response is None or response.error_code != ErrorCode.UNKNOWN_SERVER_ERROR

    def leave(self) -> None:
        """Leave by either request."""
        member_id, instance_id, _ = self.member(is_classic=self.chance.random() < 0.5)
        if self.chance.random() < 0.5:
            members = (LeavingMember(member_id, instance_id),)
            self.driven.send(LeaveGroupRequest(group_id=GROUP, members=members))
            return
        epoch = self.chance.choice((-1, -1, -2)) if instance_id else -1
        self.driven.send(
            HeartbeatRequest(
                group_id=GROUP, member_id=member_id, member_epoch=epoch, instance_id=instance_id
            )
        )

    def fail_over(self) -> None:
        """Let another coordinator load the log."""
        self.driven.shard.unload(self.driven.now)
        self.driven.shard.take_answered()
        self.driven.log.truncate()
        self.driven.fail_over()

    def check(self) -> None:
        """Check what holds at all times."""
        group = self.group
        assert not (group.is_consumer_group and group.classic)
        assert not (group.is_consumer_group and group.classic_metadata)
        holders = Counter(
            key
            for each in group.members.values()
            for key in (*each.assigned, *each.pending_revocation)
        )
        assert max(holders.values(), default=0) <= 1
        static = [each.instance_id for each in group.members.values() if each.instance_id]
        assert len(static) == len(set(static))
        assert not (group.is_consumer_group and self.driven.shard.parked)
        replayed = ConsumerGroup(GROUP, group.first_epoch)
        for each in self.driven.log.replay():
            replayed.apply(each)
        assert replayed == group
        if group.is_consumer_group is not self.was_consumer and group.exists:
            self.conversions["to consumer" if group.is_consumer_group else "to classic"] += 1
        self.was_consumer = group.is_consumer_group


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("seed", range(8))
def test_a_group_is_of_one_type_and_each_partition_has_one_holder(
    profile: Profile, seed: int
) -> None:
    policy = random.Random(seed).choice((*MigrationPolicy, MigrationPolicy.BIDIRECTIONAL))
    settings = Settings(BrokerSettings(max_size=6, classic_max_size=5, migration_policy=policy))
    members = RandomMembers(DrivenShard(profile, settings), random.Random(seed))
    for _ in range(300):
        members.act()
        members.check()
    if policy is MigrationPolicy.BIDIRECTIONAL:
        assert members.conversions["to consumer"]
        assert members.conversions["to classic"]
