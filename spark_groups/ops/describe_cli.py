"""`spark-groups describe`: groups as their coordinators have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from spark_groups.observation.views import GroupView
from spark_groups.ops.connecting import (
    Brokers,
    EveryPartitionFlag,
    GroupArguments,
    JsonFlag,
    connects,
)
from spark_groups.ops.output import ConsoleOutput, Room, write_json
from spark_groups.ops.render import render_group
from spark_groups.ops.render_describe import render_members, render_offsets, render_state


class Part(Enum):
    """What of a group is shown, by the option that asks for it."""

    EVERYTHING = ""
    MEMBERS = "--members"
    OFFSETS = "--offsets"
    STATE = "--state"


_RENDERERS: Final[Mapping[Part, Callable[..., RenderableType]]] = {
    Part.MEMBERS: render_members,
    Part.OFFSETS: render_offsets,
    Part.STATE: render_state,
}
"""As Kafka's own tool shows a group; `render_group` shows everything."""


@connects
def describe(  # noqa: PLR0917
    groups: GroupArguments,
    brokers: Brokers,
    members: Annotated[
        bool, typer.Option("--members", help="Only the members, as Kafka's own tool has them.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Only the partitions with offsets and lag, so too.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Only coordinator, assignor and state, so too.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Authorized operations as well; with one of these: epochs and assignments.",
        ),
    ] = False,
    as_json: JsonFlag = False,
    every_partition: EveryPartitionFlag = False,
) -> None:
    """Show who owns, waits for and gives up what in groups, and how far behind they are.

    Groups of the classic protocol are shown too; they have no epochs. With --json there is one
    document with everything; a list of them for several groups.

    Example: spark-groups describe flight-readers --bootstrap-server localhost:9092

    Exit code 1 if there is no such group or no broker answers.
    """
    part = _chosen(members=members, offsets=offsets, state=state)
    with brokers.observer() as observer:
        views = [observer.view(each) for each in groups]
    if as_json:
        documents = [each.to_json() for each in views]
        write_json(documents[0] if len(documents) == 1 else documents)
        return
    output = ConsoleOutput(every_partition=every_partition)
    for number, view in enumerate(views):
        if number:
            output.show(view, lambda _: Text())
        output.show(view, _renderer(view, part, verbose=verbose))


def _chosen(*, members: bool, offsets: bool, state: bool) -> Part:
    wanted = {Part.MEMBERS: members, Part.OFFSETS: offsets, Part.STATE: state}
    chosen = [part for part, is_wanted in wanted.items() if is_wanted]
    if len(chosen) > 1:
        raise typer.BadParameter(f"choose one of {', '.join(each.value for each in chosen)}")
    return chosen[0] if chosen else Part.EVERYTHING


def _renderer(view: GroupView, part: Part, *, verbose: bool) -> Callable[[Room], RenderableType]:
    if part is not Part.EVERYTHING:
        return lambda _: _RENDERERS[part](view, verbose=verbose)
    return lambda room: render_group(
        view, width=room.width, max_partition_rows=room.max_partition_rows, verbose=verbose
    )
