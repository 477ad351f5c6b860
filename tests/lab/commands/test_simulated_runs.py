"""Runs by seed: one, many on all cores, and the smallest that fails alike."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import pytest

from spark_groups.lab.commands import simulated_runs
from spark_groups.lab.commands.simulated_runs import (
    BREAKS_SHOWN,
    LINES_SHOWN,
    RUNS_EACH,
    Break,
    Run,
    hunt,
    play,
    play_all,
    shrink,
    world_of,
)
from spark_groups.lab.sim.swarm import Swarm, drawn
from spark_groups.lab.sim.world import World

ROUGH = Swarm(queries=4, partitions=6, crashes=5, loss=0.1, moves=2)


def broken_from_seed_30(runs: Iterable[Run]) -> list[Break]:
    return [Break(run, "a promise", "a story", ()) for run in runs if run.seed >= 30]


def test_a_run_is_made_of_what_its_seed_draws_unless_it_is_told() -> None:
    run = Run(7, "kafka-4.3")
    assert run.made_of == world_of(run).scene.swarm
    assert run.made_of != Run(8, "kafka-4.3").made_of
    assert Run(7, "kafka-4.3", ROUGH).made_of == ROUGH
    told = world_of(Run(7, "kafka-4.3", run.made_of))
    untold = world_of(run)
    told.run()
    untold.run()
    assert told.scene.log.lines() == untold.scene.log.lines()


def test_the_command_replays_a_run() -> None:
    words = shlex.split(Run(7, "kafka-4.3").command)
    assert words[:2] == ["spark-groups", "simulate"]
    assert words[2:] == ["--profile", "kafka-4.3", "--seed", "7", "--schedules", "1"]
    words = shlex.split(Run(7, "kafka-4.0", ROUGH).command)
    assert Swarm.parse(words[words.index("--swarm") + 1]) == ROUGH


def test_a_run_that_keeps_its_promises_is_no_break() -> None:
    assert play(Run(1, "kafka-4.3")) is None
    assert play_all([Run(1, "kafka-4.3"), Run(2, "kafka-4.0")]) == []


def test_a_run_that_raises_is_a_break_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(World):
        def run(self) -> None:
            for number in range(LINES_SHOWN + 1):
                self.scene.log.add(1.0, "world", "", "said", number)
            raise ArithmeticError("it does not add up")

    monkeypatch.setattr(simulated_runs, "World", Broken)
    (broken,) = play_all([Run(5, "kafka-4.0")])
    assert (broken.promise, broken.text) == ("ArithmeticError", "it does not add up")
    assert broken.lines[-1].endswith(f"said       {LINES_SHOWN}")
    assert len(broken.lines) == LINES_SHOWN


def test_a_hunt_ends_soon_after_some_runs_broke_a_promise() -> None:
    told: list[int] = []
    runs = [Run(seed, "kafka-4.3") for seed in range(100 * RUNS_EACH)]
    found = hunt(runs, jobs=1, played=told.append, play_all=broken_from_seed_30)
    assert found[0].run.seed == 30
    assert len(found) >= BREAKS_SHOWN
    assert sum(told) < len(runs) / 2


def test_a_hunt_that_finds_nothing_plays_every_run() -> None:
    told: list[int] = []
    runs = [Run(seed, "kafka-4.3") for seed in range(RUNS_EACH + 1)]
    assert hunt(runs, jobs=2, played=told.append) == []
    assert sum(told) == len(runs)


def test_a_break_is_shrunk_to_a_smaller_run_that_breaks_the_same_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crashes_too_often(run: Run) -> Break | None:
        # Half of the seeds do not show it.
        shows = run.seed % 2 == 1 and run.made_of.crashes >= 2
        return Break(run, "a promise", "it crashed", ()) if shows else None

    monkeypatch.setattr(simulated_runs, "play", crashes_too_often)
    found = shrink(Break(Run(4, "kafka-4.3", ROUGH), "a promise", "it crashed", ()))
    assert (found.run.seed, found.run.made_of.crashes) == (5, 2)
    assert (found.run.made_of.queries, found.run.made_of.loss) == (1, 0.0)
    other = Break(Run(4, "kafka-4.3", ROUGH), "another promise", "it did not", ())
    assert shrink(other) == other, "what cannot be shown again is told as it was"


def test_seeds_draw_from_one_source() -> None:
    assert {drawn(simulated_runs.Random(3)) for _ in range(3)} == {Run(3, "kafka-4.4").made_of}
