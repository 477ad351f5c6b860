"""A group as text for people: pure functions from a view to what rich can show.

The same text is written with and without colour; nothing is told by colour alone. "—" is what is
not known. Ids and names come from strangers, so what cannot be printed is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.local_members import LocalMember
from spark_groups.observation.printable_text import partition_ranges
from spark_groups.observation.views import GroupView, MemberView
from spark_groups.ops.render_partitions import footnotes, partitions_table, shared_rows_table
from spark_groups.ops.render_text import (
    MOVING_STYLE,
    NARROW_COLUMNS,
    QUIET_STYLE,
    UNKNOWN,
    WIDE_COLUMNS,
    MemberNames,
    number,
    plain,
    plain_table,
)
from spark_groups.types import TopicPartition

_FACT_GAP: Final = "   "
_LEFT_AND_MAY_RETURN: Final = -2

STATE_STYLES: Final[Mapping[str, str]] = {
    "Stable": "green",
    "Reconciling": "yellow",
    "Assigning": "yellow",
    "Empty": "dim",
    "Dead": "red",
}


IDLE_SHOWN_FROM = 0.5
"""The part of its limit from which on a query's silence is shown."""


def render_group(
    view: GroupView, *, width: int, max_partition_rows: int | None = None, verbose: bool = False
) -> RenderableType:
    """Return a group as text and tables.

    Args:
        view: The group.
        width: Columns there are; the narrower, the fewer columns and the shorter the member ids.
        max_partition_rows: With more partitions than that, those of one topic and one owner share
            a row; None: a row for each.
        verbose: With what whoever looks may do with the group.
    """
    names = MemberNames(view.members, width)
    has_rows = max_partition_rows is None or len(view.partitions) <= max_partition_rows
    parts: list[RenderableType] = [group_header(view, width)]
    if verbose:
        parts.append(_facts(width, ("authorized operations", _operations(view))))
    if view.members:
        parts += [Text(), members_table(view.members, names, width)]
    parts += _local_lines(view, names)
    parts.append(Text())
    if not view.partitions:
        parts.append(Text("no partitions: nothing is assigned, and nothing is committed"))
    elif has_rows:
        parts.append(partitions_table(view, names, width))
    else:
        parts.append(shared_rows_table(view, names))
    parts += footnotes(view.partitions, width, shared_rows=not has_rows)
    return Group(*parts)


def group_header(view: GroupView, width: int) -> RenderableType:
    """Return what a group is and does as a whole, in three lines where there is room.

    Args:
        view: The group.
        width: Columns there are.
    """
    totals = view.totals
    title = Text.assemble(
        ("group ", QUIET_STYLE),
        (printable(view.group_id), "bold"),
        "  ",
        (printable(view.group_state) or UNKNOWN, STATE_STYLES.get(view.group_state, "bold")),
        f"  {view.state_meaning}",
    )
    lines = [
        title,
        _facts(
            width,
            ("coordinator", view.coordinator or UNKNOWN),
            ("assignor", printable(view.assignor_name) or UNKNOWN),
            ("group epoch", plain(view.group_epoch)),
            ("assignment epoch", plain(view.assignment_epoch)),
        ),
    ]
    unknown = totals.unknown_lag_partitions
    lag = number(totals.lag) + (
        f" ({unknown:,} of {totals.partitions:,} partitions unknown)" if unknown else ""
    )
    moving = [("moving", number(totals.moving_partitions))] if totals.moving_partitions else []
    lines.append(
        _facts(
            width,
            ("members", number(totals.members)),
            ("partitions", number(totals.partitions)),
            ("assigned", number(totals.assigned_partitions)),
            ("unassigned", number(totals.unassigned_partitions)),
            *moving,
            ("total lag", lag),
        )
    )
    return Group(*lines)


def _operations(view: GroupView) -> str:
    operations = view.authorized_operations
    return UNKNOWN if operations is None else ", ".join(operations) or "none"


def _facts(width: int, *facts: tuple[str, str]) -> Text:
    """Write names and values on as many lines as they need; a line breaks only between them."""
    lines: list[Text] = []
    for name, value in facts:
        fact = Text.assemble((name, QUIET_STYLE), f" {value}")
        if lines and lines[-1].cell_len + len(_FACT_GAP) + fact.cell_len <= width:
            lines[-1].append(_FACT_GAP).append_text(fact)
        else:
            lines.append(fact)
    return Text("\n").join(lines)


def members_table(members: tuple[MemberView, ...], names: MemberNames, width: int) -> Table:
    """Return one row for each member.

    Args:
        members: The members.
        names: What they are called.
        width: Columns there are; the fewer, the less is said.
    """
    shown = _chosen(_MEMBER_COLUMNS, members, width)
    table = plain_table()
    table.add_column("MEMBER", overflow="fold")
    for column in shown:
        table.add_column(column.header, justify=column.justify, overflow="fold")
    for member in members:
        table.add_row(Text(names[member.member_id]), *(column.cell(member) for column in shown))
    return table


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table, and when it is shown.

    Args:
        header: What stands above it.
        cell: Its text in one row.
        justify: Left or right.
        from_width: Columns the terminal must have.
        only_if_any: Leave it out if it is empty in every row.
    """

    header: str
    cell: Callable[[MemberView], Text]
    justify: Literal["left", "right"] = "left"
    from_width: int = 0
    only_if_any: bool = False


def _chosen(
    columns: tuple[_Column, ...], members: tuple[MemberView, ...], width: int
) -> tuple[_Column, ...]:
    return tuple(
        column
        for column in columns
        if width >= column.from_width
        and (not column.only_if_any or any(column.cell(each).plain for each in members))
    )


def _member_epoch(member: MemberView) -> Text:
    if member.member_epoch == _LEFT_AND_MAY_RETURN:
        return Text("-2 (left, may return)", MOVING_STYLE)
    return Text(plain(member.member_epoch))


_MEMBER_COLUMNS: Final = (
    _Column("INSTANCE", lambda each: Text(printable(each.instance_id or "")), only_if_any=True),
    _Column("HOST", lambda each: Text(printable(each.client_host)), from_width=NARROW_COLUMNS),
    _Column("TYPE", lambda each: Text(each.member_type), from_width=NARROW_COLUMNS),
    _Column("EPOCH", _member_epoch, justify="right"),
    _Column("COUNT", lambda each: Text(number(len(each.current))), justify="right"),
    _Column("CURRENT", lambda each: Text(partition_ranges(each.current))),
    _Column("TARGET", lambda each: Text(partition_ranges(each.target)), from_width=WIDE_COLUMNS),
    _Column(
        "+ PENDING",
        lambda each: Text(partition_ranges(each.pending), MOVING_STYLE),
        only_if_any=True,
    ),
    _Column(
        "- TO REVOKE",
        lambda each: Text(partition_ranges(each.revoking), MOVING_STYLE),
        only_if_any=True,
    ),
)


def _local_lines(view: GroupView, names: MemberNames) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text(f"{names[each.member_id]}, on this machine: {_local_sentence(each.local)}")
        for each in view.members
        if each.local is not None
    ]
    lines += [
        Text(f"{printable(member_id)}, on this machine, no member: {_local_sentence(each)}")
        for member_id, each in view.outside.items()
    ]
    return [Text(), *lines] if lines else []


def _local_sentence(local: LocalMember) -> str:
    said = [local.state]
    if local.left_because_idle:
        said.append("left the group until Spark calls")
    if local.instance_wait_left_s is not None:
        said.append(f"waits for its instance id (up to {local.instance_wait_left_s:.0f} s more)")
    if local.in_flight_partitions:
        age = "" if local.batch_age_s is None else f" for {local.batch_age_s:.1f} s"
        said.append(
            f"a batch is under way{age} (partitions: {local.in_flight_partitions:,},"
            f" offsets: {local.in_flight_offsets:,})"
        )
    said += _idle(local)
    if local.revoking:
        said.append(f"is to give up {partition_ranges(local.revoking)}{_ago(local)}")
    if local.withheld:
        waiting = (TopicPartition(each.topic, each.partition) for each in local.withheld)
        said.append(f"waits for {partition_ranges(waiting)}")
    if local.last_heartbeat_age_s is not None:
        timeout_ms = local.session_timeout_ms
        session = "" if timeout_ms is None else f" (session: {timeout_ms / 1000:g} s)"
        said.append(f"last heartbeat {local.last_heartbeat_age_s:.1f} s ago{session}")
    if local.commits_refused:
        said.append(f"{local.commits_refused:,} commits refused")
    if local.failure:
        said.append(f"failed: {printable(local.failure)}")
    return ", ".join(said)


def _idle(local: LocalMember) -> list[str]:
    """A query that is silent between two triggers is not worth a word."""
    idle_s, limit_s = local.idle_s, local.idle_limit_s
    if idle_s is None or limit_s is None or local.left_because_idle:
        return []
    if idle_s < limit_s * IDLE_SHOWN_FROM:
        return []
    return [f"Spark has not called for {idle_s:.0f} s (it leaves after {limit_s:g} s)"]


def _ago(local: LocalMember) -> str:
    age_s = local.revocation_age_s
    return "" if age_s is None else f" (told {age_s:.1f} s ago)"
