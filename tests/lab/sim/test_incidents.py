"""What goes wrong in a run beside the network."""

from __future__ import annotations

import pytest

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.incidents import Incidents
from spark_groups.lab.sim.operator import longest_reset_s
from spark_groups.lab.sim.swarm import Swarm
from tests.lab.sim.scenes import Facts, world

COUNTED = {
    "growth": "grows",
    "vanishings": "deletes",
    "elections": "elects",
    "truncations": "elects",
    "retentions": "retains",
    "moves": "move",
    "coordinator_crashes": "crash",
    "failed_appends": "nolog",
    "partitionings": "cut",
    "deafenings": "deafens",
    "denials": "denies",
}


@pytest.mark.parametrize("name", COUNTED)
def test_each_incident_happens_as_often_as_the_swarm_says(name: str) -> None:
    seen = Facts(facts.Incident, facts.Cut, facts.Grown, facts.Aged, facts.Deleted)
    swarm = Swarm.parse(f"{name}=3,topics=2")
    found = world(swarm, "kafka-4.3", 1, seen)
    for query in found.queries:
        query.start()
    found.scene.schedule.run_until(3.0)
    for act in Incidents(found.scene, found.queries).drawn():
        act()
        found.scene.schedule.run_until(found.scene.now + 15.0)
    incidents = [fact.what for fact in seen.seen if isinstance(fact, facts.Incident)]
    assert incidents.count(COUNTED[name]) == 3
    kinds = {type(fact) for fact in seen.seen} - {facts.Incident}
    expected = {
        "growth": {facts.Grown},
        "vanishings": {facts.Deleted},
        "truncations": {facts.Cut},
        "retentions": {facts.Aged},
    }
    assert kinds == expected.get(name, set())


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("stops", "leaves"),
        ("crashes", "dies"),
        ("failures", "fails"),
        ("pauses", "freezes"),
        ("zombies", "freezes"),
    ],
)
def test_queries_are_hit(name: str, word: str) -> None:
    found = world(Swarm.parse(f"{name}=3,queries=1,partitions=1"))
    found.queries[0].start()
    found.scene.schedule.run_until(3.0)
    for act in Incidents(found.scene, found.queries).drawn():
        act()
        found.scene.schedule.run_until(found.scene.now + 60.0)
    words = [line.split()[3] for line in found.scene.log.lines()]
    assert word in words


def test_a_reset_waits_until_the_group_has_no_members_and_keeps_queries_down_until_then() -> None:
    seen = Facts(facts.OffsetReset)
    found = world(Swarm.parse("resets=1,partitions=3,static=1"), "kafka-4.3", 2, seen)
    for query in found.queries:
        query.start()
    found.scene.schedule.run_until(20.0)
    (act,) = Incidents(found.scene, found.queries).drawn()
    act()
    members = found.scene.coordination.group.members
    assert members
    assert not seen.seen
    found.scene.schedule.run_until(20.0 + longest_reset_s(found.scene.swarm))
    assert {type(fact) for fact in seen.seen} == {facts.OffsetReset}
    found.scene.schedule.run_until(60.0)
    assert all(query.current is not None for query in found.queries)


def test_a_calm_swarm_has_no_incidents() -> None:
    found = world()
    assert list(Incidents(found.scene, found.queries).drawn()) == []
