"""The planner beside a real restart: real Spark applications, then `simulate` with what they took.

    python -m workshop.benchmarks.planner_check [--members 2] [--partitions 6] \
        [--records-per-second 20]
        [--restarts dynamic-rolling,static-rolling] [--results build/planner] [--page PAGE]

A restart that is kept in the directory of results is not measured again.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from group_lab.commands.simulation import Run, play
from group_lab.sim.figures import FigureCounter, Figures, Moves, Reading, Usual, mean
from group_lab.sim.queries import PLANNED_LEAST
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import Deploy, Swarm
from workshop.benchmarks.planner_restart import SESSION_S, TRIGGER_S, Restart, restart

PROFILE = "kafka-4.3"
SEEDS = range(1, 21)
PLANNED_MEAN = (1 + PLANNED_LEAST) / 2
"""How long a batch of a planned run takes on average, as a part of its greatest length."""
COMPARED = (
    ("longest_not_read_s", "a partition is not read, longest, s"),
    ("not_read_s", "all partitions together, s"),
    ("pauses", "how often"),
    ("records_delayed", "records delayed"),
    ("read_twice", "records read twice"),
    ("delay_p50_s", "delay p50, s"),
    ("delay_p99_s", "delay p99, s"),
    ("delay_max_s", "delay max, s"),
    ("partitions_moved", "partitions moved"),
    ("moves_needed", "needed"),
    ("moves_not_needed", "not needed"),
)


@dataclass(frozen=True)
class Inputs:
    """What a real restart took, as options of `spark-groups simulate` have it.

    Args:
        batch_s: How long a batch with rows took on average that is not the first of its run.
        first_batch_s: The same of those that are.
        restart_s: How long an application was away on average: from its leave to its join.
        loads: Least, mean and greatest load average of the machine.
    """

    batch_s: float
    first_batch_s: float
    restart_s: float
    loads: tuple[float, float, float]


def away(measured: Restart) -> Iterator[tuple[str, float, float]]:
    """Yield each application that was away, and from when until when."""
    left: dict[str, float] = {}
    before: set[str] = set()
    for look in measured.looks:
        there = {name for name, epoch in look.epochs.items() if epoch >= 0}
        if look.at_s >= measured.began_at_s:
            left |= dict.fromkeys(before - there, look.at_s)
            for name in there & left.keys():
                yield name, left.pop(name), look.at_s
        before = there


def inputs_of(measured: Restart) -> Inputs:
    """Return what the planner is given."""
    gone = list(away(measured))
    firsts, others = [], []
    for name in sorted({read.who for read in measured.reads}):
        joined_at_s = [until for who, _, until in gone if who == name]
        for read in (read for read in measured.reads if read.who == name and any(read.records)):
            if read.began_at_s < measured.began_at_s:
                continue
            is_first = bool(joined_at_s) and read.began_at_s >= joined_at_s[0]
            if is_first:
                joined_at_s.pop(0)
            (firsts if is_first else others).append(read.ended_at_s - read.began_at_s)
    return Inputs(
        statistics.mean(others),
        statistics.mean(firsts),
        statistics.mean(until - since for _, since, until in gone),
        (min(measured.loads), statistics.mean(measured.loads), max(measured.loads)),
    )


def observed(measured: Restart, usual: Usual) -> Figures:
    """Count a real restart as the planner counts a simulated one."""
    began_at_s, ended_at_s = measured.began_at_s, measured.ended_at_s
    reading: Reading[int] = Reading(began_at_s, usual, ended_at_s)
    for read in measured.reads:
        reading.finished(read.began_at_s, read.ended_at_s, read.records)
    moves: Moves[int] = Moves()
    for look in (look for look in measured.looks if look.at_s <= began_at_s):
        moves.seen(look.epochs, look.owners, is_stable=look.is_stable)
    moves.forget()
    for look in (look for look in measured.looks if look.at_s > began_at_s):
        moves.seen(look.epochs, look.owners, is_stable=look.is_stable)
    values = {**reading.figures(), **moves.figures(), "counted_s": ended_at_s - began_at_s}
    return Figures(**values)  # type: ignore[arg-type]


def planned(measured: Restart, inputs: Inputs) -> list[Figures]:
    """Return what the planner says, by seed."""
    swarm = Swarm(
        queries=measured.members,
        partitions=measured.partitions,
        static=measured.members if measured.is_static else 0,
        batch_s=inputs.batch_s / PLANNED_MEAN,
        trigger_s=TRIGGER_S,
        rate=measured.records_per_second,
        heartbeat_s=5.0,
        session_s=SESSION_S,
        rebalance_s=300.0,
        chaos_s=measured.ended_at_s - measured.began_at_s,
        deploy=Deploy(measured.deploy),
        restart_s=inputs.restart_s,
        listener=1,
        planned=1,
    )
    found = []
    for seed in SEEDS:
        counters: list[FigureCounter] = []

        def listen(scene: Scene, into: list[FigureCounter] = counters) -> Listeners:
            into.append(FigureCounter(scene))
            return into[0].listeners()

        broken = play(Run(seed, PROFILE, swarm), [listen])
        if broken is not None:
            raise SystemExit(f"seed {seed}: {broken.text}")
        found.append(counters[0].figures)
    return found


@dataclass(frozen=True)
class Check:
    """A real restart, and what the planner says of it.

    Args:
        name: `dynamic-rolling`, for example.
        measured: The measurements.
        inputs: What the planner was given.
        real: Their figures.
        planned: What the planner counted, by seed.
    """

    name: str
    measured: Restart
    inputs: Inputs
    real: Figures
    planned: list[Figures]


def check(name: str, measured: Restart) -> Check:
    """Compare a real restart with the planner."""
    inputs = inputs_of(measured)
    usual = Usual.of(inputs.batch_s / PLANNED_MEAN, TRIGGER_S)
    return Check(name, measured, inputs, observed(measured, usual), planned(measured, inputs))


def table(found: Check) -> Iterator[str]:
    """Yield the lines of a page about one restart."""
    measured, inputs = found.measured, found.inputs
    low, usual, high = inputs.loads
    kind = "static" if measured.is_static else "dynamic"
    yield f"## {kind} members, {measured.deploy}"
    yield ""
    yield (
        f"{measured.members} applications, {measured.partitions} partitions,"
        f" {measured.records_per_second:g} records a second to each, for"
        f" {found.real.counted_s:.0f} s. Load average {usual:.0f} ({low:.0f} to {high:.0f})."
    )
    yield (
        f"Measured, and given to the planner: a batch takes {inputs.batch_s:.2f} s on average, a"
        f" restart {inputs.restart_s:.1f} s from the leave to the join. Not given to it: the first"
        f" batch of a run takes {inputs.first_batch_s:.1f} s."
    )
    yield ""
    yield "| | real | planned, mean | planned, all seeds | mean / real |"
    yield "|---|---|---|---|---|"
    average = mean(found.planned)
    for name, label in COMPARED:
        values = [getattr(each, name) for each in found.planned]
        real, centre = getattr(found.real, name), statistics.mean(values)
        ratio = f"{centre / real:.2f}" if real else ("1.00" if not centre else "-")
        digits = 1 if isinstance(getattr(average, name), float) else 0
        yield (
            f"| {label} | {real:.{digits}f} | {centre:.{digits}f} |"
            f" {min(values):.{digits}f} to {max(values):.{digits}f} | {ratio} |"
        )
    yield ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure missing scenarios, plan the same, and write both side by side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--records-per-second", type=float, default=20.0)
    parser.add_argument("--restarts", default="dynamic-rolling,static-rolling")
    parser.add_argument("--results", type=Path, default=Path("build/planner"))
    parser.add_argument("--page", type=Path)
    given = parser.parse_args(arguments)
    given.results.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for name in given.restarts.split(","):
        kind, _, deploy = name.partition("-")
        kept = given.results / f"{name}.pickle"
        if not kept.exists():
            size = (given.members, given.partitions, given.records_per_second)
            kept.write_bytes(pickle.dumps(restart(*size, deploy, is_static=kind == "static")))
        lines += table(check(name, pickle.loads(kept.read_bytes())))
    text = "\n".join(lines)
    if given.page is None:
        sys.stdout.write(text)
    else:
        given.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
