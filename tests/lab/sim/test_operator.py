"""An operator sets offsets back, once nobody is in the group."""

from __future__ import annotations

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.operator import Operator
from spark_groups.lab.sim.swarm import Swarm
from spark_groups.lab.sim.world import World
from spark_groups.offsets.starting import parse_commit_metadata
from tests.lab.sim.scenes import Facts, world

ALONE = Swarm(queries=1, partitions=4, from_latest=0, starts_s=0.0)


def read(seed: int, seen: Facts) -> World:
    """A query that has read something."""
    found = world(ALONE, "kafka-4.3", seed, seen)
    found.queries[0].start()
    found.scene.schedule.run_until(20.0)
    return found


def test_offsets_go_back_and_say_what_they_are_or_nothing() -> None:
    kept = set()
    for seed in range(6):
        seen = Facts(facts.OffsetReset)
        found = read(seed, seen)
        found.queries[0].stay_down(60.0, kill=False)
        coordination = found.scene.coordination
        before = {key: coordination.committed(key) or 0 for key in found.scene.storage.logs}
        Operator(found.scene, found.queries, 60.0).act()
        found.scene.schedule.run_until(40.0)
        assert seen.seen
        for fact in seen.seen:
            assert isinstance(fact, facts.OffsetReset)
            value = coordination.kept(fact.key)
            assert value is not None
            assert value.committed_offset == fact.new_offset <= before[fact.key]
            kept.add(value.metadata)
            assert parse_commit_metadata(value.metadata) in (None, 4)
    assert kept == {"", '{"partitions":4,"reset":true}'}


def test_while_there_are_members_nothing_is_set() -> None:
    seen = Facts(facts.OffsetReset)
    found = read(1, seen)
    Operator(found.scene, found.queries, 30.0).act()
    found.scene.schedule.run_until(50.0)
    assert not seen.seen
