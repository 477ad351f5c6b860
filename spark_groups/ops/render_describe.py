"""A group in the columns of Kafka's own tool: its members, its offsets, or its state.

The words are those of `kafka-consumer-groups.sh --describe`
(org.apache.kafka.tools.consumer.group.ConsumerGroupCommand); what is not known is "—".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.plain_values import by_topic
from spark_groups.observation.views import GroupView, LagOrigin, MemberView, PartitionView
from spark_groups.ops.render_text import QUIET_STYLE, UNKNOWN, plain, plain_table
from spark_groups.types import TopicPartition

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
    """Return one row for each member.

    Args:
        view: The group.
        verbose: With epochs and assignments.
    """
    return _table(view, _MEMBER_COLUMNS, view.members, verbose=verbose)


def render_offsets(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for each partition.

    Args:
        view: The group.
        verbose: With the leader epochs that were committed.
    """
    owners = {each.member_id: each for each in view.members}
    rows = ((each, owners.get(each.owner or "")) for each in view.partitions)
    return _table(view, _OFFSET_COLUMNS, rows, verbose=verbose)


def render_state(view: GroupView, *, verbose: bool = False) -> RenderableType:
    """Return one row for the group.

    Args:
        view: The group.
        verbose: With its epochs.
    """
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
