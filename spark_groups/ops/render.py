"""A group as text for people: pure functions from a view to what rich can show.

The same text is written with and without colour; nothing is told by colour alone. "—" is what is
not known. Ids and names come from strangers, so what cannot be printed is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.ops.local_members import LocalMember
from spark_groups.ops.views import GroupView, LagOrigin, MemberView, PartitionView
from spark_groups.types import TopicPartition

UNKNOWN: Final = "—"
NO_MEMBER: Final = "no member"
NOTHING_COMMITTED: Final = "none"
WIDE_COLUMNS: Final = 150
NARROW_COLUMNS: Final = 100
RANGES_SHOWN: Final = 8
REMARKS_SHOWN: Final = 10
_SHORT_ID_LENGTH: Final = 8
_FACT_GAP: Final = "   "
_LEFT_AND_MAY_RETURN: Final = -2

STATE_STYLES: Final[Mapping[str, str]] = {
    "Stable": "green",
    "Reconciling": "yellow",
    "Assigning": "yellow",
    "Empty": "dim",
    "Dead": "red",
}
_MOVING_STYLE, _ALARM_STYLE, _QUIET_STYLE = "yellow", "red", "dim"


def render_group(
    view: GroupView, *, width: int, max_partition_rows: int | None = None
) -> RenderableType:
    """Return a group as text and tables.

    Args:
        view: The group.
        width: Columns there are; the narrower, the fewer columns and the shorter the member ids.
        max_partition_rows: With more partitions than that, those of one topic and one owner share
            a row; None: a row for each.
    """
    names = _MemberNames(view.members, width)
    parts: list[RenderableType] = [_header(view, width)]
    if view.members:
        parts += [Text(), _members_table(view.members, names, width)]
    parts += _local_lines(view.members, names)
    parts.append(Text())
    if not view.partitions:
        parts.append(Text("no partitions: nothing is assigned, and nothing is committed"))
    elif max_partition_rows is None or len(view.partitions) <= max_partition_rows:
        parts.append(_partitions_table(view, names, width))
    else:
        parts.append(_shared_rows_table(view, names))
    parts += _footnotes(view.partitions)
    return Group(*parts)


def number(value: int | None) -> str:
    """Write a number with thousands separators; what is not known as "—"."""
    return UNKNOWN if value is None else f"{value:,}"


def partition_ranges(partitions: Iterable[TopicPartition], shown: int = RANGES_SHOWN) -> str:
    """Write partitions as ranges: `flights 0-5, 8; orders 0`.

    Args:
        partitions: The partitions.
        shown: How many ranges are written before the partitions of the rest are counted.
    """
    ranges: list[tuple[str, int, int]] = []
    for each in sorted(partitions):
        if ranges and ranges[-1][0] == each.topic and ranges[-1][2] == each.partition - 1:
            ranges[-1] = (each.topic, ranges[-1][1], each.partition)
        else:
            ranges.append((each.topic, each.partition, each.partition))
    written: dict[str, list[str]] = {}
    for topic, first, last in ranges[:shown]:
        written.setdefault(topic, []).append(str(first) if first == last else f"{first}-{last}")
    text = "; ".join(f"{printable(topic)} {', '.join(each)}" for topic, each in written.items())
    rest = sum(last - first + 1 for _, first, last in ranges[shown:])
    return f"{text} and {rest:,} more" if rest else text


def printable(text: str) -> str:
    """Return a text with a question mark for all that could move a terminal's cursor."""
    return "".join(each if each.isprintable() else "?" for each in text)


class _MemberNames:
    """What members are called: by full id where there is room, else by what tells them apart."""

    def __init__(self, members: tuple[MemberView, ...], width: int) -> None:
        client_ids = Counter(each.client_id for each in members)
        short_ids = Counter(_short_id(each) for each in members)
        self._names: dict[str, str] = {}
        self._brief: dict[str, str] = {}
        for each in members:
            is_short = width < WIDE_COLUMNS and short_ids[_short_id(each)] == 1
            member_id = _short_id(each) if is_short else each.member_id
            name = printable(f"{each.client_id} {member_id}".strip())
            tells_apart = bool(each.client_id) and client_ids[each.client_id] == 1
            self._names[each.member_id] = name
            self._brief[each.member_id] = (
                printable(each.client_id) if width < NARROW_COLUMNS and tells_apart else name
            )

    def __getitem__(self, member_id: str) -> str:
        return self._names[member_id]

    def brief(self, member_id: str) -> str:
        """Return a name for tables of partitions, which have little room."""
        return self._brief.get(member_id, printable(member_id))


def _short_id(member: MemberView) -> str:
    return member.member_id[:_SHORT_ID_LENGTH]


def _header(view: GroupView, width: int) -> RenderableType:
    totals = view.totals
    title = Text.assemble(
        ("group ", _QUIET_STYLE),
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
            ("group epoch", str(view.group_epoch)),
            ("assignment epoch", str(view.assignment_epoch)),
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


def _facts(width: int, *facts: tuple[str, str]) -> Text:
    """Write names and values on as many lines as they need; a line breaks only between them."""
    lines: list[Text] = []
    for name, value in facts:
        fact = Text.assemble((name, _QUIET_STYLE), f" {value}")
        if lines and lines[-1].cell_len + len(_FACT_GAP) + fact.cell_len <= width:
            lines[-1].append(_FACT_GAP).append_text(fact)
        else:
            lines.append(fact)
    return Text("\n").join(lines)


def _table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def _members_table(members: tuple[MemberView, ...], names: _MemberNames, width: int) -> Table:
    shown = _chosen(_MEMBER_COLUMNS, members, width)
    table = _table()
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
        return Text("-2 (left, may return)", _MOVING_STYLE)
    return Text(str(member.member_epoch))


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
        lambda each: Text(partition_ranges(each.pending), _MOVING_STYLE),
        only_if_any=True,
    ),
    _Column(
        "- TO REVOKE",
        lambda each: Text(partition_ranges(each.revoking), _MOVING_STYLE),
        only_if_any=True,
    ),
)


def _partitions_table(view: GroupView, names: _MemberNames, width: int) -> Table:
    moving = view.totals.moving_partitions > 0
    with_start = width >= NARROW_COLUMNS
    table = _table()
    table.add_column("TOPIC", overflow="fold")
    table.add_column("PARTITION", justify="right")
    table.add_column("OWNER", overflow="fold")
    if moving:
        table.add_column("MOVES TO", overflow="fold")
    for header in (*(("LOG START",) if with_start else ()), "COMMITTED", "LOG END", "LAG"):
        table.add_column(header, justify="right", no_wrap=True)
    for each in view.partitions:
        table.add_row(
            Text(printable(each.topic)),
            Text(str(each.partition)),
            _owner(each.owner, names),
            *([_moves_to(each.moves_to, names)] if moving else []),
            *([Text(number(each.log_start_offset))] if with_start else []),
            _committed(each),
            Text(number(each.log_end_offset)),
            Text(number(each.lag) + _mark(each)),
        )
    return table


def _shared_rows_table(view: GroupView, names: _MemberNames) -> Table:
    """Return one row for the partitions of a topic that share owner and next owner."""
    rows: dict[tuple[str, str | None, str | None], list[PartitionView]] = {}
    for each in view.partitions:
        rows.setdefault((each.topic, each.owner, each.moves_to), []).append(each)
    moving = view.totals.moving_partitions > 0
    table = _table()
    table.add_column("PARTITIONS", overflow="fold")
    table.add_column("COUNT", justify="right")
    table.add_column("OWNER", overflow="fold")
    if moving:
        table.add_column("MOVES TO", overflow="fold")
    table.add_column("LAG", justify="right", no_wrap=True)
    table.add_column("UNKNOWN LAG", justify="right")
    table.add_column("LARGEST LAG", justify="right")
    for (_, owner, moves_to), partitions in rows.items():
        known = [each for each in partitions if each.lag is not None]
        largest = max(known, key=lambda each: each.lag or 0, default=None)
        lag = sum(each.lag or 0 for each in known) if known else None
        table.add_row(
            Text(
                partition_ranges(TopicPartition(each.topic, each.partition) for each in partitions)
            ),
            Text(number(len(partitions))),
            _owner(owner, names),
            *([_moves_to(moves_to, names)] if moving else []),
            Text(number(lag)),
            Text(number(len(partitions) - len(known))),
            Text(f"{number(largest.lag)} in {largest.partition}" if largest else UNKNOWN),
        )
    return table


def _owner(member_id: str | None, names: _MemberNames) -> Text:
    return Text(NO_MEMBER, _ALARM_STYLE) if member_id is None else Text(names.brief(member_id))


def _moves_to(member_id: str | None, names: _MemberNames) -> Text:
    return Text("" if member_id is None else names.brief(member_id), _MOVING_STYLE)


def _committed(partition: PartitionView) -> Text:
    if _counts_from_log_start(partition):
        return Text(NOTHING_COMMITTED)
    return Text(number(partition.committed_offset))


def _mark(partition: PartitionView) -> str:
    """Return the sign of the footnote that says where the lag is counted from."""
    return "*" if _counts_from_log_start(partition) and partition.lag is not None else ""


def _counts_from_log_start(partition: PartitionView) -> bool:
    return partition.lag_origin is LagOrigin.LOG_START_OFFSET


def _footnotes(partitions: tuple[PartitionView, ...]) -> list[RenderableType]:
    notes: list[RenderableType] = []
    uncommitted = sum(_counts_from_log_start(each) for each in partitions)
    if uncommitted:
        counted = f"{uncommitted:,} of {len(partitions):,} partitions"
        notes.append(Text(f"* nothing is committed ({counted}): lag counts from the log start"))
    remarks = [each for each in partitions if each.remark]
    notes += [
        Text(f"{printable(each.topic)}-{each.partition}: {each.remark}", _ALARM_STYLE)
        for each in remarks[:REMARKS_SHOWN]
    ]
    if len(remarks) > REMARKS_SHOWN:
        notes.append(Text(f"and remarks on {len(remarks) - REMARKS_SHOWN:,} more partitions"))
    return [Text(), *notes] if notes else []


def _local_lines(members: tuple[MemberView, ...], names: _MemberNames) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text(f"{names[each.member_id]}, on this machine: {_local_sentence(each.local)}")
        for each in members
        if each.local is not None
    ]
    return [Text(), *lines] if lines else []


def _local_sentence(local: LocalMember) -> str:
    said = [local.state]
    if local.in_flight_partitions:
        said.append(
            f"a batch is under way (partitions: {local.in_flight_partitions:,},"
            f" offsets: {local.in_flight_offsets:,})"
        )
    if local.revoking:
        said.append(f"is to give up {partition_ranges(local.revoking)}{_ago(local)}")
    if local.last_heartbeat_age_s is not None:
        said.append(f"last heartbeat {local.last_heartbeat_age_s:.1f} s ago")
    if local.commits_refused:
        said.append(f"{local.commits_refused:,} commits refused")
    if local.failure:
        said.append(f"failed: {printable(local.failure)}")
    return ", ".join(said)


def _ago(local: LocalMember) -> str:
    age_s = local.revocation_age_s
    return "" if age_s is None else f" (told {age_s:.1f} s ago)"
