"""`spark-groups delete` and `delete-offsets`: groups, or what they have committed, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_groups.errors import OptionsError
from spark_groups.ops.connecting import Brokers, GroupArgument, GroupArguments, JsonFlag, connects
from spark_groups.ops.deletions import delete_group_offsets, delete_groups
from spark_groups.ops.output import output_for
from spark_groups.ops.render_deletions import render_deleted_groups, render_deleted_offsets
from spark_groups.ops.topic_partitions import parse_topics


@connects
def delete(groups: GroupArguments, brokers: Brokers, as_json: JsonFlag = False) -> None:
    """Delete groups with all that they have committed; only those that have no members.

    Example: spark-groups delete flight-readers flight-writers

    Exit code 1 if a group that was named is not deleted.
    """
    with brokers.cluster() as cluster:
        view = delete_groups(cluster, groups)
    output_for(as_json=as_json).show(view, lambda _: render_deleted_groups(view))
    if not view.is_complete:
        raise typer.Exit(1)


@connects
def delete_offsets(
    group: GroupArgument,
    brokers: Brokers,
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1]",
            help="A topic, or some of its partitions; repeatable.",
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Delete what a group has committed for topics to which none of its members subscribes.

    Example: spark-groups delete-offsets flight-readers --topic flights:0,1 --topic orders

    Exit code 1 if an offset that was named is not deleted.
    """
    try:
        wanted = parse_topics(topics)
    except OptionsError as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from error
    with brokers.cluster() as cluster:
        view = delete_group_offsets(cluster, group, wanted)
    output_for(as_json=as_json).show(view, lambda _: render_deleted_offsets(view))
    if not view.is_complete:
        raise typer.Exit(1)
