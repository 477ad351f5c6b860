"""Requests at random, also such that no honest consumer sends: the promises of the 0.9 design."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.group import CoordinatorState
from group_lab.coordinator.design_0_9.messages import (
    DesignJoinGroupRequest,
    DesignJoinGroupResponse,
)
from group_lab.coordinator.effects import TimerKey, TimerKind
from group_lab.coordinator.shard import Ticket
from lab.tests.coordinator.design_0_9.driving import GROUP, DrivenDesign, joined
from spark_groups.types import TopicPartition

PREPARE, REBALANCING = CoordinatorState.PREPARE_FOR_REBALANCE, CoordinatorState.REBALANCING
LONGEST_SESSION_S = 30.0


@dataclass
class RandomConsumers:
    """Consumers that send requests at random, with their answers.

    Args:
        ids: Ids that were assigned, the latest last.
        joins: Every JoinGroup that this coordinator may still answer.
        owners: The owner of each partition in each generation, by the answers.
        generations: The latest generation of each consumer.
        highest: The highest generation in an answer.
    """

    driven: DrivenDesign
    chance: random.Random
    ids: list[str] = field(default_factory=lambda: ["no"])
    joins: list[Ticket] = field(default_factory=list)
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    highest: int = 0
    looked_at: int = 0

    def act(self) -> None:
        """Do one thing."""
        actions: tuple[tuple[int, Callable[[], object]], ...] = (
            (8, self.join),
            (8, self.heartbeat),
            (2, self.commit),
            (4, lambda: self.driven.wait(self.chance.choice((0.5, 2.0, 9.0)))),
            (1, lambda: self.driven.wait(LONGEST_SESSION_S)),
            (1, lambda: self.driven.grow("foo", len(self.ids) % 5 + 4)),
            (2, self.fail_or_replicate),
            (1, self.fail_over),
        )
        weights, calls = zip(*actions, strict=True)
        (call,) = self.chance.choices(calls, weights)
        self.driven.replicates = self.chance.random() < 0.8
        call()

    def consumer_id(self) -> str:
        """Return the id of a consumer, most of the time one of this generation."""
        group = self.driven.shard.memory.group(GROUP).design
        if group and group.consumers and self.chance.random() < 0.8:
            return self.chance.choice(sorted(group.consumers))
        return self.chance.choice(self.ids)

    def join(self) -> None:
        """Join as a new consumer, or as a known one."""
        consumer_id = "" if self.chance.random() < 0.2 else self.consumer_id()
        topics = self.chance.choice((("foo",), ("foo",), ("foo", "bar"), ("bar",)))
        session_s = self.chance.choice((6.0, LONGEST_SESSION_S))
        strategy = self.chance.choice(("range", "range", "range", "roundrobin"))
        ticket = self.driven.join(consumer_id, *topics, session_s=session_s, strategy=strategy)
        response = ticket.response
        if not isinstance(response, DesignJoinGroupResponse) or not response.error_code:
            # It replaces another one of the same consumer.
            self.joins = [
                each for each in self.joins if not consumer_id or id_of(each) != consumer_id
            ]
        self.joins.append(ticket)

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        group = self.driven.shard.memory.group(GROUP).design
        if group:
            generation_id = group.generation_id - (self.chance.random() < 0.1)
            self.driven.send(self.driven.beat_request(self.consumer_id(), generation_id))

    def commit(self) -> None:
        """Commit an offset."""
        generation_id = self.chance.randint(max(self.highest - 1, 0), self.highest)
        self.driven.send(self.driven.commit_request(self.consumer_id(), generation_id))

    def fail_or_replicate(self) -> None:
        """Lose the records that are not replicated, or replicate them."""
        if self.chance.random() < 0.5:
            self.driven.fail()
        else:
            self.driven.replicate()

    def fail_over(self) -> None:
        """Let another coordinator load the log; the parked requests are refused."""
        self.driven.shard.unload(self.driven.now)
        self.driven.shard.take_answered()
        if self.chance.random() < 0.5:
            self.driven.log.truncate()
        self.driven.fail_over()
        assert all(each.response for each in self.joins)
        self.joins.clear()

    def check(self) -> None:
        """Check what holds at all times."""
        for ticket in self.driven.answered[self.looked_at :]:
            self.check_answer(ticket)
        self.looked_at = len(self.driven.answered)
        self.joins = [each for each in self.joins if each.response is None]
        assert len(self.joins) == len(self.driven.shard.parked)
        memory = self.driven.shard.memory.group(GROUP)
        group = memory.design
        if group is None:
            assert not self.joins
            return
        assert (group.decided is not None) == (group.state is REBALANCING)
        assert memory.design_generation in (
            group.decided,
            group.written if group.written.generation_id else None,
        )
        waiting = {*group.joins, *group.decided_consumers}
        assert {each.member_id for each in self.driven.shard.parked} == waiting
        if group.state is not PREPARE and group.state is not REBALANCING:
            assert not group.joins
            assert not group.dead
        for each in group.awaited if group.state is not REBALANCING else ():
            key = TimerKey(TimerKind.DESIGN_SESSION, GROUP, each.consumer_id)
            assert self.driven.shard.timer(key)

    def check_answer(self, ticket: Ticket) -> None:
        """Check that generations increase, and that a partition has one owner in each."""
        response = ticket.response
        assert isinstance(response, DesignJoinGroupResponse)
        if response.error_code:
            return
        consumer_id, generation_id = response.consumer_id, response.group_generation_id
        assert generation_id > self.generations.get(consumer_id, 0)
        assert generation_id >= self.highest
        self.generations[consumer_id] = self.highest = generation_id
        if consumer_id not in self.ids:
            self.ids.append(consumer_id)
        for key in response.partitions_to_own:
            assert self.owners.setdefault((generation_id, key), consumer_id) == consumer_id


def id_of(ticket: Ticket) -> str:
    """Return the id with which a consumer joins."""
    assert isinstance(ticket.request, DesignJoinGroupRequest)
    return ticket.request.consumer_id


@pytest.mark.parametrize("seed", range(30))
def test_requests_never_break_a_group_and_all_joins_are_answered(seed: int) -> None:
    consumers = RandomConsumers(DrivenDesign(), random.Random(seed))
    driven = consumers.driven
    for _ in range(300):
        consumers.act()
        consumers.check()
    driven.replicates = True
    driven.replicate()
    # Two rounds at most: one under way, and another right after.
    driven.wait(3 * LONGEST_SESSION_S)
    consumers.check()
    assert not driven.shard.parked
    assert driven.state is CoordinatorState.READY
    generation_ids = [
        each.value.generation_id
        for each in driven.log.replay()
        if isinstance(each.value, r.DesignGenerationValue)
    ]
    assert generation_ids == sorted(set(generation_ids))
    assert joined(driven.join()).group_generation_id > consumers.highest > 5
