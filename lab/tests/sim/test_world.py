"""Whole runs: every seed keeps every promise, the same one is the same run, and all kinds occur."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from group_lab.commands.simulation import Run, play
from group_lab.coordinator.profile import PROFILES
from group_lab.sim import facts
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import FAULTS, Swarm
from lab.tests.sim.scenes import world
from spark_groups.group.ledger import events as offset
from spark_groups.group.member import events as member

ROOT = Path(__file__).parents[3]
SEEDS = range(20)
"""`make simulate` plays hundreds more, in CI as well."""
PRINT_DIGESTS = """
import hashlib
from group_lab.coordinator.profile import PROFILES
from group_lab.commands.simulation import Run, world_of
from group_lab.sim import scene

scene.LINES_KEPT = scene.LINE_LENGTH = None
names = list(PROFILES)
for seed in range(24):
    world = world_of(Run(seed, names[seed % len(names)]))
    world.run()
    lines = world.scene.log.lines()
    print(seed, len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_promise_is_kept(profile: str, seed: int) -> None:
    broken = play(Run(seed, profile))
    if broken is not None:
        lines = "\n".join(broken.lines)
        raise AssertionError(f"{lines}\n{broken.text}\nreplay: {broken.run.command}")


def test_one_seed_is_one_run_under_any_hash_seed_of_python() -> None:
    playing = [
        subprocess.Popen(
            [sys.executable, "-c", PRINT_DIGESTS],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    one, other = (each.communicate()[0].splitlines() for each in playing)
    assert one == other
    assert len({each.split()[2] for each in one}) == 24, "and each seed is another run"


def test_everything_that_matters_happens_somewhere() -> None:
    seen: Counter[type] = Counter()

    def listen(_scene: Scene) -> Listeners:
        return {
            facts.Happened: lambda fact: seen.update([type(fact.event)]),
            facts.Consumed: lambda _: seen.update([facts.Consumed]),
            facts.Forgotten: lambda _: seen.update([facts.Forgotten]),
            facts.Deleted: lambda _: seen.update([facts.Deleted]),
            facts.Aged: lambda _: seen.update([facts.Aged]),
        }

    for seed in range(70):
        assert play(Run(seed, "kafka-4.2"), (listen,)) is None
    expected = {
        *(facts.Consumed, facts.Forgotten, facts.Deleted, facts.Aged, member.PartitionsLost),
        *(offset.CommitRefused, offset.RangesLost, offset.RangesInherited, offset.DataLost),
        *(offset.RangesOverruled, offset.PartitionsGivenUp, offset.RangesWithheld),
        *(member.InstanceUnreleased, offset.TopicRecreated, offset.RequestUnanswered),
        offset.WarmUpBegan,
    }
    assert {each.__name__ for each in expected - seen.keys()} == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_alone_keeps_every_promise_too(fault: str) -> None:
    value = 0.2 if isinstance(getattr(Swarm(), fault), float) else 3
    # Late is what gets lost first.
    made_of = "late=1,loss=0.2" if fault == "late" else f"{fault}={value}"
    swarm = Swarm.parse(f"queries=3,chaos_s=30,stops=2,{made_of}")
    assert play(Run(5, "kafka-4.3", swarm)) is None


def test_a_calm_run_comes_to_rest_long_before_it_must() -> None:
    calm = world(Swarm(queries=3))
    calm.run()
    assert calm.scene.now < calm.scene.swarm.chaos_s + 15.0 < calm.quiet_s
    assert calm.scene.coordination.group.state.value == "Stable"


@pytest.mark.parametrize(
    ("seed", "profile"),
    [
        (5000165, "kafka-4.0"),
        (5000494, "kafka-4.0"),
        (6000401, "kafka-4.0"),
        (6000968, "kafka-4.1"),
    ],
)
def test_batches_are_replayed_and_logs_truncated_around_a_deletion_of_offsets(
    seed: int, profile: str
) -> None:
    assert play(Run(seed, profile)) is None


def test_a_listener_may_use_the_longer_budget_of_a_member_that_slept() -> None:
    # A member that Spark calls seldom asks for two minutes: a revocation is held for thirty seconds
    # though the configured timeout is five.
    assert play(Run(1692, "kafka-4.2")) is None


def test_a_slow_log_may_cost_a_member_its_place() -> None:
    # The coordinator counts five seconds from its decision, of which the member hears a second
    # later: it is removed before it gives up, and its batch is read again.
    assert play(Run(2817, "kafka-4.2")) is None


def test_a_heartbeat_that_comes_late_may_take_partitions_and_nothing_is_skipped() -> None:
    # It has the previous epoch and the partitions owned then: none. The coordinator gives the
    # partitions, which are being read, to another member.
    taken: list[int] = []

    def listen(_scene: Scene) -> Listeners:
        return {facts.ChangedByLateHeartbeat: lambda fact: taken.append(len(fact.taken))}

    swarm = Swarm.parse(
        "topics=2,partitions=6,batch_s=6.0,rate=0.5,max_offsets=10,max_delay_s=8.0,rebalance_s=5.0,"
        "holds=1,deploy=all-at-once,stops=6,growth=2,elections=3,moves=3,loss=0.1,errors=0.2,"
        "partitionings=3,coordinator_crashes=1,crashes=4,late=1"
    )
    assert play(Run(700056, "kafka-4.0", swarm), (listen,)) is None
    assert taken == [4]
