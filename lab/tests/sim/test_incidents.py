"""What goes wrong in a run beside the network."""

from __future__ import annotations

import pytest

from group_lab.sim import facts
from group_lab.sim.incidents import Incidents, Operator, longest_reset_s
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World
from lab.tests.sim.scenes import Facts, world
from spark_groups.group.ledger.commit_metadata import partition_count_in

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
    found = world(swarm, "kafka-4.3", 2, seen)
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


ALONE = Swarm(queries=1, partitions=4, from_latest=0, starts_s=0.0)


def read(seed: int, seen: Facts) -> World:
    """A query that has read something."""
    found = world(ALONE, "kafka-4.3", seed, seen)
    found.queries[0].start()
    found.scene.schedule.run_until(20.0)
    return found


def test_offsets_go_back_and_say_what_they_are_or_nothing() -> None:
    kept = set()
    for seed in range(12):
        seen = Facts(facts.OffsetReset)
        found = read(seed, seen)
        found.queries[0].stay_down(60.0, kill=False)
        coordination = found.scene.coordination
        before = {key: coordination.committed(key) or 0 for key in found.scene.storage.logs}
        Operator(found.scene, found.queries, 60.0, deletes=False).act()
        found.scene.schedule.run_until(40.0)
        assert seen.seen
        for fact in seen.seen:
            assert isinstance(fact, facts.OffsetReset)
            value = coordination.kept(fact.key)
            assert value is not None
            assert value.committed_offset == fact.new_offset <= before[fact.key]
            kept.add(value.metadata)
            assert partition_count_in(value.metadata) in (None, 4)
    copied = kept - {"", '{"partitions":4,"reset":true}'}
    assert len(kept - copied) == 2
    assert all('"mark":' in each for each in copied), "a tool that keeps the metadata"


def test_offsets_are_deleted_while_no_query_runs() -> None:
    seen = Facts(facts.OffsetDeleted, facts.OffsetReset)
    found = read(1, seen)
    found.queries[0].stay_down(60.0, kill=False)
    Operator(found.scene, found.queries, 60.0, deletes=True).act()
    found.scene.schedule.run_until(40.0)
    assert seen.seen
    for fact in seen.seen:
        assert isinstance(fact, facts.OffsetDeleted)
        assert found.scene.coordination.committed(fact.key) is None


def test_while_there_are_members_nothing_is_set() -> None:
    seen = Facts(facts.OffsetReset)
    found = read(1, seen)
    Operator(found.scene, found.queries, 30.0, deletes=False).act()
    found.scene.schedule.run_until(50.0)
    assert not seen.seen
