"""`spark-groups simulate`: figures, pages, and runs that break a promise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from rich.console import Console, RenderableType
from typer.testing import CliRunner, Result

from group_lab.commands import simulate_cli, simulation
from group_lab.commands.simulate_cli import ROWS, profile_option, render_break, render_figures
from group_lab.commands.simulation import Break, Run, play
from group_lab.coordinator.metrics import PREFIX
from group_lab.coordinator.profile import KAFKA_4_3, KIP_848, PROFILES
from group_lab.sim.figures import Figures
from group_lab.sim.swarm import Assignor, Swarm
from spark_groups.cli.main import app
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client import GroupClient

SHORT = ("--duration", "20", "--session-timeout", "10", "--heartbeat-interval", "2")


def simulate(*words: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *words])


def test_protocols_are_compared_on_one_workload(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--protocol", "classic-eager,consumer", "--protocol", "classic-cooperative")
    found = simulate(*SHORT, "--seeds", "1", *words, "--html", str(page))
    assert found.exit_code == 0
    head = found.stdout.splitlines()[0].split()
    assert head == ["classic-eager", "consumer", "classic-cooperative"]
    assert "requests to the coordinator" in found.stdout
    html = page.read_text(encoding="utf-8")
    for name in head:
        assert f"<h2>{name}</h2>" in html
    found = simulate(*SHORT, "--seeds", "1", *words, "--json")
    profiles = json.loads(found.stdout)["profiles"]
    assert list(profiles) == head
    rates = [each["records"] / each["counted_s"] for each in profiles.values()]
    assert rates == pytest.approx([12 * 10] * 3, rel=0.05)
    assert all(each["requests"] and each["batches"] for each in profiles.values())


def test_an_unknown_protocol_is_refused() -> None:
    found = simulate("--protocol", "classic")
    assert found.exit_code == 2
    assert "'classic' is none of design-0.9" in found.output


def test_profiles_are_compared() -> None:
    found = simulate(*SHORT, "--seeds", "2", "--profile", "kafka-4.0", "--profile", "kafka-4.3")
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0].split() == ["kafka-4.0", "kafka-4.3"]
    assert "partitions moved" in found.stdout
    assert "mean of seeds 1 to 2" in found.stdout


def test_the_same_as_json() -> None:
    found = simulate(*SHORT, "--seeds", "1", "--members", "1", "--deploy", "none", "--json")
    document = json.loads(found.stdout)
    assert document["seeds"] == {"first": 1, "count": 1}
    figures = document["profiles"]["kafka-4.3"]
    assert figures.keys() == {each.name for each in fields(Figures)}
    assert figures["partitions_moved"] == figures["read_twice"] == figures["not_read_s"] == 0
    assert figures["records"] == pytest.approx(12 * 10 * 20, rel=0.05)
    metrics = document["coordinator_metrics"]["kafka-4.3"]
    assert metrics[PREFIX + "consumer-group-count,state=Stable"] == 1
    assert metrics[PREFIX + "consumer-group-rebalance-count"] == 0


def test_options_of_the_plan_reach_the_run() -> None:
    words = (
        "--static",
        "2",
        "--restart-time",
        "7",
        "--assignor",
        "range",
        "--records-per-second",
        "2",
    )
    found = simulate(*SHORT, "--seeds", "1", "--members", "2", *words, "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    made_of = Swarm.parse(document["swarm"])
    assert (made_of.static, made_of.restart_s, made_of.rate) == (2, 7.0, 2.0)
    assert (made_of.assignor, made_of.planned) == (Assignor.RANGE, 1)
    figures = document["profiles"]["kafka-4.3"]
    assert figures["partitions_moved"] == 0
    assert figures["longest_not_read_s"] == pytest.approx(7.0, rel=0.1)


def test_some_of_the_queries_may_be_static() -> None:
    words = ("--seeds", "1", "--members", "2", "--restart-time", "7", "--static", "1", "--json")
    found = simulate(*SHORT, *words)
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)["profiles"]["kafka-4.3"]
    # Only the partitions of the other one move, to the static one and back.
    assert 0 < figures["partitions_moved"] <= 12


def test_every_option_of_the_table_reaches_the_run() -> None:
    given = {
        "--pattern": (),
        "--growth": ("1",),
        "--initial-rebalance-delay": ("2",),
        "--rebalance-delay": ("6",),
        "--first-delay": ("4",),
        "--moves-per-round": ("3",),
        "--move-interval": ("2.5",),
        "--client-assignors": (),
    }
    words = [word for name, values in given.items() for word in (name, *values)]
    found = simulate(*SHORT, "--seeds", "1", "--profile", "kip-848", *words, "--json")
    assert found.exit_code == 0, found.output
    made_of = Swarm.parse(json.loads(found.stdout)["swarm"])
    assert (made_of.by_pattern, made_of.growth, made_of.computing) == (1, 1, 1)
    assert (made_of.initial_delay_s, made_of.rebalance_delay_s) == (2.0, 6.0)
    assert (made_of.first_delay_s, made_of.moves_max, made_of.move_interval_s) == (4.0, 3, 2.5)


def test_moves_at_a_time_decide_how_long_an_incremental_group_is_unbalanced() -> None:
    words = ("--seeds", "1", "--protocol", "incremental", "--deploy", "autoscale", "--json")
    unstable = []
    for moves in ("1", "6"):
        found = simulate(*SHORT, *words, "--moves-per-round", moves)
        assert found.exit_code == 0, found.output
        figures = json.loads(found.stdout)["profiles"]["incremental"]
        unstable.append(figures["unstable_s"])
    assert unstable[0] != unstable[1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--static", "4"), "there are 3 members"),
        (("--client-assignors",), "--profile kip-848 has"),
        (("--moves-per-round", "0"), "greater than or equal"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(words: tuple[str, ...], reason: str) -> None:
    found = simulate(*words)
    assert found.exit_code == 2
    assert reason in " ".join(found.output.split())


def test_the_page_has_a_section_for_each_profile(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("--seeds", "1", "--profile", "kafka-4.0", "--profile", "kafka-4.4")
    found = simulate(*SHORT, *words, "--html", str(page))
    assert found.exit_code == 0, found.output
    text = page.read_text(encoding="utf-8")
    assert [text.count(f"<h2>{name}</h2>") for name in ("kafka-4.0", "kafka-4.4")] == [1, 1]
    # A chart has its names in a column of its own.
    assert text.count("<svg") == 2 * text.count('<svg class="names"') == 4
    assert text.count('class="own"') > 12


@pytest.mark.parametrize("deploy", ["rolling", "all-at-once", "autoscale"])
@pytest.mark.parametrize("faults", ["some", "many"])
def test_deployments_and_faults_keep_every_promise(deploy: str, faults: str) -> None:
    found = simulate(*SHORT, "--seeds", "1", "--deploy", deploy, "--faults", faults)
    assert found.exit_code == 0, found.output


def test_schedules_are_reported_with_their_seeds() -> None:
    found = simulate("--schedules", "12", "--seed", "100")
    assert found.exit_code == 0, found.output
    assert f"12 schedules: seeds 100 to 101 on {', '.join(PROFILES)}" in found.stdout
    assert "12 schedules kept every promise" in found.stdout


def test_a_broken_promise_is_reported_with_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(runs: Sequence[Run], **_: object) -> list[Break]:
        return [Break(run, "no gap", "no gap: rows skipped", ("a line",)) for run in runs]

    monkeypatch.setattr(simulate_cli, "hunt", broken)
    found = simulate("--schedules", "9", "--seed", "31", "--profile", "kafka-4.2")
    assert found.exit_code == 1
    assert found.stdout.count("no gap: rows skipped") == simulation.BREAKS_SHOWN
    assert "spark-groups simulate --profile kafka-4.2 --seed 31 --schedules 1" in found.stdout
    assert "commit" in found.stdout


def test_the_command_of_a_broken_run_breaks_it_again_and_shrinks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def everything(self: GroupClient, _limit: PlanLimit, *rest: object) -> object:
        raise ArithmeticError("no plan")

    monkeypatch.setattr(GroupClient, "plan", everything)
    monkeypatch.setattr(simulate_cli, "hunt", lambda runs, **_: [play(run) for run in runs])
    found = simulate("--swarm", "queries=3,loss=0.02", "--profile", "kafka-4.3", "--shrink")
    assert found.exit_code == 1
    assert "no plan" in found.stdout
    assert "--swarm batch_s" not in found.stdout
    assert "chaos_s=10.0" in found.stdout
    assert "queries=1" in found.stdout


def test_every_order_of_events() -> None:
    found = simulate("--exhaustive", "4")
    assert found.exit_code == 0
    assert "states visited, 4 events deep: every promise kept" in found.stdout


@pytest.mark.parametrize("words", [("--profile", "kafka-3.9"), ("--swarm", "lost=1")])
def test_what_does_not_exist_is_refused(words: tuple[str, str]) -> None:
    found = simulate(*words)
    assert found.exit_code == 2
    assert words[0] in found.output


def text_of(renderable: RenderableType) -> str:
    console = Console(width=200, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_profiles_stand_side_by_side_with_units() -> None:
    figures = {
        "kafka-4.0": Figures(longest_not_read_s=12.34, records=12_345, partitions_moved=7),
        "kafka-4.3": Figures(longest_not_read_s=8.0, records=11_000, read_twice=3),
    }
    name = "consumer-group-rebalance-count"
    metrics = {
        "kafka-4.0": {PREFIX + name: 7.0, PREFIX + "partition-load-time-max": 0.0},
        "kafka-4.3": {PREFIX + name: 5.5, PREFIX + "partition-load-time-max": 0.0},
    }
    metrics["kafka-4.3"][PREFIX + "num-partitions,state=active"] = 1.0
    lines = text_of(render_figures(figures, metrics, range(1, 6))).splitlines()
    assert lines[0].split() == ["kafka-4.0", "kafka-4.3"]
    rows = {line[:33].strip(): line[33:].split() for line in lines[1:-1]}
    assert rows[name] == ["7", "5.5"]
    assert "partition-load-time-max" not in rows, "it is 0 on every profile"
    assert rows["num-partitions,state=active"] == ["—", "1"]
    assert rows["a partition is not read, longest"] == ["12.3", "s", "8.0", "s"]
    assert rows["records"] == ["12,345", "11,000"]
    assert rows["read twice"] == ["0", "3"]
    assert rows["partitions moved"] == ["7", "0"]
    assert lines[-1].startswith("mean of seeds 1 to 5")


def test_one_seed_is_no_mean() -> None:
    lines = text_of(
        render_figures({"kafka-4.3": Figures()}, {"kafka-4.3": {}}, range(4, 5))
    ).splitlines()
    assert lines[-1].strip() == "seed 4"


def test_every_figure_has_a_row() -> None:
    assert {name for _, name in ROWS} == {each.name for each in fields(Figures)}


def test_a_break_says_all_that_replays_it() -> None:
    run = Run(17, "kafka-4.1", Swarm(queries=2, loss=0.1))
    said = text_of(
        render_break(Break(run, "no gap", "no gap: [3, 4)", ("line 1", "line 2")), "abc")
    )
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert lines[:3] == ["line 1", "line 2", "no gap: [3, 4)"]
    assert lines[3:] == [
        "seed 17",
        "profile kafka-4.1",
        "commit abc",
        "replay spark-groups simulate --profile kafka-4.1 --seed 17 --swarm loss=0.1",
        "made of loss=0.1",
    ]


@pytest.mark.parametrize("text", ["4.3", "4.3.1", "Kafka-4.3", "kafka_4_3"])
def test_profile_is_named_as_people_name_versions(text: str) -> None:
    assert profile_option(text) is KAFKA_4_3
    assert profile_option("KIP-848") is KIP_848


def test_profile_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(typer.BadParameter, match=r"'kafka-3\.9' is none of kip-848, kafka-4\.0"):
        profile_option("kafka-3.9")
