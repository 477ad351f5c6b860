"""`spark-groups reset-offsets`: where a group that has no members is to read on."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_groups.errors import OptionsError
from spark_groups.ops.connecting import Brokers, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import output_for
from spark_groups.ops.render_reset import render_reset
from spark_groups.ops.reset import reset_offsets as reset
from spark_groups.ops.reset_plan import ResetKind, ResetTarget, parse_datetime
from spark_groups.ops.topic_partitions import parse_topics


@connects
def reset_offsets(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the start of each log.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each log.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="To this offset.", min=0)
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="OFFSETS", help="So far on, or back if negative.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="YYYY-MM-DDThh:mm:ss.sss",
            help="To the first record as late as that; in UTC, or with Z or +hh:mm.",
        ),
    ] = None,
    from_group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="To what another group has committed.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC[:0,1]", help="A topic, or some partitions; repeatable."
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All for which offsets are committed.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Plan new offsets for a group that has no members, and commit them with --execute.

    The plan is always shown. It is carried out for all partitions or none.

    Example: spark-groups reset-offsets flight-readers --topic flights --to-earliest --execute

    Exit code 1 if --execute does not set every offset.
    """
    given: dict[ResetKind, int | str | None] = {
        ResetKind.TO_EARLIEST: 0 if to_earliest else None,
        ResetKind.TO_LATEST: 0 if to_latest else None,
        ResetKind.TO_OFFSET: to_offset,
        ResetKind.SHIFT_BY: shift_by,
        ResetKind.TO_DATETIME: to_datetime,
        ResetKind.FROM_GROUP: from_group,
    }
    try:
        target = parse_target(given)
        wanted = parse_topics(topics) if topics else None
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error
    if bool(topics) == all_topics:
        raise typer.BadParameter("choose one of --topic and --all-topics")
    with brokers.cluster() as cluster:
        view = reset(cluster, group, target, wanted, execute=execute)
    output_for(as_json=as_json).show(view, lambda _: render_reset(view))
    if execute and not view.is_complete:
        raise typer.Exit(1)


def parse_target(given: dict[ResetKind, int | str | None]) -> ResetTarget:
    """Return where offsets are to be set to.

    Args:
        given: What was given to each option; None: it was not.

    Raises:
        OptionsError: Not exactly one was given, or a time cannot be read.
    """
    chosen = {kind: value for kind, value in given.items() if value is not None}
    if len(chosen) != 1:
        options = ", ".join(each.value for each in chosen or ResetKind)
        raise OptionsError(f"choose one of {options}")
    ((kind, value),) = chosen.items()
    if kind is ResetKind.TO_DATETIME:
        return ResetTarget(kind, parse_datetime(str(value)))
    if isinstance(value, str):
        return ResetTarget(kind, group_id=value)
    return ResetTarget(kind, value)
