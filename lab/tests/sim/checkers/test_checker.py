"""Every checker checks every run and reports broken promises."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from group_lab.coordinator.profile import DESIGN_0_9
from group_lab.sim import facts
from group_lab.sim.checkers.checker import BrokenInvariantError, Checker
from group_lab.sim.checkers.commits import CommitsNeverGoBack
from group_lab.sim.checkers.group_state import SLACK_S, MemberEpochs, TimeoutsEnforced
from group_lab.sim.checkers.registry import CHECKERS, all_checkers
from group_lab.sim.history import History
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World
from lab.tests.sim.scenes import scene, world
from spark_groups.group.member.events import PartitionsAssigned
from spark_groups.types import Assignment


def test_a_broken_promise_names_its_checker() -> None:
    checker = CommitsNeverGoBack(scene(), History())
    with pytest.raises(BrokenInvariantError, match="commits never go back: it did") as caught:
        checker.fail("it did")
    assert (caught.value.checker, caught.value.text) == ("commits never go back", "it did")


ROOT = Path(__file__).parents[4]


def test_every_checker_is_in_use() -> None:
    assert set(CHECKERS) == set(Checker.__subclasses__())
    assert len({each.__name__ for each in CHECKERS}) == len(CHECKERS)


def test_every_checker_is_documented() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    names = [each(scene(), History()).name for each in CHECKERS]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_a_run_has_one_of_each_and_each_listens() -> None:
    found = all_checkers(scene(Swarm(available_now=1, table=1)), History())
    assert [type(each) for each in found] == list(CHECKERS)
    assert all(each.listeners() for each in found)


def test_a_member_may_be_silent_until_its_session_timeout() -> None:
    scene = world(Swarm(queries=1, starts_s=0.0, replication_s=0.0)).scene
    scene.participants[0].start()
    scene.schedule.run_until(60.0)
    check = TimeoutsEnforced(scene, History()).listeners()[facts.Quiet]
    check(facts.Quiet())
    (member_id,) = scene.coordination.group.members
    longest_s = scene.swarm.session_s + SLACK_S
    scene.coordination.last_heartbeat_at[member_id] = scene.now - longest_s
    check(facts.Quiet())
    scene.coordination.last_heartbeat_at[member_id] = scene.now - longest_s - 0.1
    with pytest.raises(BrokenInvariantError, match="has been silent"):
        check(facts.Quiet())
    scene.coordination.failing_until = scene.now
    check(facts.Quiet())


def test_a_consumer_of_the_design_is_assigned_partitions_once_in_a_generation() -> None:
    scene = World(Random(1), DESIGN_0_9, Swarm()).scene
    take = MemberEpochs(scene, History()).listeners()[facts.ClassicHappened]

    def assign(member_id: str, generation_id: int) -> None:
        event = PartitionsAssigned(0.0, member_id, generation_id, Assignment(frozenset()))
        take(facts.ClassicHappened("k1.1", event))

    for member_id, generation_id in (("a", 1), ("b", 1), ("a", 3), ("a", -1)):
        assign(member_id, generation_id)
    with pytest.raises(BrokenInvariantError, match="a is assigned 3 after 3"):
        assign("a", 3)
