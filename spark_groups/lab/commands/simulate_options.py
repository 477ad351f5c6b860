"""The options of `spark-groups simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from spark_groups.lab.coordinator.profile import PROFILES, Profile, profile_named
from spark_groups.lab.sim.swarm import Assignor, Deploy, Faults

GROUP: Final = "The group"
RUNS: Final = "Runs"
HUNTING: Final = "Looking for broken promises"

Members = Annotated[int, typer.Option(min=1, help="Queries in the group.", rich_help_panel=GROUP)]
Partitions = Annotated[
    int, typer.Option(min=1, help="Partitions of the topic.", rich_help_panel=GROUP)
]
BatchLength = Annotated[
    float,
    typer.Option(
        min=0.02,
        help="Seconds a batch takes at most; it takes four fifths of it at least.",
        rich_help_panel=GROUP,
    ),
]
Trigger = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Seconds of the processing-time trigger; 0 begins a batch when the last one ends.",
        rich_help_panel=GROUP,
    ),
]
RecordsPerSecond = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1000.0,
        help="Records that are written to each partition in a second.",
        rich_help_panel=GROUP,
    ),
]
AssignorName = Annotated[
    Assignor, typer.Option("--assignor", help="Who assigns partitions.", rich_help_panel=GROUP)
]
Static = Annotated[
    bool,
    typer.Option(
        "--static",
        help="The queries have instance ids: back within the session, they have what they had.",
        rich_help_panel=GROUP,
    ),
]
HeartbeatInterval = Annotated[float, typer.Option(min=0.1, help="Seconds.", rich_help_panel=GROUP)]
SessionTimeout = Annotated[float, typer.Option(min=1.0, help="Seconds.", rich_help_panel=GROUP)]
RebalanceTimeout = Annotated[float, typer.Option(min=1.0, help="Seconds.", rich_help_panel=GROUP)]
DeployPattern = Annotated[
    Deploy, typer.Option(help="How the queries are deployed anew.", rich_help_panel=GROUP)
]
RestartTime = Annotated[
    float,
    typer.Option(
        min=1.0,
        help="Seconds from the leave of an application until its next run joins the group: the end"
        " of its JVM, the start of the next one, of Spark and of the query.",
        rich_help_panel=GROUP,
    ),
]
FaultMeasure = Annotated[
    Faults, typer.Option(help="How much goes wrong meanwhile.", rich_help_panel=GROUP)
]
Duration = Annotated[
    float,
    typer.Option(
        min=10.0,
        help="Seconds that are counted from the end of the start-up on; more if the deployment"
        " takes longer.",
        rich_help_panel=RUNS,
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PROFILE",
        help=f"Whose coordinator: {', '.join(PROFILES)}; repeatable, to compare.",
        rich_help_panel=RUNS,
    ),
]
FirstSeed = Annotated[int, typer.Option(help="The first seed.", rich_help_panel=RUNS)]
SeedCount = Annotated[int, typer.Option(min=1, help="How many.", rich_help_panel=RUNS)]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="Write who owned what when, with the first seed, as a page.",
        rich_help_panel=RUNS,
    ),
]
Schedules = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Draw so many groups with their faults from the seed, and check every promise.",
        rich_help_panel=HUNTING,
    ),
]
SwarmText = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Check one group that is made of this, as a broken run names it.",
        rich_help_panel=HUNTING,
    ),
]
Shrink = Annotated[
    bool,
    typer.Option(
        "--shrink", help="Look for a smaller run that fails alike.", rich_help_panel=HUNTING
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        metavar="STEPS",
        min=1,
        help="Try every order of events of a small group, so many steps deep.",
        rich_help_panel=HUNTING,
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
        raise typer.BadParameter(f"{text!r} is none of {names}", param_hint="--profile") from error
