"""`spark-groups groups`: which groups the cluster has."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from spark_groups.errors import OptionsError, printable
from spark_groups.ops.connecting import Brokers, JsonFlag, connects
from spark_groups.ops.group_list import (
    GROUP_STATES,
    GROUP_TYPES,
    GroupListView,
    parse_names,
    view_groups,
)
from spark_groups.ops.output import UNKNOWN, output_for, plain_table
from spark_groups.ops.render import STATE_STYLES


@connects
def groups(
    brokers: Brokers,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only these: classic (or generic), consumer, share, streams; repeatable.",
        ),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only those in this state, like Empty; repeatable."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the groups of the cluster, of every protocol: id, type, protocol and state.

    Types and states are Kafka's own words, in any case; several may stand between commas.

    Example: spark-groups groups --type consumer --state stable,reconciling

    Exit code 1 if a broker does not answer.
    """
    try:
        wanted_types = parse_names(types or (), GROUP_TYPES, "types")
        wanted_states = parse_names(states or (), GROUP_STATES, "states")
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error
    with brokers.cluster() as cluster:
        view = view_groups(cluster.list_groups(types=wanted_types, states=wanted_states))
    output_for(as_json=as_json).show(view, lambda _: render_groups(view))


def render_groups(view: GroupListView) -> RenderableType:
    """Return one row for each group."""
    if not view.groups:
        return Text("no such groups")
    table = plain_table()
    for header in ("GROUP", "TYPE", "PROTOCOL", "STATE"):
        table.add_column(header, overflow="fold")
    for each in view.groups:
        table.add_row(
            Text(printable(each.group_id)),
            Text(printable(each.group_type).capitalize() or UNKNOWN),
            Text(printable(each.protocol_type) or UNKNOWN),
            Text(printable(each.group_state) or UNKNOWN, STATE_STYLES.get(each.group_state, "")),
        )
    return table
