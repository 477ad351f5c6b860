"""Simulated runs as text for people: profiles side by side, and runs that broke a promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.lab.commands.simulated_runs import Break
from spark_groups.lab.sim.figures import Figures
from spark_groups.ops.render_text import ALARM_STYLE, QUIET_STYLE, number, plain_table

ROWS: Final = (
    ("a partition is not read, longest", "longest_not_read_s"),
    ("  all partitions together", "not_read_s"),
    ("  how often", "pauses"),
    ("records", "records"),
    ("  delayed", "records_delayed"),
    ("  read twice", "read_twice"),
    ("delay of records, p50", "delay_p50_s"),
    ("  p99", "delay_p99_s"),
    ("  max", "delay_max_s"),
    ("partitions moved", "partitions_moved"),
    ("  needed", "moves_needed"),
    ("  not needed", "moves_not_needed"),
    ("group not stable, longest", "longest_unstable_s"),
    ("  all in all", "unstable_s"),
    ("batches", "batches"),
    ("time counted", "counted_s"),
)


def render_figures(figures: Mapping[str, Figures], seeds: range) -> RenderableType:
    """Return the figures of several profiles as a table.

    Args:
        figures: By profile.
        seeds: The seeds of the runs.
    """
    table = plain_table()
    table.add_column("")
    for profile in figures:
        table.add_column(profile, justify="right")
    for label, name in ROWS:
        table.add_row(label, *(_figure(getattr(each, name), name) for each in figures.values()))
    if len(seeds) == 1:
        told = f"seed {seeds[0]}"
    else:
        told = f"mean of seeds {seeds[0]} to {seeds[-1]}; the longest times are those of all runs"
    return Group(table, Text(told, QUIET_STYLE))


def _figure(value: float, name: str) -> str:
    return f"{value:,.1f} s" if name.endswith("_s") else number(int(value))


def render_break(broken: Break, commit: str) -> RenderableType:
    """Return what is known about a run that broke a promise.

    Args:
        broken: The run.
        commit: The commit of the code that played it.
    """
    table = Table.grid(padding=(0, 2))
    for label, value in (
        ("seed", str(broken.run.seed)),
        ("profile", broken.run.profile),
        ("commit", commit),
        ("replay", broken.run.command),
        ("made of", broken.run.made_of.text),
    ):
        table.add_row(Text(label, QUIET_STYLE), Text(value))
    return Group(
        *(Text(line) for line in broken.lines),
        Text(broken.text, ALARM_STYLE),
        table,
    )
