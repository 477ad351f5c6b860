"""Simulated runs as text for people."""

from __future__ import annotations

from dataclasses import fields

from rich.console import Console, RenderableType

from spark_groups.lab.commands.render_simulation import ROWS, render_break, render_figures
from spark_groups.lab.commands.simulated_runs import Break, Run
from spark_groups.lab.sim.figures import Figures
from spark_groups.lab.sim.swarm import Swarm


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
    lines = text_of(render_figures(figures, range(1, 6))).splitlines()
    assert lines[0].split() == ["kafka-4.0", "kafka-4.3"]
    rows = {line[:33].strip(): line[33:].split() for line in lines[1:-1]}
    assert rows["a partition is not read, longest"] == ["12.3", "s", "8.0", "s"]
    assert rows["records"] == ["12,345", "11,000"]
    assert rows["read twice"] == ["0", "3"]
    assert rows["partitions moved"] == ["7", "0"]
    assert lines[-1].startswith("mean of seeds 1 to 5")


def test_one_seed_is_no_mean() -> None:
    lines = text_of(render_figures({"kafka-4.3": Figures()}, range(4, 5))).splitlines()
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
