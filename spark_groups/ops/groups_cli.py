"""`spark-groups groups`: which groups the cluster has."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_groups.errors import OptionsError
from spark_groups.ops.connecting import Brokers, JsonFlag, connects
from spark_groups.ops.group_list import GROUP_STATES, GROUP_TYPES, parse_names, view_groups
from spark_groups.ops.output import output_for
from spark_groups.ops.render_group_list import render_groups


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
