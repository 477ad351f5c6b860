"""Redeployments of applications."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from group_lab.sim import facts
from group_lab.sim.deployment import steps_of
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import Deploy, Swarm
from lab.tests.sim.scenes import world

PLANNED = Swarm(queries=4, partitions=6, batch_s=3.0, planned=1, restart_s=8.0)


@pytest.mark.parametrize(
    ("deploy", "instants"),
    [
        (Deploy.NONE, []),
        (Deploy.ROLLING, [30.0, 40.0, 50.0, 60.0]),
        (Deploy.ALL_AT_ONCE, [30.0] * 4),
        (Deploy.AUTOSCALE, [30.0, 35.0, 70.0, 75.0]),
    ],
)
def test_steps_come_when_they_should(deploy: Deploy, instants: list[float]) -> None:
    swarm = Swarm(queries=4, chaos_s=90.0, deploy=deploy, deploy_every_s=10.0)
    found = [when for when, _ in steps_of(swarm, world(swarm).queries)]
    assert sorted(found) == instants


@pytest.mark.parametrize("deploy", Deploy)
def test_a_deployment_without_faults_reads_everything_once(deploy: Deploy) -> None:
    swarm = Swarm(queries=4, chaos_s=90.0, deploy=deploy, deploy_every_s=10.0)
    found = world(swarm)
    found.run()
    away = [query for query in found.queries if query.current is None]
    assert len(away) == (2 if deploy is Deploy.AUTOSCALE else 0)
    restarted = [query.current.name for query in found.queries if query.current]
    assert any(name.endswith(".2") for name in restarted) == (
        deploy in (Deploy.ROLLING, Deploy.ALL_AT_ONCE)
    )


class Diary:
    """Notes what happens in a planned run, and when; who is away, and whether it is counted."""

    def __init__(self, swarm: Swarm, log_fails_s: float = 0.0) -> None:
        self.notes: list[tuple[str, float]] = []
        self.away_at_leave: list[list[str]] = []
        """Who was away already, each time that one left."""
        self.states_at_leave: list[str] = []
        self.run = world(swarm, "kafka-4.3", 3, self._listen)
        self.run.scene.coordination.failing_until = log_fails_s
        self.run.run()

    def _listen(self, scene: Scene) -> Listeners:
        def note(name: str) -> None:
            self.notes.append((name, scene.now))

        def incident(fact: facts.Incident) -> None:
            if fact.what == "leaves":
                note(fact.text.partition(".")[0])
                away = [each.name for each in self.run.queries if each.current is None]
                self.away_at_leave.append(away)
                self.states_at_leave.append(scene.coordination.group.state.value)

        return {
            facts.CountingBegins: lambda _: note("begins"),
            facts.CountingEnds: lambda _: note("ends"),
            facts.Incident: incident,
        }


@pytest.mark.parametrize("static", [0, 4])
def test_a_planned_rolling_restart_waits_for_each_application(static: int) -> None:
    diary = Diary(replace(PLANNED, deploy=Deploy.ROLLING, static=static, chaos_s=20.0))
    assert [name for name, _ in diary.notes] == ["begins", "q1", "q2", "q3", "q4", "ends"]
    left_at = [when for _, when in diary.notes[1:-1]]
    assert all(later - earlier > PLANNED.restart_s for earlier, later in pairwise(left_at))
    assert diary.away_at_leave == [[], [], [], []]
    assert diary.states_at_leave == ["Stable"] * 4
    assert diary.notes[-1][1] > diary.notes[0][1] + 4 * PLANNED.restart_s, "not after 20 s"


def test_all_at_once_does_not_wait_and_lasts_as_long_as_was_asked() -> None:
    diary = Diary(replace(PLANNED, deploy=Deploy.ALL_AT_ONCE, chaos_s=90.0))
    assert sorted(name for name, _ in diary.notes) == ["begins", "ends", "q1", "q2", "q3", "q4"]
    begins_at, *_, last_at, ends_at = (when for _, when in diary.notes)
    assert last_at - begins_at <= PLANNED.batch_s + PLANNED.trigger_s
    assert ends_at - begins_at == pytest.approx(90.0)


def test_what_autoscaling_added_is_gone_in_the_end() -> None:
    diary = Diary(replace(PLANNED, deploy=Deploy.AUTOSCALE, chaos_s=90.0))
    assert [name for name, _ in diary.notes[1:-1]].count("q3") == 2
    assert [each.name for each in diary.run.queries if each.current] == ["q1", "q2"]


def test_an_application_is_away_for_as_long_as_a_restart_takes() -> None:
    diary = Diary(replace(PLANNED, queries=1, deploy=Deploy.ROLLING, restart_s=2.0, chaos_s=20.0))
    left_at = dict(diary.notes)["q1"]
    lines = [line.split() for line in diary.run.scene.log.lines()]
    assert [float(words[0]) for words in lines if words[1:4] == ["q1.2", "0", "starts"]] == [
        pytest.approx(left_at + 2.0, abs=0.001)
    ]


def test_a_deployment_continues_although_the_group_is_never_stable() -> None:
    swarm = replace(PLANNED, queries=2, partitions=1, deploy=Deploy.ALL_AT_ONCE, session_s=6.0)
    swarm = replace(swarm, rebalance_s=5.0, restart_s=1.0, chaos_s=20.0)
    diary = Diary(swarm, log_fails_s=75.0)
    assert [name for name, _ in diary.notes] == ["begins", "q1", "q2", "ends"]
    assert diary.states_at_leave != ["Stable"] * 2
