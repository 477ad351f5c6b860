"""Groups with classic consumers keep every promise, migrate both ways, and bugs are caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from group_lab.assignors.classic import ClassicRangeAssignor
from group_lab.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from group_lab.commands.simulation import Run, play
from group_lab.coordinator.profile import PROFILES
from group_lab.sim import facts
from group_lab.sim.classic_consumer import ClassicRun
from group_lab.sim.classic_membership import ClassicMembership
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import GroupProtocol, Swarm
from lab.tests.sim.classic_consumer_setup import Patch, keeps_what_it_must_revoke
from lab.tests.sim.scenes import Facts, world
from spark_groups.group.member import events

CLASSIC = (GroupProtocol.CLASSIC_EAGER, GroupProtocol.CLASSIC_COOPERATIVE)
OF_KAFKA = (*CLASSIC, GroupProtocol.CONSUMER)
EAGER = Swarm(queries=0, classic=3, partitions=6, stops=3, chaos_s=40.0)
COOPERATIVE = replace(EAGER, classic_protocol=GroupProtocol.CLASSIC_COOPERATIVE)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("profile", PROFILES)
def test_classic_groups_keep_every_promise(profile: str, seed: int) -> None:
    assert play(Run(seed, profile, protocols=CLASSIC)) is None


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("profile", PROFILES)
def test_mixed_groups_keep_every_promise(profile: str, seed: int) -> None:
    assert play(Run(seed, profile, protocols=OF_KAFKA)) is None


def test_an_application_that_waits_for_its_offsets_asks_once_a_poll() -> None:
    # Here each answer to a heartbeat made it poll once more, for ever.
    assert play(Run(111041, "kafka-4.3", protocols=OF_KAFKA)) is None


def test_a_static_member_that_missed_a_generation_may_commit_once_more() -> None:
    # It joins the next generation, and commits the partitions that it must revoke: Kafka's
    # coordinator compares generations only.
    assert play(Run(500796, "kafka-4.3", protocols=CLASSIC)) is None


def test_a_partition_that_brokers_do_not_know_yet_is_asked_for_by_its_former_owner() -> None:
    # It is the only one of its topic with a committed offset, and was assigned to another member.
    assert play(Run(938223, "kip-848", protocols=OF_KAFKA)) is None


def test_drawn_groups_migrate_both_ways_and_everything_happens_to_classic_members() -> None:
    seen: Counter[object] = Counter()

    def listen(_scene: Scene) -> Listeners:
        kinds = [""]

        def changed(fact: facts.GroupChanged) -> None:
            members = fact.group.members.values()
            kind = "classic" if fact.group.classic else "consumer" if members else ""
            if kind:
                seen.update([(kinds[-1], kind)])
                kinds.append(kind)
            seen["mixed"] += any(each.classic for each in members)

        return {
            facts.GroupChanged: changed,
            facts.ClassicHappened: lambda fact: seen.update([type(fact.event)]),
        }

    for seed in range(40):
        run = Run(seed, "kafka-4.3", protocols=OF_KAFKA)
        assert play(run, (listen,)) is None
    expected = {
        *(("classic", "consumer"), ("consumer", "classic"), "mixed"),
        *(events.PartitionsAssigned, events.PartitionsRevoked, events.PartitionsLost),
    }
    assert expected - seen.keys() == set()


def test_a_run_of_the_command_line_is_drawn_again() -> None:
    run = Run(7, "kafka-4.3", protocols=CLASSIC)
    assert run.command.endswith("--protocol classic-eager,classic-cooperative --schedules 1")
    assert run.made_of.classic
    assert not run.made_of.queries
    assert not Run(7, "kafka-4.3").made_of.classic


@pytest.mark.parametrize("swarm", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_an_eager_group_stops_for_a_rebalance_and_a_cooperative_one_reads_on(swarm: Swarm) -> None:
    seen = Facts(facts.ClassicHappened)
    found = world(replace(swarm, partitions=4, stops=0, starts_s=0.0), "kafka-4.3", 1, seen)
    first, second, _ = found.classic
    first.start()
    found.scene.schedule.run_until(10.0)
    seen.seen.clear()
    second.start()
    found.scene.schedule.run_until(25.0)
    kept: list[Any] = [each for each in seen.seen if getattr(each, "who", "") == "k1.1"]
    happened = [each.event for each in kept]
    revoked = [
        len(each.partitions) for each in happened if isinstance(each, events.PartitionsRevoked)
    ]
    assert revoked == ([2] if swarm is COOPERATIVE else [4])
    assert first.restless() == second.restless() == ""
    for each in (first, second):
        assert each.member is not None
        assert len(each.member.owned) == 2


def test_it_looks_for_the_coordinator_when_that_has_moved() -> None:
    found = world(replace(EAGER, classic=1, starts_s=0.0))
    found.classic[0].start()
    found.scene.schedule.run_until(10.0)
    found.scene.coordination.move(0.1, crash=True)
    found.scene.schedule.run_until(30.0)
    assert found.classic[0].restless() == ""
    assert len(found.scene.coordination.member_ids) == 1


def assigns_what_others_own_in_one_step(patch: Patch) -> None:
    def assign(_self: Any, members: Any, partition_counts: Any) -> Any:
        return StickyAssignor().assign(members, partition_counts)

    patch.setattr(CooperativeStickyAssignor, "assign", assign)


def joins_without_a_revocation(patch: Patch) -> None:
    def prepared(self: ClassicMembership) -> None:
        self.is_preparing = self._needs_prepare = False

    patch.setattr(ClassicMembership, "prepared", prepared)


def commits_nothing_before_it_revokes(patch: Patch) -> None:
    def commit(_self: ClassicRun, then: Callable[[], None], _ends_at: Any = None) -> None:
        then()

    patch.setattr(ClassicRun, "_commit", commit)


def assigns_a_partition_twice(patch: Patch) -> None:
    assign = ClassicRangeAssignor.assign

    def twice(self: Any, members: Any, partition_counts: Any) -> Any:
        found = assign(self, members, partition_counts)
        return dict.fromkeys(found, next(iter(found.values())))

    patch.setattr(ClassicRangeAssignor, "assign", twice)


@dataclass(frozen=True)
class Planted:
    """A bug of a classic consumer, the run that shows it, and the promise it breaks."""

    promise: str
    plant: Callable[[Patch], None]
    swarm: Swarm


PLANTED = (
    Planted("single owner", keeps_what_it_must_revoke, COOPERATIVE),
    Planted("single owner", assigns_what_others_own_in_one_step, COOPERATIVE),
    Planted("single owner", joins_without_a_revocation, EAGER),
    Planted("clean hand over", commits_nothing_before_it_revokes, EAGER),
    Planted("legal target", assigns_a_partition_twice, EAGER),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.plant.__name__)
def test_planted_bug_of_a_classic_consumer_is_caught(planted: Planted, monkeypatch: Patch) -> None:
    runs = [Run(seed, "kafka-4.3", planted.swarm) for seed in range(3)]
    assert [broken for broken in map(play, runs) if broken] == []
    planted.plant(monkeypatch)
    assert {broken.promise for broken in map(play, runs) if broken} == {planted.promise}
