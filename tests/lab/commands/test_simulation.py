"""`spark_groups.simulate`: what the command prints, as values."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

import spark_groups
from spark_groups.errors import OptionsError
from spark_groups.lab.commands import simulation
from spark_groups.lab.commands.simulate_cli import simulate as command
from spark_groups.lab.commands.simulated_runs import Break, Run
from spark_groups.lab.commands.simulation import Incident, simulate
from spark_groups.ops.cli import app

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
        if option != "profile":
            assert each.default == of_command[option], name


def test_who_owned_what_can_be_drawn() -> None:
    found = simulate(**SHORT, members=2, partitions=3, deploy="rolling", static=True, seeds=1)
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
        ({"members": 0}, "members is 0: it is 1 at least"),
        ({"seeds": 0}, "seeds is 0: it is 1 at least"),
        ({"batch_length_s": float("nan")}, "batch_length_s is nan: it is 0.02 at least"),
        ({"records_per_second": 2_000.0}, "records_per_second is 2000.0: it is 1000 at most"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionsError, match="it is") as refused:
        simulate(**arguments)
    assert words in str(refused.value)


def test_a_broken_promise_is_told_with_the_command_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = simulation.play

    def broken(run: Run, *rest: Any) -> Break:
        played(run, *rest)
        return Break(run, "read_once", "read twice", ())

    monkeypatch.setattr(simulation, "play", broken)
    found = simulate(**SHORT, members=1, seeds=1)
    assert found.broken_promises[0].startswith("read_once: read twice; again: spark-groups simul")
