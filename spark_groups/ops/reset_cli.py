"""`spark-groups reset-offsets`: where a group that has no members is to read on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import OptionsError, printable
from spark_groups.ops.connecting import Brokers, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import output_for, plain, plain_table
from spark_groups.ops.reset import reset_offsets as reset
from spark_groups.ops.reset_plan import (
    ResetKind,
    ResetTarget,
    ResetView,
    parse_datetime,
    parse_duration,
    parse_offsets,
)
from spark_groups.ops.topic_partitions import parse_topics

ToDatetime = Annotated[
    str | None,
    typer.Option(
        metavar="YYYY-MM-DDThh:mm:ss.sss",
        help="To the first record as late as that; in UTC, or with Z or +hh:mm.",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        metavar="PnDTnHnMnS",
        help="To the first record that is no older than that: P1D, PT2H30M.",
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="To offsets in a file: topic,partition,offset in each line, as the --export of"
        " Kafka's own tool writes them. It names the partitions as well.",
        exists=True,
        dir_okay=False,
    ),
]
FromGroup = Annotated[
    str | None, typer.Option(metavar="GROUP", help="To what another group has committed.")
]


@connects
def reset_offsets(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the start of each log.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each log.")] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="To what is committed; to the end of the log where nothing is."
        ),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="To this offset.", min=0)
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="OFFSETS", help="So far on, or back if negative.")
    ] = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    from_group: FromGroup = None,
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

    Exit code 1 if the plan cannot be carried out, or --execute does not set every offset.
    """
    given: dict[ResetKind, int | str | Path | None] = {
        ResetKind.TO_EARLIEST: 0 if to_earliest else None,
        ResetKind.TO_LATEST: 0 if to_latest else None,
        ResetKind.TO_CURRENT: 0 if to_current else None,
        ResetKind.TO_OFFSET: to_offset,
        ResetKind.SHIFT_BY: shift_by,
        ResetKind.TO_DATETIME: to_datetime,
        ResetKind.BY_DURATION: by_duration,
        ResetKind.FROM_FILE: from_file,
        ResetKind.FROM_GROUP: from_group,
    }
    try:
        target = parse_target(given, group, now_ms=time.time_ns() // 1_000_000)
        wanted = _scope(target, topics or (), all_topics=all_topics)
    except (OptionsError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error)) from error
    with brokers.cluster() as cluster:
        view = reset(cluster, group, target, wanted, execute=execute)
    output_for(as_json=as_json).show(view, lambda _: render_reset(view))
    if view.refusal or (execute and not view.is_complete):
        raise typer.Exit(1)


def _scope(
    target: ResetTarget, topics: Sequence[str], *, all_topics: bool
) -> dict[str, frozenset[int] | None] | None:
    """Return the partitions that are meant by topic; None: all with committed offsets."""
    if target.kind is ResetKind.FROM_FILE:
        if topics or all_topics:
            raise OptionsError("--from-file names the partitions: leave --topic and --all-topics")
        names = {each.topic for each in target.offsets}
        return {
            name: frozenset(each.partition for each in target.offsets if each.topic == name)
            for name in names
        }
    if bool(topics) == all_topics:
        raise OptionsError("choose one of --topic and --all-topics")
    return parse_topics(topics) if topics else None


def parse_target(
    given: dict[ResetKind, int | str | Path | None], group_id: str, *, now_ms: int
) -> ResetTarget:
    """Return where offsets are to be set to.

    Args:
        now_ms: Milliseconds since 1970.

    Raises:
        OptionsError: Not exactly one was given, or a time or a file cannot be read.
    """
    chosen = {kind: value for kind, value in given.items() if value is not None}
    if len(chosen) != 1:
        options = ", ".join(each.value for each in chosen or ResetKind)
        raise OptionsError(f"choose one of {options}")
    ((kind, value),) = chosen.items()
    if kind is ResetKind.TO_DATETIME:
        return ResetTarget(kind, parse_datetime(str(value)))
    if kind is ResetKind.BY_DURATION:
        return ResetTarget(kind, max(0, now_ms - parse_duration(str(value))))
    if isinstance(value, Path):
        lines = value.read_text(encoding="utf-8").splitlines()
        return ResetTarget(kind, offsets=parse_offsets(lines, group_id))
    if isinstance(value, str):
        return ResetTarget(kind, group_id=value)
    return ResetTarget(kind, value)


NOT_EXECUTED = "No action is performed: --execute is missing."


def render_reset(view: ResetView) -> RenderableType:
    """Return one row for each partition, in the columns of Kafka's own tool, and what was done."""
    table = plain_table()
    table.add_column("GROUP", overflow="fold")
    table.add_column("TOPIC", overflow="fold")
    for header in ("PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"):
        table.add_column(header, justify="right", no_wrap=True)
    with_remarks = any(each.remark or each.error for each in view.rows)
    if with_remarks:
        table.add_column("REMARK", overflow="fold")
    for each in view.rows:
        said = "; ".join(filter(None, (each.error and f"Error: {each.error}", each.remark)))
        table.add_row(
            Text(printable(view.group_id)),
            Text(printable(each.topic)),
            Text(plain(each.partition)),
            Text(plain(each.committed_offset)),
            Text(plain(each.new_offset)),
            *([Text(printable(said))] if with_remarks else []),
        )
    if view.refusal:
        return Group(table, Text(f"Error: {printable(view.refusal)}", "red"))
    told = [Text(view.next_start)]
    if not view.is_executed:
        told.append(Text(NOT_EXECUTED))
    return Group(table, *told)
