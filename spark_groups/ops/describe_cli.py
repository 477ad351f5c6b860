"""`spark-groups describe`: groups as their coordinators have them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from spark_groups.errors import GroupNotFoundError, OptionsError
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.views import GroupView
from spark_groups.ops.connecting import (
    Brokers,
    EveryPartitionFlag,
    JsonFlag,
    connects,
)
from spark_groups.ops.group_list import DESCRIBED_TYPES, parse_names
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
    brokers: Brokers,
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP...", help="The ids of one or more groups, without --type."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="All groups of the cluster of this type: classic (or generic), consumer;"
            " repeatable.",
        ),
    ] = None,
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

    Groups of the classic protocol are shown too; they have no epochs. With --type all groups of
    the cluster that are of this type are shown. With --json there is a list with everything of
    each group.

    Example: spark-groups describe flight-readers --bootstrap-server localhost:9092

    Exit code 1 if there is no such group or no broker answers.
    """
    part = _chosen(members=members, offsets=offsets, state=state)
    try:
        wanted_types = parse_names(types or (), DESCRIBED_TYPES, "types")
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error
    if bool(groups) == bool(wanted_types):
        raise typer.BadParameter("name groups, or give --type")
    with brokers.observer() as observer:
        if groups:
            views = [observer.view(each) for each in groups]
        else:
            views = list(_views_of_types(brokers, observer, wanted_types))
    if as_json:
        write_json([each.to_json() for each in views])
        return
    output = ConsoleOutput(every_partition=every_partition)
    for number, view in enumerate(views):
        if number:
            output.show(view, lambda _: Text())
        output.show(view, _renderer(view, part, verbose=verbose))


def _views_of_types(
    brokers: Brokers, observer: GroupObserver, types: tuple[str, ...]
) -> Iterator[GroupView]:
    with brokers.cluster() as cluster:
        listed = sorted(cluster.list_groups(types=types), key=lambda each: each.group_id)
    for each in listed:
        # One that is gone by now is no group of the cluster any more.
        with contextlib.suppress(GroupNotFoundError):
            yield observer.view(each.group_id)


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
