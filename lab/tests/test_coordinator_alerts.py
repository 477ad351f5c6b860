"""The alerts about group coordinators, tried against groups in virtual time."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from group_lab.coordinator.metrics import CLASSIC_PREFIX, PREFIX
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World
from lab.tests.sim.scenes import world

ALERTS = Path(__file__).parents[2] / "conf" / "prometheus" / "kafka-coordinator-alerts.yml"
RULE = re.compile(r"- alert: (\w+)\n +expr: (.+)\n(?: +for: (\d+)m\n)?")
EXPRESSION = re.compile(
    r"(increase|sum by \(instance\) )?\(?(\w+)(?:\{(\w+)=~?\"([^\"]+)\"\})?(?:\[30m\])?\)? > (\d+)"
)
EVERY_S = 15.0
WINDOW_S = 30 * 60.0
SWARM = Swarm(queries=3, batch_s=10.0, trigger_s=20.0, rate=0.5, heartbeat_s=5.0, session_s=45.0)
LONG = Swarm(
    queries=2, batch_s=1500.0, rebalance_s=3000.0, session_s=45.0, heartbeat_s=5.0, planned=1
)


@dataclass(frozen=True)
class Sample:
    """The exported metrics at one moment: value by name and label."""

    at: float
    values: Mapping[tuple[str, str], float]

    def sum(self, name: str, label: str) -> float:
        found = [
            value
            for (each, of), value in self.values.items()
            if each == name and re.fullmatch(label, of)
        ]
        assert found, f"{name} is not exported with {label}"
        return sum(found)


def exported(name: str) -> tuple[str, str]:
    """Return the name and label that the JMX exporter gives a metric without rules."""
    if name.startswith(CLASSIC_PREFIX):
        value = name.removeprefix(CLASSIC_PREFIX)
        return "kafka_coordinator_group_GroupMetadataManager_Value", value
    attribute, _, label = name.removeprefix(PREFIX).partition(",")
    words = attribute.replace("-", "_")
    return f"kafka_server_group_coordinator_metrics_{words}", label.partition("=")[2]


def holds(expression: str, samples: list[Sample]) -> bool:
    """Return whether an expression holds at the last sample."""
    found = EXPRESSION.fullmatch(expression)
    assert found, expression
    function, name, _, label, limit = found.groups()
    now = samples[-1]
    value = now.sum(name, label or "")
    if function == "increase":
        old = takewhile(lambda each: each.at >= now.at - WINDOW_S, reversed(samples))
        value -= list(old)[-1].sum(name, label or "")
    return operator.gt(value, float(limit))


def fired(played: World, act: Callable[[int], None], minutes: int = 40) -> set[str]:
    """Play a run, with an action every minute, and return the alerts that fired."""
    rules = RULE.findall(ALERTS.read_text(encoding="utf-8"))
    since: dict[str, float] = {}
    firing: set[str] = set()
    samples: list[Sample] = []
    scene = played.scene
    played.begin()
    while scene.now < minutes * 60.0:
        if scene.now % 60.0 == 0.0:
            act(int(scene.now / 60.0))
        scene.schedule.run_until(scene.now + EVERY_S)
        named = scene.coordination.metrics()
        values = {exported(name): value for name, value in named.items()}
        samples.append(Sample(scene.now, values))
        for name, expression, for_minutes in rules:
            if not holds(expression, samples):
                since.pop(name, None)
            elif scene.now - since.setdefault(name, scene.now) >= 60.0 * int(for_minutes or 0):
                firing.add(name)
    return firing


def nothing(_minute: int) -> None:
    """Let the group run."""


def test_every_rule_is_read() -> None:
    text = ALERTS.read_text(encoding="utf-8")
    assert len(RULE.findall(text)) == text.count("- alert: ") == text.count("description: ")


@pytest.mark.parametrize("profile", ["kafka-4.0", "kafka-4.4"])
def test_a_rolling_deployment_fires_none(profile: str) -> None:
    played = world(SWARM, profile)

    def restart(minute: int) -> None:
        if 5 <= minute < 8:
            played.queries[minute - 5].stop(15.0)

    assert fired(played, restart) == set()


def test_a_query_that_restarts_every_minute_fires() -> None:
    played = world(SWARM)

    def restart(minute: int) -> None:
        if minute >= 2:
            played.queries[0].stop(5.0)

    assert fired(played, restart) == {"KafkaConsumerGroupsRebalanceOften"}


def test_a_consumer_that_restarts_every_minute_fires() -> None:
    played = world(Swarm(queries=0, classic=3, session_s=45.0, heartbeat_s=5.0, batch_s=10.0))

    def restart(minute: int) -> None:
        if minute >= 2:
            played.classic[0].stop(5.0)

    assert fired(played, restart) == {"KafkaClassicGroupsRebalanceOften"}


def test_a_member_that_keeps_its_partitions_for_long_fires() -> None:
    assert fired(world(LONG), nothing) == {"KafkaConsumerGroupDoesNotSettle"}


def test_a_classic_group_that_waits_for_long_fires() -> None:
    played = world(Swarm(queries=0, classic=2, batch_s=1500.0, rebalance_s=3000.0, planned=1))

    def join(minute: int) -> None:
        if minute == 3:
            played.classic[0].kill(1.0, forget=False)

    assert "KafkaClassicGroupDoesNotSettle" in fired(played, join)


def test_a_coordinator_that_reads_its_log_for_long_fires() -> None:
    played = world(SWARM)

    def move(minute: int) -> None:
        if minute == 5:
            played.scene.coordination.move(600.0, crash=False)

    assert "KafkaCoordinatorLoads" in fired(played, move)


def test_a_broker_that_cannot_read_its_log_fires() -> None:
    rules = RULE.findall(ALERTS.read_text(encoding="utf-8"))
    (expression,) = (each for name, each, _ in rules if name == "KafkaCoordinatorFailed")
    name = PREFIX + "num-partitions,state="
    values = {exported(name + "failed"): 1.0, exported(name + "active"): 1.0}
    assert holds(expression, [Sample(0.0, values)])
    assert not holds(expression, [Sample(0.0, {**values, exported(name + "failed"): 0.0})])
