"""`spark-groups simulate`: the cost of deployments and faults of a group, in numbers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from group_lab.commands.plan_options import OPTIONS, planned
from group_lab.commands.simulation import BREAKS_SHOWN, Break, Played, Run, hunt, shrink
from group_lab.commands.timeline_page import render_page
from group_lab.coordinator.metrics import mean_metrics
from group_lab.coordinator.profile import DESIGN_0_9, KAFKA_4_3, PROFILES, Profile, profile_named
from group_lab.sim.exhaustive import Bounds, explore
from group_lab.sim.figures import Figures, mean
from group_lab.sim.swarm import (
    CONVERTIBLE,
    Assignor,
    Deploy,
    Faults,
    GroupProtocol,
    Swarm,
    with_faults,
    with_protocol,
)
from group_lab.sim.timeline import Timeline
from spark_groups.cli.connecting import JsonFlag
from spark_groups.cli.output import (
    ALARM_STYLE,
    QUIET_STYLE,
    UNKNOWN,
    console,
    number,
    plain_table,
    write_json,
)
from spark_groups.errors import OptionsError

_group = partial(typer.Option, rich_help_panel="The group")
_runs = partial(typer.Option, rich_help_panel="Runs")
_hunting = partial(typer.Option, rich_help_panel="Looking for broken promises")


def _planned(name: str, *flags: str, in_runs: bool = False) -> Any:
    """Return an option of the table."""
    option, group = OPTIONS[name], _runs if in_runs else _group
    return group(*flags, min=option.least, max=option.most, help=option.text)


Members = Annotated[int, _planned("members")]
Partitions = Annotated[int, _planned("partitions")]
BatchLength = Annotated[float, _planned("batch_length")]
Trigger = Annotated[float, _planned("trigger")]
RecordsPerSecond = Annotated[float, _planned("records_per_second")]
ProtocolNames = Annotated[
    list[str] | None,
    _group(
        "--protocol",
        metavar="PROTOCOL",
        help=f"How members rebalance: {', '.join(each.value for each in GroupProtocol)} (default:"
        " consumer); repeatable or with commas, to compare. Classic members are applications that"
        " poll, process a batch of the same length and commit. With --schedules: the protocols to"
        " draw.",
    ),
]
AssignorName = Annotated[Assignor, _planned("assignor", "--assignor")]
Static = Annotated[int, _planned("static")]
ByPattern = Annotated[bool, _planned("pattern", "--pattern")]
Growth = Annotated[int, _planned("growth")]
HeartbeatInterval = Annotated[float, _planned("heartbeat_interval")]
SessionTimeout = Annotated[float, _planned("session_timeout")]
RebalanceTimeout = Annotated[float, _planned("rebalance_timeout")]
InitialRebalanceDelay = Annotated[float, _planned("initial_rebalance_delay")]
RebalanceDelay = Annotated[float, _planned("rebalance_delay")]
FirstDelay = Annotated[float, _planned("first_delay")]
MovesPerRound = Annotated[int, _planned("moves_per_round")]
MoveInterval = Annotated[float, _planned("move_interval")]
ClientAssignors = Annotated[bool, _planned("client_assignors", "--client-assignors")]
DeployPattern = Annotated[Deploy, _planned("deploy")]
RestartTime = Annotated[float, _planned("restart_time")]
FaultMeasure = Annotated[Faults, _group(help="The amount of faults meanwhile.")]
Duration = Annotated[float, _planned("duration", in_runs=True)]
Profiles = Annotated[
    list[str] | None,
    _runs(
        metavar="PROFILE", help=f"Whose coordinator: {', '.join(PROFILES)}; repeatable, to compare."
    ),
]
FirstSeed = Annotated[int, _runs(help="The first seed.")]
SeedCount = Annotated[int, _runs(min=1, help="How many.")]
Page = Annotated[
    Path | None,
    _runs(
        metavar="FILE",
        dir_okay=False,
        help="Write a page with the owners over time, for the first seed.",
    ),
]
Schedules = Annotated[
    int | None,
    _hunting(min=1, help="Draw so many groups with faults from the seed, and check every promise."),
]
SwarmText = Annotated[
    str | None,
    _hunting(
        metavar="NAME=VALUE,...",
        help="Check one group with these parts, as printed for a broken run.",
    ),
]
Shrink = Annotated[bool, _hunting("--shrink", help="Look for a smaller run with the same failure.")]
Depth = Annotated[
    int | None,
    _hunting(
        metavar="STEPS",
        min=1,
        help="Try every order of events of a small group, up to so many steps.",
    ),
]


def profile_option(text: str) -> Profile:
    """Return the profile that `--profile` names.

    Raises:
        typer.BadParameter: There is no such profile.
    """
    try:
        return profile_named(text)
    except KeyError as error:
        names = ", ".join(PROFILES)
        reason = f"{text!r} is none of {names}"
        if text == DESIGN_0_9.name:
            reason += f"; --protocol {text} has a coordinator of its own"
        raise typer.BadParameter(reason, param_hint="--profile") from error


def protocols_option(names: Iterable[str]) -> tuple[GroupProtocol, ...]:
    """Return the protocols that `--protocol` names, each once.

    Raises:
        typer.BadParameter: There is no such protocol.
    """
    known = {each.value: each for each in GroupProtocol}
    named = [part.strip() for name in names for part in name.split(",")]
    for text in named:
        if text not in known:
            reason = f"{text!r} is none of {', '.join(known)}"
            raise typer.BadParameter(reason, param_hint="--protocol")
    return tuple(dict.fromkeys(known[each] for each in named)) or (GroupProtocol.CONSUMER,)


def simulate(  # noqa: PLR0917
    members: Members = 3,
    partitions: Partitions = 12,
    batch_length: BatchLength = 5.0,
    trigger: Trigger = 1.0,
    records_per_second: RecordsPerSecond = 10.0,
    protocol: ProtocolNames = None,
    assignor: AssignorName = Assignor.UNIFORM,
    static: Static = 0,
    pattern: ByPattern = False,
    growth: Growth = 0,
    heartbeat_interval: HeartbeatInterval = 5.0,
    session_timeout: SessionTimeout = 45.0,
    rebalance_timeout: RebalanceTimeout = 300.0,
    initial_rebalance_delay: InitialRebalanceDelay = 3.0,
    rebalance_delay: RebalanceDelay = 20.0,
    first_delay: FirstDelay = 0.0,
    moves_per_round: MovesPerRound = 1,
    move_interval: MoveInterval = 5.0,
    client_assignors: ClientAssignors = False,
    deploy: DeployPattern = Deploy.ROLLING,
    restart_time: RestartTime = 15.0,
    faults: FaultMeasure = Faults.NONE,
    duration: Duration = 120.0,
    profile: Profiles = None,
    seed: FirstSeed = 1,
    seeds: SeedCount = 5,
    html: Page = None,
    as_json: JsonFlag = False,
    schedules: Schedules = None,
    swarm: SwarmText = None,
    shrink_breaks: Shrink = False,
    exhaustive: Depth = None,
) -> None:
    """Play groups of queries in virtual time, on a model of the coordinator.

    The queries run the same client as in production. Compare profiles, deployments and timeouts
    before you choose; or search for schedules that break a promise: a broken one is printed with
    its seed, its event log and the command that replays it.

    Counting begins when the group has started and is stable. A rolling deployment restarts the
    next application when the previous one reads again and the group is stable.

    Example: spark-groups simulate --members 4 --batch-length 20 --static 4 --html rolling.html
    Example: spark-groups simulate --protocol classic-eager,delayed,consumer --batch-length 1

    Exit code 1 if a promise is broken.
    """
    given = locals()
    is_hunt = schedules is not None or swarm is not None
    otherwise = tuple(PROFILES) if is_hunt else (KAFKA_4_3.name,)
    names = tuple(profile_option(each).name for each in profile or otherwise)
    protocols = protocols_option(protocol or ())
    if exhaustive is not None:
        _exhaust(exhaustive, names)
    elif is_hunt:
        _check(_hunted(schedules or 0, swarm, seed, names, protocols), shrinks=shrink_breaks)
    else:
        planned_swarm = _planned_or_refused(given)
        plans, drawn = _plans(protocols, names, planned_swarm), range(seed, seed + seeds)
        faulty, compares = with_faults(planned_swarm, faults), protocol is not None
        _plan(faulty, plans, drawn, html, as_json=as_json, compares=compares)


def _planned_or_refused(given: Mapping[str, object]) -> Swarm:
    try:
        return planned(given)
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error


def _plans(
    protocols: Iterable[GroupProtocol], profiles: Sequence[str], swarm: Swarm
) -> list[tuple[GroupProtocol, str]]:
    """Return every protocol with every profile; the 0.9 design has a coordinator of its own.

    Raises:
        typer.BadParameter: A profile has no client-side assignors.
    """
    lacking = [profile for profile in profiles if not PROFILES[profile].kip_heartbeats]
    if swarm.computing and lacking:
        reason = f"{', '.join(lacking)} has no client-side assignors: --profile kip-848 has"
        raise typer.BadParameter(reason, param_hint="--client-assignors")
    if swarm.static and (
        without := [protocol.value for protocol in protocols if protocol not in CONVERTIBLE]
    ):
        note = f"--static has no effect on {', '.join(without)}: they have no instance ids"
        Console(stderr=True).print(note, soft_wrap=True)
    return [
        (protocol, name)
        for protocol in protocols
        for name in (profiles[:1] if protocol is GroupProtocol.DESIGN_0_9 else profiles)
    ]


def _hunted(
    schedules: int,
    swarm: str | None,
    seed: int,
    profiles: Sequence[str],
    protocols: tuple[GroupProtocol, ...],
) -> list[Run]:
    """Return the runs to check: those of a named swarm, or drawn ones."""
    if swarm is not None:
        made_of = _swarm(swarm)
        return [Run(seed, name, made_of) for name in profiles]
    seeds = range(seed, seed + -(-schedules // len(profiles)))
    return [Run(each, name, protocols=protocols) for each in seeds for name in profiles]


def _swarm(text: str) -> Swarm:
    try:
        return Swarm.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--swarm") from error


def _progress(title: str, total: int) -> tuple[Progress, TaskID]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, transient=True, console=Console(stderr=True))
    return progress, progress.add_task(title, total=total)


def _plan(
    swarm: Swarm,
    plans: Sequence[tuple[GroupProtocol, str]],
    seeds: range,
    html: Path | None,
    *,
    as_json: bool,
    compares: bool,
) -> None:
    """Play one group with every protocol, on every profile, and show the figures.

    Args:
        plans: Protocols, each with the name of a profile.
        compares: Whether the user named the protocols.
    """
    figures: dict[str, Figures] = {}
    metrics: dict[str, dict[str, float]] = {}
    sections: list[tuple[str, str, Timeline]] = []
    progress, bar = _progress("runs", len(plans) * len(seeds))
    breaks = []
    with progress:
        for protocol, profile in plans:
            found, found_metrics = [], []
            name = _column(protocol, profile, plans, compares=compares)
            for seed in seeds:
                played = Played(Run(seed, profile, with_protocol(swarm, protocol)))
                found.append(played.figures)
                found_metrics.append(played.coordinator_metrics)
                breaks += [played.broken] if played.broken else []
                if html is not None and seed == seeds[0]:
                    sections.append((name, _sentence(played), played.timeline))
                progress.advance(bar)
            figures[name] = mean(found)
            metrics[name] = mean_metrics(found_metrics)
    if html is not None:
        title = f"{swarm.queries} queries, {swarm.partitions} partitions: {swarm.deploy.value}"
        html.write_text(render_page(title, sections), encoding="utf-8")
    if as_json:
        write_json(
            {
                "seeds": {"first": seeds[0], "count": len(seeds)},
                "swarm": swarm.text,
                "profiles": {name: asdict(figure) for name, figure in figures.items()},
                "coordinator_metrics": metrics,
            }
        )
    else:
        console().print(render_figures(figures, metrics, seeds))
    _end(breaks)


def _column(
    protocol: GroupProtocol,
    profile: str,
    plans: Sequence[tuple[GroupProtocol, str]],
    *,
    compares: bool,
) -> str:
    """Return the name of a column: the profile, the protocol, or both."""
    if not compares:
        return profile
    has_one_profile = len({plan for _, plan in plans}) == 1
    has_one_profile |= protocol is GroupProtocol.DESIGN_0_9
    return protocol.value if has_one_profile else f"{protocol.value}, {profile}"


def _sentence(played: Played) -> str:
    figures = played.figures
    return (
        f"Seed {played.run.seed}: {figures.partitions_moved} partitions moved;"
        f" {figures.pauses} times a partition was not read, for {figures.longest_not_read_s:.1f} s"
        f" at most; a record waited {figures.delay_max_s:.1f} s at most."
    )


def _check(runs: list[Run], *, shrinks: bool) -> None:
    """Play runs on all cores and show those that break a promise."""
    numbers = sorted({run.seed for run in runs})
    profiles = ", ".join(dict.fromkeys(run.profile for run in runs))
    title = f"{len(runs):,} schedules: seeds {numbers[0]} to {numbers[-1]} on {profiles}"
    console().print(title, soft_wrap=True)
    progress, bar = _progress("schedules", len(runs))
    with progress:
        breaks = hunt(
            runs, jobs=os.cpu_count() or 1, played=lambda count: progress.advance(bar, count)
        )
    if not breaks:
        console().print(f"{len(runs):,} schedules kept every promise")
    _end([shrink(breaks[0])] if shrinks and breaks else breaks)


def _end(breaks: list[Break]) -> None:
    for each in breaks[:BREAKS_SHOWN]:
        console().print(render_break(each, _commit()), soft_wrap=True)
    if breaks:
        raise typer.Exit(1)


def _commit() -> str:
    """Return the commit of this code, with a plus if it is modified, or "—"."""
    here = Path(__file__).parent
    words = ["git", "describe", "--always", "--dirty=+"]
    try:
        said = subprocess.run(words, cwd=here, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return said.stdout.strip()


def _exhaust(depth: int, profiles: tuple[str, ...]) -> None:
    """Try every order of events, and print the number of states."""
    for name in profiles:
        found = explore(PROFILES[name], Bounds(depth=depth))
        console().print(f"{name}: {found.text}")
        if found.broken:
            raise typer.Exit(1)


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
    ("requests to the coordinator", "requests"),
    ("time counted", "counted_s"),
)


def render_figures(
    figures: Mapping[str, Figures], metrics: Mapping[str, Mapping[str, float]], seeds: range
) -> RenderableType:
    """Return figures, and the coordinators' metrics, as a table with a column for each name.

    Args:
        figures: By profile or protocol.
        metrics: The same: the coordinator's metrics by name. One that is 0 everywhere gets no row.
    """
    table = plain_table()
    table.add_column("")
    for profile in figures:
        table.add_column(profile, justify="right")
    for label, name in ROWS:
        table.add_row(label, *(_figure(getattr(figure, name), name) for figure in figures.values()))
    of_profiles = [metrics[profile] for profile in figures]
    table.add_row("")
    table.add_row(Text("metrics of the coordinator", QUIET_STYLE))
    for name in dict.fromkeys(name for each in of_profiles for name in each):
        values = [each.get(name) for each in of_profiles]
        if any(values):
            shown = (UNKNOWN if each is None else f"{each:,.4g}" for each in values)
            table.add_row(name.partition("name=")[2], *shown)
    if len(seeds) == 1:
        note = f"seed {seeds[0]}"
    else:
        note = f"mean of seeds {seeds[0]} to {seeds[-1]}; the longest times are those of all runs"
    return Group(table, Text(note, QUIET_STYLE))


def _figure(value: float, name: str) -> str:
    return f"{value:,.1f} s" if name.endswith("_s") else number(int(value))


def render_break(broken: Break, commit: str) -> RenderableType:
    """Return the report of a run that broke a promise."""
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
