"""How fast the simulation is: runs per second and core, and group-hours per hour of a core.

    python workshop/benchmarks/schedules.py [--seconds 10] [--profile kafka-4.3] [--drawn]
    python workshop/benchmarks/schedules.py --digests 1000 > digests.txt

A schedule is three members that share twelve partitions; it ends with its 200th event of any
kind: a request or an answer that arrives, a timer, a step of Spark, a fault. With --drawn each
run is drawn from its seed as `make simulate` does, and played to its end. All checkers watch.

--digests measures nothing: it writes a line for each drawn run, with a digest of its whole event
log. Two commits, or two interpreters, whose digests are the same play the same runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from hashlib import sha256

from group_lab.commands.simulation import Run, world_of
from group_lab.coordinator.profile import PROFILES
from group_lab.sim.scene import EventLog, text_of
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World

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


class DigestLog(EventLog):
    """An event log that forgets nothing: each event is written into a digest."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = sha256()

    def add(self, now: float, who: str, epoch: str, what: str, *details: object) -> None:
        """Add an event to the log and to the digest."""
        super().add(now, who, epoch, what, *details)
        self.digest.update(f"{now!r} {who} {epoch} {what} {text_of(details)}\n".encode())


def schedule(seed: int, profile: str) -> World:
    """Play one schedule."""
    world = world_of(Run(seed, profile, SWARM))
    world.begin()
    world.scene.schedule.run_steps(EVENTS)
    return world


def drawn(seed: int, profile: str) -> World:
    """Play one run as `make simulate` draws it."""
    world = world_of(Run(seed, profile))
    world.run()
    return world


def digest(seed: int, profile: str) -> str:
    """Play a drawn run; return the digest of its events, with its failure and its random state."""
    world = world_of(Run(seed, profile))
    world.scene.log = log = DigestLog()
    try:
        world.run()
    except Exception as error:
        log.digest.update(repr(error).encode())
    scene = world.scene
    log.digest.update(f"{scene.now!r} {scene.schedule.steps} {scene.chance.random()!r}".encode())
    return log.digest.hexdigest()[:16]


def measure(seconds: float, profile: str, *, is_drawn: bool) -> str:
    """Play for so many seconds of processor time and say how many runs, and how long, that was."""
    play = drawn if is_drawn else schedule
    runs, virtual_s, events, began = 0, 0.0, 0, time.process_time()
    while time.process_time() - began < seconds:
        scene = play(runs, profile).scene
        runs, virtual_s, events = runs + 1, virtual_s + scene.now, events + scene.schedule.steps
    took_s = time.process_time() - began
    kind = "drawn runs" if is_drawn else f"schedules of {EVENTS} events"
    return (
        f"{profile}: {runs} {kind} in {took_s:.1f} s of processor time,"
        f" {runs / took_s:.1f} per second and core; {took_s / events * 1e6:.0f} µs an event,"
        f" {virtual_s / took_s:.0f} simulated group-hours per hour of a core\n"
    )


def main() -> None:
    """Measure, or write digests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of processor time")
    parser.add_argument("--profile", choices=tuple(PROFILES), default="kafka-4.3")
    parser.add_argument("--drawn", action="store_true", help="runs as `make simulate` draws them")
    parser.add_argument("--rounds", type=int, default=1, help="how often")
    parser.add_argument("--digests", type=int, metavar="RUNS", help="write so many digests instead")
    parser.add_argument("--first", type=int, default=0, help="seed of the first digest")
    options = parser.parse_args()
    if options.digests is None:
        for _ in range(options.rounds):
            sys.stdout.write(measure(options.seconds, options.profile, is_drawn=options.drawn))
            sys.stdout.flush()
        return
    names = tuple(PROFILES)
    for seed in range(options.first, options.first + options.digests):
        profile = names[seed % len(names)]
        sys.stdout.write(f"{seed} {profile} {digest(seed, profile)}\n")


if __name__ == "__main__":
    main()
