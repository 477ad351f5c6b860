"""`spark-groups delete` and `delete-offsets`: groups, or what they have committed, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_groups.errors import OptionsError
from spark_groups.ops.connecting import (
    Brokers,
    DryRunFlag,
    GroupArgument,
    GroupArguments,
    JsonFlag,
    connects,
)
from spark_groups.ops.deletions import delete_group_offsets, delete_groups
from spark_groups.ops.output import output_for
from spark_groups.ops.render_deletions import render_deleted_groups, render_deleted_offsets
from spark_groups.ops.topic_partitions import parse_topics


@connects
def delete(
    groups: GroupArguments,
    brokers: Brokers,
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Delete groups with all that they have committed; only those that have no members.

    Example: spark-groups delete flight-readers flight-writers --dry-run

    Exit code 1 if a group that was named is not deleted, or would not be.
    """
    with brokers.cluster() as cluster:
        view = delete_groups(cluster, groups, is_dry_run=dry_run)
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
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Delete what a group has committed for topics to which none of its members subscribes.

    Example: spark-groups delete-offsets flight-readers --topic flights:0,1 --topic orders

    Exit code 1 if an offset that was named is not deleted, or would not be.
    """
    try:
        wanted = parse_topics(topics)
    except OptionsError as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from error
    with brokers.cluster() as cluster:
        view = delete_group_offsets(cluster, group, wanted, is_dry_run=dry_run)
    output_for(as_json=as_json).show(view, lambda _: render_deleted_offsets(view))
    if not view.is_complete:
        raise typer.Exit(1)
