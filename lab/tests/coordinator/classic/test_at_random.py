"""Requests at random, also such that no honest member sends: what holds of a classic group."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from group_lab.coordinator.classic.group import ClassicGroup, ClassicState
from group_lab.coordinator.classic.messages import JoinGroupResponse, SyncGroupRequest
from group_lab.coordinator.effects import CoordinatorErrorCode, Parked, Phase
from group_lab.coordinator.messages import LeavingMember
from group_lab.coordinator.profile import KAFKA_4_0, KAFKA_4_4, Profile
from group_lab.coordinator.shard import Ticket
from lab.tests.coordinator.classic.driving import (
    GROUP,
    RANGE,
    STICKY,
    DrivenShard,
    commit,
    with_broker,
)

PREPARING, COMPLETING = ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE
LONGEST_WAIT_S = 1200.0
"""Five minutes for a new member, and some rebalances of at most 60 s."""


@dataclass
class RandomMembers:
    """Members that send requests at random, with what they were answered.

    Args:
        ids: Member ids that were given, the latest last.
        leaders: The leader of each generation of this coordinator.
        refused: Parked requests that a lost append has refused; their members still count as
            waiting.
    """

    driven: DrivenShard
    chance: random.Random
    ids: list[str] = field(default_factory=lambda: ["no"])
    leaders: dict[int, str] = field(default_factory=dict)
    refused: set[Parked] = field(default_factory=set)
    looked_at: int = 0

    def act(self) -> None:
        """Do one thing."""
        actions: tuple[tuple[int, Callable[[], object]], ...] = (
            (8, self.join),
            (6, self.sync),
            (5, self.heartbeat),
            (1, self.leave),
            (2, self.commit),
            (4, lambda: self.driven.wait(self.chance.choice((0.5, 2.0, 9.0)))),
            (1, lambda: self.driven.wait(61.0)),
            (2, self.fail_or_replicate),
            (1, self.fail_over),
        )
        weights, calls = zip(*actions, strict=True)
        (call,) = self.chance.choices(calls, weights)
        self.driven.replicates = self.chance.random() < 0.8
        call()

    def member(self) -> tuple[str, str | None]:
        """Return a member id and an instance id that belong together, most of the time."""
        group = self.driven.shard.memory.group(GROUP).classic
        if group and group.members and self.chance.random() < 0.8:
            member = self.chance.choice(list(group.members.values()))
            return member.member_id, member.instance_id
        return self.chance.choice(self.ids), self.chance.choice((None, "A", "X"))

    def join(self) -> None:
        """Join as a new member, a static one that restarts, or a known one."""
        member_id, instance_id = self.member()
        if self.chance.random() < 0.4:
            member_id, instance_id = "", self.chance.choice((None, "A", "B", "C"))
        protocols = self.chance.choice(((RANGE,), (RANGE,), (RANGE, STICKY), (STICKY,)))
        ticket = self.driven.join(
            member_id,
            instance_id,
            protocols=protocols,
            rebalance_s=self.chance.choice((5.0, 20.0, 60.0)),
            session_s=self.chance.choice((6.0, 30.0)),
            api_version=self.chance.choice((3, 8, 9)),
        )
        self.note(ticket)

    def sync(self) -> None:
        """Sync with an assignment for all members; only the leader's counts."""
        group = self.driven.shard.memory.group(GROUP).classic or ClassicGroup(group_id=GROUP)
        member_id, instance_id = self.member()
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=group.generation_id - (self.chance.random() < 0.1),
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=group.protocol_name or "range",
            assignments={each: each.encode() for each in group.members},
        )
        self.driven.send(request)

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        if self.driven.replicates and GROUP in self.driven.shard.memory.classic:
            member_id, instance_id = self.member()
            self.driven.heartbeat(member_id, instance_id=instance_id)

    def leave(self) -> None:
        """Leave, alone or together with another member."""
        named = [LeavingMember(*self.member()) for _ in range(self.chance.randint(1, 2))]
        if self.driven.replicates:
            self.driven.leave(*named, LeavingMember(instance_id=self.chance.choice("ABX")))

    def commit(self) -> None:
        """Commit offsets."""
        group = self.driven.shard.memory.group(GROUP).classic
        if self.driven.replicates and group:
            member_id, instance_id = self.member()
            commit(self.driven, member_id, group.generation_id, instance_id=instance_id)

    def fail_or_replicate(self) -> None:
        """Lose the records that are not replicated, or replicate them."""
        before = set(self.driven.shard.parked)
        if self.chance.random() < 0.5:
            self.driven.fail()
            self.refused |= before - set(self.driven.shard.parked)
        else:
            self.driven.replicate()

    def fail_over(self) -> None:
        """Let another coordinator load the log; the parked requests are refused."""
        self.driven.shard.unload(self.driven.now)
        self.driven.shard.take_answered()
        self.driven.log.truncate()
        self.driven.fail_over()
        self.leaders.clear()

    def note(self, ticket: Ticket) -> None:
        """Note the member id of an answer."""
        response: Any = ticket.response
        if response and response.member_id and response.member_id not in self.ids:
            self.ids.append(response.member_id)

    def check(self) -> None:
        """Check what holds at all times."""
        group = self.driven.shard.memory.group(GROUP).classic
        waiting = set()
        if group is None:
            self.leaders.clear()
        else:
            check_group(group)
            for each in group.members.values():
                if each.awaits_join:
                    waiting.add(Parked(GROUP, each.member_id, Phase.JOIN))
                if each.awaits_sync:
                    waiting.add(Parked(GROUP, each.member_id, Phase.SYNC))
        parked = set(self.driven.shard.parked)
        assert parked <= waiting <= parked | self.refused
        assert all(each.response is None for each in self.driven.shard.parked.values())
        for ticket in self.driven.answered[self.looked_at :]:
            self.check_answer(ticket)
        self.looked_at = len(self.driven.answered)

    def check_answer(self, ticket: Ticket) -> None:
        """Check that all members of a generation learn of one leader, which knows all."""
        response: Any = ticket.response
        if not isinstance(response, JoinGroupResponse) or response.error_code:
            return
        self.note(ticket)
        leads = response.leader == response.member_id
        assert bool(response.members) == leads
        if leads and not response.skip_assignment:
            assert response.generation_id not in self.leaders
            self.leaders[response.generation_id] = response.member_id
            assert response.member_id in {each.member_id for each in response.members}


def check_group(group: ClassicGroup) -> None:
    """Check a group."""
    members = group.members.values()
    assert (group.leader_id in group.members) if members else group.leader_id is None
    assert not set(group.pending_joins) & set(group.members)
    static = [each.instance_id for each in members if each.instance_id is not None]
    assert len(static) == len(set(static))
    if group.state is ClassicState.EMPTY:
        assert not members
    if group.state is not PREPARING:
        # In Stable only a static member that returns waits, until its record is replicated.
        returns = [each for each in members if each.awaits_join]
        assert not returns or group.state is ClassicState.STABLE
        assert all(each.instance_id is not None for each in returns)
        assert not members or group.protocol_name is not None
    if group.state is not COMPLETING:
        assert not any(each.awaits_sync for each in members)
    else:
        synced = {each.member_id for each in members if each.awaits_sync}
        assert group.pending_syncs == set(group.members) - synced


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_4], ids=lambda profile: profile.name)
@pytest.mark.parametrize("seed", range(20))
def test_requests_never_break_a_group_and_all_are_answered(profile: Profile, seed: int) -> None:
    settings = with_broker(classic_max_size=6)
    members = RandomMembers(DrivenShard(profile, settings), random.Random(seed))
    for _ in range(250):
        members.act()
        members.check()
    members.driven.replicates = True
    members.driven.replicate()
    members.driven.wait(LONGEST_WAIT_S)
    members.check()
    assert not members.driven.shard.parked
    group = members.driven.shard.memory.group(GROUP).classic
    assert group is None or group.state in (ClassicState.EMPTY, ClassicState.STABLE)
    # Then members join as if nothing had happened.
    joining = members.driven.join(protocols=(RANGE,), session_s=1800.0)
    response: Any = joining.response
    assert response is None or response.error_code != CoordinatorErrorCode.REBALANCE_IN_PROGRESS
    members.driven.wait_for(joining)
    members.driven.sync_all()
    assert members.driven.group.state is ClassicState.STABLE
