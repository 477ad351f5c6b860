"""`spark-groups remove`: members that are to leave a group and do not do it themselves."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_groups.ops.connecting import Brokers, DryRunFlag, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import output_for
from spark_groups.ops.removal import remove_members
from spark_groups.ops.render_removal import render_removals


@connects
def remove(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    instance_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--instance-id", metavar="ID", help="Whoever has this instance id; repeatable."
        ),
    ] = None,
    member_ids: Annotated[
        list[str] | None,
        typer.Option("--member-id", metavar="ID", help="This very member; repeatable."),
    ] = None,
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove members from a group: their partitions and instance ids are free at once.

    Each id has its own result: removed, unknown, or fenced if it belongs to somebody else. Beside
    instance ids, the member id of a static member must be that of one of them. A member whose
    query still runs joins again by itself: stop it first.

    Example: spark-groups remove flight-readers --instance-id gate-1 --instance-id gate-2

    Exit code 1 if somebody who was named is not removed, or would not be.
    """
    if not instance_ids and not member_ids:
        raise typer.BadParameter("name whom to remove: --instance-id or --member-id, repeatable")
    if not all((group, *(instance_ids or ()), *(member_ids or ()))):
        raise typer.BadParameter("an id is not empty")
    with brokers.cluster() as cluster:
        view = remove_members(
            cluster, group, instance_ids or (), member_ids or (), is_dry_run=dry_run
        )
    output_for(as_json=as_json).show(view, lambda _: render_removals(view))
    if not view.is_complete:
        raise typer.Exit(1)
