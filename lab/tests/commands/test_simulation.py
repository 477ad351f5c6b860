"""`spark_groups.simulate`: what the command prints, as values."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

import spark_groups
from group_lab.commands import simulation
from group_lab.commands.simulate_cli import simulate as command
from group_lab.commands.simulation import (
    BREAKS_SHOWN,
    LINES_SHOWN,
    RUNS_EACH,
    Break,
    Incident,
    Run,
    hunt,
    play,
    play_all,
    shrink,
    simulate,
    world_of,
)
from group_lab.sim.swarm import Swarm, drawn
from group_lab.sim.world import World
from spark_groups.cli.main import app
from spark_groups.errors import OptionsError

SHOW_IMPORTED = """
import sys
import spark_groups
print(sorted(each for each in sys.modules if each.startswith("spark_groups.")))
spark_groups.simulate
print([each for each in ("confluent_kafka", "pyspark", "rich", "typer") if each in sys.modules])
"""
SHORT = {"duration_s": 20.0, "session_timeout_s": 10.0, "heartbeat_interval_s": 2.0}


def test_it_gives_what_the_command_prints() -> None:
    words = ("--duration", "20", "--session-timeout", "10", "--heartbeat-interval", "2")
    printed = CliRunner().invoke(app, ["simulate", *words, "--seeds", "2", "--json"])
    document = json.loads(printed.stdout)
    found = spark_groups.simulate(**SHORT, seeds=2)
    assert asdict(found.figures) == document["profiles"]["kafka-4.3"]
    assert found.coordinator_metrics == document["coordinator_metrics"]["kafka-4.3"]


def test_it_needs_neither_kafka_nor_spark_nor_the_command_line() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SHOW_IMPORTED],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n[]\n"


def test_its_defaults_are_those_of_the_command() -> None:
    units = ("_s", "")
    of_command = {
        name: getattr(each.default, "value", each.default)
        for name, each in inspect.signature(command).parameters.items()
    }
    for name, each in inspect.signature(simulate).parameters.items():
        option = next(name.removesuffix(unit) for unit in units if name.endswith(unit))
        if option not in ("profile", "protocol"):
            assert each.default == of_command[option], name


def test_who_owned_what_can_be_drawn() -> None:
    found = simulate(**SHORT, members=2, partitions=3, deploy="rolling", static=2, seeds=1)
    assert not found.broken_promises
    partitions = list(dict.fromkeys(each.partition for each in found.ownership))
    assert len(partitions) == 3
    assert {each.application for each in found.ownership} == {"q1", "q2"}
    assert any(each.is_away for each in found.ownership)
    for partition in partitions:
        spans = [each for each in found.ownership if each.partition == partition]
        for before, after in pairwise(spans):
            assert before.begins_s < before.ends_s <= after.begins_s
        assert spans[-1].ends_s == found.ends_at_s
    assert [each.text.split()[0] for each in found.incidents].count("leaves") == 2
    document = json.loads(json.dumps(found.to_json()))
    assert document["ownership"][0]["partition"] == partitions[0]
    assert Incident(**document["incidents"][0]) == found.incidents[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"deploy": "slowly"}, "deploy is 'slowly': it is one of none, rolling, all-at-once"),
        ({"assignor": "sticky"}, "assignor is 'sticky': it is one of uniform, range"),
        ({"faults": "most"}, "faults is 'most': it is one of none, some, many"),
        ({"profile": "kafka-3.9"}, "profile is 'kafka-3.9': it is one of kip-848, kafka-4.0"),
        ({"members": 0}, "members is 0: it must be at least 1"),
        ({"static": 4}, "static is 4: there are 3 members"),
        ({"static": True}, "static is True: it must be a number"),
        ({"client_assignors": True}, "client_assignors needs the profile kip-848: kafka-4.3"),
        ({"moves_per_round": 0}, "moves_per_round is 0: it must be at least 1"),
        ({"seeds": 0}, "seeds is 0: it must be at least 1"),
        ({"batch_length_s": float("nan")}, "batch_length_s is nan: it must be at least 0.02"),
        ({"records_per_second": 2_000.0}, "records_per_second is 2000.0: it must be at most 1000"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionsError, match=r" is | needs ") as refused:
        simulate(**arguments)
    assert words in str(refused.value)


def test_a_broken_promise_is_reported_with_the_command_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = simulation.play

    def broken(run: Run, *rest: Any) -> Break:
        played(run, *rest)
        return Break(run, "read_once", "read twice", ())

    monkeypatch.setattr(simulation, "play", broken)
    found = simulate(**SHORT, members=1, seeds=1)
    assert found.broken_promises[0].startswith("read_once: read twice; again: spark-groups simul")


ROUGH = Swarm(queries=4, partitions=6, crashes=5, loss=0.1, moves=2)


def broken_from_seed_30(runs: Iterable[Run]) -> list[Break]:
    return [Break(run, "a promise", "a story", ()) for run in runs if run.seed >= 30]


def test_a_run_follows_its_seed_unless_options_are_given() -> None:
    run = Run(7, "kafka-4.3")
    assert run.made_of == world_of(run).scene.swarm
    assert run.made_of != Run(8, "kafka-4.3").made_of
    assert Run(7, "kafka-4.3", ROUGH).made_of == ROUGH
    given = world_of(Run(7, "kafka-4.3", run.made_of))
    drawn_world = world_of(run)
    given.run()
    drawn_world.run()
    assert given.scene.log.lines() == drawn_world.scene.log.lines()


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

    monkeypatch.setattr(simulation, "World", Broken)
    (broken,) = play_all([Run(5, "kafka-4.0")])
    assert (broken.promise, broken.text) == ("ArithmeticError", "it does not add up")
    assert broken.lines[-1].endswith(f"said       {LINES_SHOWN}")
    assert len(broken.lines) == LINES_SHOWN


def test_a_hunt_ends_soon_after_some_runs_broke_a_promise() -> None:
    played: list[int] = []
    runs = [Run(seed, "kafka-4.3") for seed in range(100 * RUNS_EACH)]
    found = hunt(runs, jobs=1, played=played.append, play_all=broken_from_seed_30)
    assert found[0].run.seed == 30
    assert len(found) >= BREAKS_SHOWN
    assert sum(played) < len(runs) / 2


def test_a_hunt_of_one_job_plays_in_this_process() -> None:
    pids: set[int] = set()

    def play_here(_: Iterable[Run]) -> list[Break]:
        pids.add(os.getpid())
        return []

    assert hunt([Run(30, "kafka-4.3")], jobs=1, play_all=play_here) == []
    assert pids == {os.getpid()}


def test_a_hunt_that_finds_nothing_plays_every_run() -> None:
    played: list[int] = []
    runs = [Run(seed, "kafka-4.3") for seed in range(RUNS_EACH + 1)]
    assert hunt(runs, jobs=2, played=played.append) == []
    assert sum(played) == len(runs)


def test_a_break_is_shrunk_to_a_smaller_run_that_breaks_the_same_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crashes_too_often(run: Run) -> Break | None:
        # Half of the seeds do not show it.
        shows = run.seed % 2 == 1 and run.made_of.crashes >= 2
        return Break(run, "a promise", "it crashed", ()) if shows else None

    monkeypatch.setattr(simulation, "play", crashes_too_often)
    found = shrink(Break(Run(4, "kafka-4.3", ROUGH), "a promise", "it crashed", ()))
    assert (found.run.seed, found.run.made_of.crashes) == (5, 2)
    assert (found.run.made_of.queries, found.run.made_of.loss) == (1, 0.0)
    other = Break(Run(4, "kafka-4.3", ROUGH), "another promise", "it did not", ())
    assert shrink(other) == other, "a break that does not repeat stays as it was"


def test_seeds_draw_from_one_source() -> None:
    assert {drawn(Random(3)) for _ in range(3)} == {Run(3, "kafka-4.4").made_of}
