"""How fast the simulation is: schedules per second and core, each of 200 events.

    python benchmarks/schedules.py [SECONDS [PROFILE]]

Three members share twelve partitions; a schedule ends with its 200th event, whatever that is: a
request or an answer that arrives, a timer, a step of Spark, a fault. All checkers watch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from spark_groups.ops.simulated_runs import Run, world_of
from spark_groups.sim.swarm import Swarm

EVENTS = 200
SWARM = Swarm(
    queries=3,
    partitions=12,
    starts_s=1.0,
    batch_s=1.0,
    loss=0.02,
    delay=0.02,
    crashes=2,
    moves=1,
    stops=1,
)


def play(seed: int, profile: str) -> None:
    """Play one schedule."""
    world = world_of(Run(seed, profile, SWARM))
    world.begin()
    world.scene.schedule.run_steps(EVENTS)


def main(arguments: Sequence[str]) -> None:
    """Print how many schedules one core plays in a second of its time."""
    seconds = float(arguments[0]) if arguments else 10.0
    profile = arguments[1] if len(arguments) > 1 else "kafka-4.3"
    seed, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        play(seed, profile)
        seed += 1
    took_s = time.process_time() - began
    sys.stdout.write(
        f"{profile}: {seed} schedules of {EVENTS} events in {took_s:.1f} s of processor time,"
        f" {seed / took_s:.0f} per second and core\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
