"""`spark-groups describe`: members, partitions, offsets and lag of groups.

--members, --offsets and --state use the columns of `kafka-consumer-groups.sh --describe`
(org.apache.kafka.tools.consumer.group.ConsumerGroupCommand).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.cli.connecting import (
    Brokers,
    EveryPartitionFlag,
    JsonFlag,
    connects,
    end_if_refused,
    read_each,
    usage_errors,
)
from spark_groups.cli.groups_cli import DESCRIBED_TYPES, parse_names
from spark_groups.cli.output import (
    QUIET_STYLE,
    UNKNOWN,
    Column,
    Row,
    console,
    partition_rows_max,
    plain,
    table_of,
    write_json,
)
from spark_groups.cli.render import render_group
from spark_groups.errors import GroupNotFoundError, SparkGroupsError, printable
from spark_groups.group.ledger.sparks_kafka_offsets import as_starting_offsets
from spark_groups.group.member.messages import MetadataRequest
from spark_groups.observation.plain_values import by_topic, partition_ranges
from spark_groups.observation.views import GroupView, LagOrigin, PartitionView
from spark_groups.types import TopicPartition

_COLUMNS: Final = "in the columns of kafka-consumer-groups.sh"


class Part(Enum):
    """The part of a group to show, by option."""

    EVERYTHING = ""
    MEMBERS = "--members"
    OFFSETS = "--offsets"
    STATE = "--state"
    STARTING_OFFSETS = "--starting-offsets"


StartingOffsetsFlag = Annotated[
    bool,
    typer.Option(
        "--starting-offsets",
        help="Print only the committed offsets of a group without members, as JSON for"
        " `startingOffsets` of Spark's own Kafka source.",
    ),
]
VerboseFlag = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Add authorized operations; to one of these parts: epochs and assignments.",
    ),
]


@connects
def describe(  # noqa: PLR0917
    brokers: Brokers,
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP...", help="One or more group ids; not with --type."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Describe all groups of this type: classic (or generic), consumer; repeatable.",
        ),
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help=f"Show only members, {_COLUMNS}.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help=f"Show only partitions, {_COLUMNS}.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help=f"Show only the state, {_COLUMNS}.")
    ] = False,
    starting_offsets: StartingOffsetsFlag = False,
    verbose: VerboseFlag = False,
    as_json: JsonFlag = False,
    every_partition: EveryPartitionFlag = False,
) -> None:
    """Show groups: members with current and target assignments, partitions, offsets and lag.

    Classic groups are supported; they have no epochs. --json prints a list of complete groups,
    whichever part is chosen.

    Example: spark-groups describe flight-readers --bootstrap-server localhost:9092

    Exit code 1 if a group cannot be read: stderr says why, and the others are shown.
    """
    part = _chosen(members=members, offsets=offsets, state=state, starting_offsets=starting_offsets)
    with usage_errors():
        wanted_types = parse_names(types or (), DESCRIBED_TYPES, "types")
    if bool(groups) == bool(wanted_types):
        raise typer.BadParameter("give either group ids or --type")
    if part is Part.STARTING_OFFSETS and len(groups or ()) != 1:
        raise typer.BadParameter(f"give one group id with {part.value}")
    with brokers.observer() as observer:
        wanted = groups or _groups_of_types(brokers, wanted_types)
        seen, refused = read_each(wanted, observer.view)
    views = list(seen.values())
    if not groups:
        # A listed group may have been deleted meanwhile.
        refused = [each for each in refused if not isinstance(each, GroupNotFoundError)]
    if part is Part.STARTING_OFFSETS:
        end_if_refused(refused)
        (view,) = views
        typer.echo(json.dumps(_starting_offsets_of(brokers, view), separators=(",", ":")))
        return
    if as_json:
        if views or not refused:
            write_json([each.to_json() for each in views])
        end_if_refused(refused)
        return
    _print(views, part, verbose=verbose, every_partition=every_partition)
    end_if_refused(refused)


def _print(views: Sequence[GroupView], part: Part, *, verbose: bool, every_partition: bool) -> None:
    screen = console()
    rows_max = partition_rows_max(every_partition=every_partition)
    everything = partial(render_group, width=screen.width, max_partition_rows=rows_max)
    render = _RENDERERS.get(part, everything)
    for number, view in enumerate(views):
        if number:
            screen.print()
        screen.print(render(view, verbose=verbose))


def _groups_of_types(brokers: Brokers, types: tuple[str, ...]) -> list[str]:
    with brokers.cluster() as cluster:
        return sorted(each.group_id for each in cluster.list_groups(types=types))


def _starting_offsets_of(brokers: Brokers, view: GroupView) -> dict[str, dict[str, int]]:
    names = frozenset(partition.topic for partition in view.partitions)
    with brokers.cluster() as cluster:
        topics = cluster.metadata(MetadataRequest(topic_names=names)).topics if names else ()
    return starting_offsets_of(view, {topic.name: topic.partition_count for topic in topics})


def starting_offsets_of(
    view: GroupView, partition_counts: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return where a group stands, as `startingOffsets` of Spark's own Kafka source.

    A partition without a committed offset starts at its beginning (-2), because no member has read
    it.

    Args:
        view: The group.
        partition_counts: The partitions of each of its topics; a deleted topic is left out.

    Raises:
        SparkGroupsError: The group has members, no committed offsets, or unknown ones.
    """
    name = printable(view.group_id)
    if view.members:
        stop = ", ".join(
            sorted(f"{member.client_id} {member.member_id}" for member in view.members)
        )
        raise SparkGroupsError(
            f"group {name!r} has members, which commit further offsets: stop them first: {stop}"
        )
    known = [partition for partition in view.partitions if partition.topic in partition_counts]
    unknown = [each for each in known if each.lag_origin is None]
    if unknown:
        listed = partition_ranges(TopicPartition(each.topic, each.partition) for each in unknown)
        raise SparkGroupsError(f"offsets of {listed} are unknown now: repeat the command")
    committed = {
        TopicPartition(each.topic, each.partition): each.committed_offset
        for each in known
        if each.committed_offset is not None
    }
    if not committed:
        raise SparkGroupsError(f"group {name!r} has no committed offsets")
    read = {each.topic for each in committed}
    others = (
        TopicPartition(each, index) for each in read for index in range(partition_counts[each])
    )
    return as_starting_offsets(committed, others)


def _chosen(*, members: bool, offsets: bool, state: bool, starting_offsets: bool) -> Part:
    wanted = {
        Part.MEMBERS: members,
        Part.OFFSETS: offsets,
        Part.STATE: state,
        Part.STARTING_OFFSETS: starting_offsets,
    }
    chosen = [part for part, is_wanted in wanted.items() if is_wanted]
    if len(chosen) > 1:
        raise typer.BadParameter(f"choose one of {', '.join(each.value for each in chosen)}")
    return chosen[0] if chosen else Part.EVERYTHING


def render_members(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for each member; with epochs and assignments if `verbose`."""
    return _table(
        view,
        view.members,
        Column("CONSUMER-ID", lambda each: each.member_id),
        Column("GROUP-INSTANCE-ID", lambda each: each.instance_id or UNKNOWN),
        Column("HOST", lambda each: each.client_host or UNKNOWN),
        Column("CLIENT-ID", lambda each: each.client_id or UNKNOWN),
        Column("RACK", lambda each: each.rack_id or UNKNOWN, is_shown=verbose),
        Column("#PARTITIONS", lambda each: str(len(each.current)), is_number=True),
        Column("CURRENT-EPOCH", lambda each: plain(each.member_epoch), True, verbose),
        Column("CURRENT-ASSIGNMENT", lambda each: _assignment(each.current), is_shown=verbose),
        Column("TARGET-EPOCH", lambda _: plain(view.assignment_epoch), True, verbose),
        Column("TARGET-ASSIGNMENT", lambda each: _assignment(each.target), is_shown=verbose),
    )


def render_offsets(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for each partition; with committed leader epochs if `verbose`."""
    members = {member.member_id: member for member in view.members}

    def owned(name: str) -> Callable[[PartitionView], str]:
        return lambda each: getattr(members.get(each.owner or ""), name, "") or UNKNOWN

    return _table(
        view,
        view.partitions,
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: str(each.partition), is_number=True),
        Column("LEADER-EPOCH", lambda each: plain(each.committed_leader_epoch), True, verbose),
        Column("CURRENT-OFFSET", lambda each: plain(each.committed_offset), is_number=True),
        Column("LOG-END-OFFSET", lambda each: plain(each.log_end_offset), is_number=True),
        Column("LAG", lambda each: plain(_committed_lag(each)), is_number=True),
        Column("CONSUMER-ID", lambda each: each.owner or UNKNOWN),
        Column("HOST", owned("client_host")),
        Column("CLIENT-ID", owned("client_id")),
    )


def render_state(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for the group; with its epochs if `verbose`."""
    return _table(
        view,
        (view,),
        Column("COORDINATOR (ID)", lambda each: each.coordinator or UNKNOWN),
        Column("ASSIGNMENT-STRATEGY", lambda each: each.assignor_name or UNKNOWN),
        Column("STATE", lambda each: each.group_state or UNKNOWN),
        Column("GROUP-EPOCH", lambda each: plain(each.group_epoch), True, verbose),
        Column("TARGET-ASSIGNMENT-EPOCH", lambda each: plain(each.assignment_epoch), True, verbose),
        Column("#MEMBERS", lambda each: str(each.totals.members), is_number=True),
    )


def _table(view: GroupView, rows: tuple[Row, ...], *columns: Column[Row]) -> RenderableType:
    table = table_of(rows, Column("GROUP", lambda _: view.group_id), *columns)
    if view.members:
        return table
    none = Text(f"Consumer group {printable(view.group_id)!r} has no active members.", QUIET_STYLE)
    return Group(none, table) if table.rows else none


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions as Kafka's tool does: `flights:0,1,orders:2`."""
    return ",".join(
        f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic(partitions).items()
    )


def _committed_lag(partition: PartitionView) -> int | None:
    """Return the lag behind the committed offset; Kafka's tool shows none without one."""
    return partition.lag if partition.lag_origin is LagOrigin.COMMITTED_OFFSET else None


_RENDERERS: Final[Mapping[Part, Callable[..., RenderableType]]] = {
    Part.MEMBERS: render_members,
    Part.OFFSETS: render_offsets,
    Part.STATE: render_state,
}
"""`render_group` shows everything."""
