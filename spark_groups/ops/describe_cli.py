"""`spark-groups describe`: groups as their coordinators have them.

Parts of a group are shown in the words of `kafka-consumer-groups.sh --describe`
(org.apache.kafka.tools.consumer.group.ConsumerGroupCommand); what is not known is "—".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Generic, Literal, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import GroupNotFoundError, OptionsError, printable
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.plain_values import by_topic
from spark_groups.observation.views import GroupView, LagOrigin, MemberView, PartitionView
from spark_groups.ops.connecting import (
    Brokers,
    EveryPartitionFlag,
    JsonFlag,
    connects,
)
from spark_groups.ops.group_list import DESCRIBED_TYPES, parse_names
from spark_groups.ops.output import (
    QUIET_STYLE,
    UNKNOWN,
    ConsoleOutput,
    Room,
    plain,
    plain_table,
    write_json,
)
from spark_groups.ops.render import render_group
from spark_groups.types import TopicPartition


class Part(Enum):
    """What of a group is shown, by the option that asks for it."""

    EVERYTHING = ""
    MEMBERS = "--members"
    OFFSETS = "--offsets"
    STATE = "--state"


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


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class _Column(Generic[Row]):
    """A column behind that of the group.

    Args:
        header: Kafka's word for it.
        cell: Its text, of the group and what the row is about.
        justify: Left or right.
        is_verbose: Whether only `--verbose` shows it.
    """

    header: str
    cell: Callable[[GroupView, Row], str]
    justify: Literal["left", "right"] = "left"
    is_verbose: bool = False


def render_members(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for each member."""
    return _table(view, _MEMBER_COLUMNS, view.members, verbose=verbose)


def render_offsets(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for each partition."""
    owners = {each.member_id: each for each in view.members}
    rows = ((each, owners.get(each.owner or "")) for each in view.partitions)
    return _table(view, _OFFSET_COLUMNS, rows, verbose=verbose)


def render_state(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for the group."""
    return _table(view, _STATE_COLUMNS, (view,), verbose=verbose)


def _table(
    view: GroupView, columns: Iterable[_Column[Row]], rows: Iterable[Row], *, verbose: bool
) -> RenderableType:
    shown = [each for each in columns if verbose or not each.is_verbose]
    table = plain_table()
    table.add_column("GROUP", overflow="fold")
    for column in shown:
        table.add_column(column.header, justify=column.justify, overflow="fold")
    for row in rows:
        cells = (Text(column.cell(view, row)) for column in shown)
        table.add_row(Text(printable(view.group_id)), *cells)
    if view.members:
        return table
    said = f"Consumer group {printable(view.group_id)!r} has no active members."
    return Group(Text(said, QUIET_STYLE), table) if table.rows else Text(said, QUIET_STYLE)


def _text(value: str | None) -> str:
    return printable(value or "") or UNKNOWN


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions as Kafka's tool does: `flights:0,1,orders:2`."""
    return ",".join(
        f"{printable(topic)}:{','.join(map(str, indexes))}"
        for topic, indexes in by_topic(partitions).items()
    )


def _committed_lag(partition: PartitionView) -> int | None:
    """Return the lag of what is committed; where nothing is, Kafka's tool counts none."""
    return partition.lag if partition.lag_origin is LagOrigin.COMMITTED_OFFSET else None


_MEMBER_COLUMNS: Final[tuple[_Column[MemberView], ...]] = (
    _Column("CONSUMER-ID", lambda _, each: _text(each.member_id)),
    _Column("GROUP-INSTANCE-ID", lambda _, each: _text(each.instance_id)),
    _Column("HOST", lambda _, each: _text(each.client_host)),
    _Column("CLIENT-ID", lambda _, each: _text(each.client_id)),
    _Column("RACK", lambda _, each: _text(each.rack_id), is_verbose=True),
    _Column("#PARTITIONS", lambda _, each: str(len(each.current)), "right"),
    _Column("CURRENT-EPOCH", lambda _, e: plain(e.member_epoch), "right", is_verbose=True),
    _Column("CURRENT-ASSIGNMENT", lambda _, each: _assignment(each.current), is_verbose=True),
    _Column("TARGET-EPOCH", lambda v, _: plain(v.assignment_epoch), "right", is_verbose=True),
    _Column("TARGET-ASSIGNMENT", lambda _, each: _assignment(each.target), is_verbose=True),
)
_OFFSET_COLUMNS: Final[tuple[_Column[tuple[PartitionView, MemberView | None]], ...]] = (
    _Column("TOPIC", lambda _, row: printable(row[0].topic)),
    _Column("PARTITION", lambda _, row: str(row[0].partition), "right"),
    _Column(
        "LEADER-EPOCH",
        lambda _, row: plain(row[0].committed_leader_epoch),
        "right",
        is_verbose=True,
    ),
    _Column("CURRENT-OFFSET", lambda _, row: plain(row[0].committed_offset), "right"),
    _Column("LOG-END-OFFSET", lambda _, row: plain(row[0].log_end_offset), "right"),
    _Column("LAG", lambda _, row: plain(_committed_lag(row[0])), "right"),
    _Column("CONSUMER-ID", lambda _, row: _text(row[0].owner)),
    _Column("HOST", lambda _, row: _text(row[1].client_host if row[1] else None)),
    _Column("CLIENT-ID", lambda _, row: _text(row[1].client_id if row[1] else None)),
)
_STATE_COLUMNS: Final[tuple[_Column[GroupView], ...]] = (
    _Column("COORDINATOR (ID)", lambda _, each: _text(each.coordinator)),
    _Column("ASSIGNMENT-STRATEGY", lambda _, each: _text(each.assignor_name)),
    _Column("STATE", lambda _, each: _text(each.group_state)),
    _Column("GROUP-EPOCH", lambda _, each: plain(each.group_epoch), "right", is_verbose=True),
    _Column(
        "TARGET-ASSIGNMENT-EPOCH",
        lambda _, each: plain(each.assignment_epoch),
        "right",
        is_verbose=True,
    ),
    _Column("#MEMBERS", lambda _, each: str(each.totals.members), "right"),
)


_RENDERERS: Final[Mapping[Part, Callable[..., RenderableType]]] = {
    Part.MEMBERS: render_members,
    Part.OFFSETS: render_offsets,
    Part.STATE: render_state,
}
"""As Kafka's own tool shows a group; `render_group` shows everything."""
