"""Groups of the 0.9 design and of the three policies keep every promise, and bugs are caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_lab.assignors import incremental
from group_lab.commands.simulation import Run, play
from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9 import join, rebalance
from group_lab.coordinator.design_0_9.draft import Draft
from group_lab.coordinator.design_0_9.messages import DesignJoinGroupResponse
from group_lab.sim import facts
from group_lab.sim.design_0_9_membership import ConsumerState, DesignMembership
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import CONVERTIBLE, GroupProtocol, Swarm
from lab.tests.sim.classic_consumer_setup import keeps_what_it_must_revoke
from spark_groups.group.member import events

Patch = pytest.MonkeyPatch
EARLIER = tuple(each for each in GroupProtocol if each not in CONVERTIBLE)
SEEDS = 100
DESIGN = Swarm(
    queries=0,
    classic=3,
    classic_protocol=GroupProtocol.DESIGN_0_9,
    partitions=6,
    stops=3,
    chaos_s=40.0,
)
FAILING = replace(DESIGN, failed_appends=12, coordinator_crashes=4, crashes=4, replication_s=1.0)
IMMEDIATE = replace(DESIGN, classic_protocol=GroupProtocol.IMMEDIATE)
INCREMENTAL = replace(DESIGN, classic_protocol=GroupProtocol.INCREMENTAL)
DELAYED = replace(DESIGN, classic_protocol=GroupProtocol.DELAYED, crashes=3)


@pytest.mark.parametrize("protocol", EARLIER, ids=lambda each: each.value)
def test_groups_of_earlier_designs_keep_every_promise(protocol: GroupProtocol) -> None:
    seen: Counter[type] = Counter()

    def listen(_scene: Scene) -> Listeners:
        return {facts.ClassicHappened: lambda fact: seen.update([type(fact.event)])}

    runs = [Run(seed, "kafka-4.3", protocols=(protocol,)) for seed in range(SEEDS)]
    assert [broken for run in runs if (broken := play(run, (listen,)))] == []
    happened = {events.PartitionsAssigned, events.PartitionsRevoked, events.PartitionsLost}
    assert happened <= seen.keys()


# Bugs of consumers and of the coordinator of the 0.9 design.


def joins_without_a_commit(patch: Patch) -> None:
    poll = DesignMembership.poll

    def polled(self: DesignMembership, now: float, counts: Mapping[str, int]) -> None:
        poll(self, now, counts)
        self.prepared()

    patch.setattr(DesignMembership, "poll", polled)


def reads_on_after_illegal_generation(patch: Patch) -> None:
    next_request, joined = DesignMembership.next_request, DesignMembership._joined

    def asked(self: DesignMembership, now: float) -> Any:
        if self.state is not ConsumerState.STOPPED_CONSUMPTION:
            return next_request(self, now)
        owned, self.owned = self.owned, frozenset()
        request = next_request(self, now)
        self.owned = owned
        return request

    def released(self: DesignMembership, *args: Any) -> None:
        self._release()
        joined(self, *args)

    patch.setattr(DesignMembership, "is_preparing", False)
    patch.setattr(DesignMembership, "readable", property(lambda self: self.owned))
    patch.setattr(DesignMembership, "next_request", asked)
    patch.setattr(DesignMembership, "_joined", released)


def answers_before_the_generation_is_written(patch: Patch) -> None:
    complete = rebalance.complete_if_all_joined

    def completed(draft: Draft) -> None:
        complete(draft)
        if draft.records:
            for consumer_id, each in draft.group.decided_consumers.items():
                response = DesignJoinGroupResponse(
                    group_generation_id=draft.group.generation_id,
                    consumer_id=consumer_id,
                    partitions_to_own=each.partitions,
                )
                draft.answer(consumer_id, response)

    for module in (join, rebalance):
        patch.setattr(module, "complete_if_all_joined", completed)


def gives_a_partition_to_two_consumers(patch: Patch) -> None:
    assign = rebalance._with_partitions

    def assigned(*args: Any) -> tuple[r.DesignConsumer, ...]:
        found = assign(*args)
        return tuple(replace(each, partitions=found[0].partitions) for each in found)

    patch.setattr(rebalance, "_with_partitions", assigned)


# Bugs of the three policies' leaders and members.


def assigns_what_is_revoked_in_one_round(patch: Patch) -> None:
    assign = incremental._assignments

    def assigned(config: Any, group: Any, target: Any, moves: Any, timeout_ms: int) -> Any:
        freed = replace(group, free=group.free | moves)
        return assign(config, freed, target, moves, timeout_ms)

    patch.setattr(incremental, "_assignments", assigned)


def gives_lost_partitions_away_twice(patch: Patch) -> None:
    assign = incremental._assignments

    def assigned(config: Any, group: Any, target: Any, *args: Any) -> Any:
        # Not at first; and while the delay runs, the target has no lost partition.
        is_lost = group.known_topics and group.free <= frozenset().union(*target.values())
        given = {each: own | group.free for each, own in target.items()}
        return assign(config, group, given if is_lost else target, *args)

    patch.setattr(incremental, "_assignments", assigned)


def forgets_lost_partitions(patch: Patch) -> None:
    patch.setattr(incremental, "_timeout_ms", lambda _at, _now: 0)


@dataclass(frozen=True)
class Planted:
    """A bug, the runs that show it, and the promises they break."""

    promises: frozenset[str]
    plant: Callable[[Patch], None]
    swarm: Swarm


CLEAN, OWNER, TARGET, SETTLES, COMMIT = (
    frozenset({each})
    for each in (
        *("clean hand over", "single owner", "legal target", "group settles"),
        "commit ownership",
    )
)
PLANTED = (
    Planted(CLEAN, joins_without_a_commit, DESIGN),
    Planted(CLEAN | COMMIT, reads_on_after_illegal_generation, DESIGN),
    Planted(OWNER, answers_before_the_generation_is_written, FAILING),
    Planted(TARGET, gives_a_partition_to_two_consumers, DESIGN),
    Planted(OWNER, assigns_what_is_revoked_in_one_round, IMMEDIATE),
    Planted(OWNER, keeps_what_it_must_revoke, INCREMENTAL),
    Planted(TARGET, gives_lost_partitions_away_twice, DELAYED),
    Planted(SETTLES, forgets_lost_partitions, DELAYED),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.plant.__name__)
def test_planted_bug_of_an_earlier_design_is_caught(planted: Planted, monkeypatch: Patch) -> None:
    runs = [Run(seed, "kafka-4.3", planted.swarm) for seed in range(15)]
    assert [broken for broken in map(play, runs) if broken] == []
    planted.plant(monkeypatch)
    assert {broken.promise for broken in map(play, runs) if broken} == planted.promises
