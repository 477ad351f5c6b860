"""A group as text and tables for rich.

The text is complete without colour. Ids and names are untrusted: unprintable characters are
replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.cli.output import (
    ALARM_STYLE,
    MOVING_STYLE,
    QUIET_STYLE,
    UNKNOWN,
    Column,
    Row,
    number,
    plain,
    table_of,
)
from spark_groups.errors import printable
from spark_groups.group.ledger.events import WithheldRange
from spark_groups.observation.local_members import LocalMember
from spark_groups.observation.plain_values import duration_text, partition_ranges
from spark_groups.observation.views import GroupView, LagOrigin, MemberView, PartitionView
from spark_groups.types import TopicPartition, sum_of_known

WIDE_COLUMNS: Final = 150
NARROW_COLUMNS: Final = 100
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


IDLE_SHOWN_FROM = 0.5
"""The fraction of its idle limit from which a query is shown as idle."""


def render_group(
    view: GroupView, *, width: int, max_partition_rows: int | None = None, verbose: bool = False
) -> RenderableType:
    """Return a group as text and tables.

    Args:
        max_partition_rows: With more partitions, those of the same topic and owner share a row;
            None: a row for each.
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
        parts.append(Text("no partitions: no assignment and no committed offsets"))
    elif has_rows:
        parts.append(partitions_table(view, names, width))
    else:
        parts.append(shared_rows_table(view, names))
    parts += footnotes(view.partitions, width, shared_rows=not has_rows)
    return Group(*parts)


def group_header(view: GroupView, width: int) -> RenderableType:
    """Return state, totals and epochs of a group, in three lines if the width allows."""
    totals = view.totals
    title = Text.assemble(
        ("group ", QUIET_STYLE),
        (printable(view.group_id), "bold"),
        "  ",
        (printable(view.group_state) or UNKNOWN, STATE_STYLES.get(view.group_state, "bold")),
        f"  {view.state_meaning}",
    )
    unknown = totals.unknown_lag_partitions
    lag = number(totals.lag) + (
        f" ({unknown:,} of {totals.partitions:,} partitions unknown)" if unknown else ""
    )
    moving = [("moving", number(totals.moving_partitions))] if totals.moving_partitions else []
    behind = [("behind", duration_text(seconds))] if (seconds := totals.seconds_behind) else []
    figures = _facts(
        width,
        ("total lag", lag),
        *behind,
        ("members", number(totals.members)),
        ("partitions", number(totals.partitions)),
        ("assigned", number(totals.assigned_partitions)),
        ("unassigned", number(totals.unassigned_partitions)),
        *moving,
    )
    epochs = _facts(
        width,
        ("coordinator", view.coordinator or UNKNOWN),
        ("assignor", printable(view.assignor_name) or UNKNOWN),
        ("group epoch", plain(view.group_epoch)),
        ("assignment epoch", plain(view.assignment_epoch)),
    )
    return Group(title, figures, epochs)


def _operations(view: GroupView) -> str:
    operations = view.authorized_operations
    return UNKNOWN if operations is None else ", ".join(operations) or "none"


def _facts(width: int, *facts: tuple[str, str]) -> Text:
    """Return names and values; lines break only between them."""
    lines: list[Text] = []
    for name, value in facts:
        fact = Text.assemble((name, QUIET_STYLE), f" {value}")
        if lines and lines[-1].cell_len + len(_FACT_GAP) + fact.cell_len <= width:
            lines[-1].append(_FACT_GAP).append_text(fact)
        else:
            lines.append(fact)
    return Text("\n").join(lines)


def members_table(members: tuple[MemberView, ...], names: MemberNames, width: int) -> Table:
    """Return one row for each member."""
    return table_of(
        members,
        Column("MEMBER", lambda each: names[each.member_id]),
        Column("INSTANCE", lambda each: each.instance_id or "", is_optional=True),
        Column("HOST", lambda each: each.client_host, is_shown=width >= NARROW_COLUMNS),
        Column("TYPE", lambda each: each.member_type, is_shown=width >= NARROW_COLUMNS),
        Column("EPOCH", _member_epoch, is_number=True),
        Column("COUNT", lambda each: number(len(each.current)), is_number=True),
        Column("CURRENT", lambda each: partition_ranges(each.current)),
        Column(
            "TARGET", lambda each: partition_ranges(each.target), is_shown=width >= WIDE_COLUMNS
        ),
        Column(
            "+ PENDING",
            lambda each: Text(partition_ranges(each.pending), MOVING_STYLE),
            is_optional=True,
        ),
        Column(
            "- TO REVOKE",
            lambda each: Text(partition_ranges(each.revoking), MOVING_STYLE),
            is_optional=True,
        ),
    )


def _member_epoch(member: MemberView) -> Text:
    if member.member_epoch == _LEFT_AND_MAY_RETURN:
        return Text("-2 (left, may return)", MOVING_STYLE)
    return Text(plain(member.member_epoch))


def _local_lines(view: GroupView, names: MemberNames) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text(f"{names[member.member_id]}, on this machine: {_local_sentence(member.local)}")
        for member in view.members
        if member.local is not None
    ]
    lines += [
        Text(f"{printable(member_id)}, on this machine, not a member: {_local_sentence(each)}")
        for member_id, each in view.outside.items()
    ]
    return [Text(), *lines] if lines else []


def _local_sentence(local: LocalMember) -> str:
    parts = [local.state]
    if local.left_because_idle:
        parts.append("left the group until Spark calls")
    if local.instance_wait_left_s is not None:
        parts.append(
            f"waiting for its instance id (at most {local.instance_wait_left_s:.0f} s more)"
        )
    if local.in_flight_partitions:
        age = "" if local.batch_age_s is None else f" for {local.batch_age_s:.1f} s"
        parts.append(
            f"batch running{age} (partitions: {local.in_flight_partitions:,},"
            f" offsets: {local.in_flight_offsets:,})"
        )
    parts += _idle(local)
    if local.revoking:
        parts.append(f"must revoke {partition_ranges(local.revoking)}{_ago(local)}")
    if local.withheld:
        waiting = (TopicPartition(each.topic, each.partition) for each in local.withheld)
        parts.append(f"waiting for {partition_ranges(waiting)}")
    for reason in sorted({each.reason for each in local.waits_for}):
        stuck = (
            TopicPartition(each.topic, each.partition)
            for each in local.waits_for
            if each.reason == reason
        )
        parts.append(f"cannot read {partition_ranges(stuck)} yet: {printable(reason)}")
    parts += [f"waiting for {printable(each)}" for each in local.awaited_answers]
    if local.last_heartbeat_age_s is not None:
        timeout_ms = local.session_timeout_ms
        session = "" if timeout_ms is None else f" (session: {timeout_ms / 1000:g} s)"
        parts.append(f"last heartbeat {local.last_heartbeat_age_s:.1f} s ago{session}")
    if local.commits_refused:
        parts.append(f"{local.commits_refused:,} commits refused")
    if local.failure:
        parts.append(f"failed: {printable(local.failure)}")
    return ", ".join(parts)


def _idle(local: LocalMember) -> list[str]:
    idle_s, limit_s = local.idle_s, local.idle_limit_s
    if idle_s is None or limit_s is None or local.left_because_idle:
        return []
    if idle_s < limit_s * IDLE_SHOWN_FROM:
        return []
    return [f"no call from Spark for {idle_s:.0f} s (leaves after {limit_s:g} s)"]


def _ago(local: LocalMember) -> str:
    age_s = local.revocation_age_s
    return "" if age_s is None else f" (since {age_s:.1f} s)"


NO_MEMBER: Final = "no member"
NOTHING_COMMITTED: Final = "none"
REMARKS_SHOWN: Final = 10


def partitions_table(view: GroupView, names: MemberNames, width: int) -> Table:
    """Return one row for each partition."""
    with_pending = width >= WIDE_COLUMNS and any(
        partition.withheld for partition in view.partitions
    )
    return table_of(
        view.partitions,
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: str(each.partition), is_number=True),
        *owner_columns(view, names, lambda each: each),
        Column(
            "LOG START", lambda each: number(each.log_start_offset), True, width >= NARROW_COLUMNS
        ),
        Column("COMMITTED", committed_text, is_number=True),
        Column("LOG END", lambda each: number(each.log_end_offset), is_number=True),
        Column("LAG", lag_text, is_number=True),
        Column("PENDING", lambda each: _pending(each.withheld), is_shown=with_pending),
    )


def shared_rows_table(view: GroupView, names: MemberNames) -> Table:
    """Return one row for the partitions of each topic with the same owner and next owner."""
    return table_of(
        shared_rows(view),
        Column("PARTITIONS", row_ranges),
        Column("COUNT", lambda row: number(len(row)), is_number=True),
        *owner_columns(view, names, first_of),
        Column("LAG", lambda row: number(sum_of_known(e.lag for e in row)), is_number=True),
        Column("UNKNOWN LAG", lambda row: number(sum(e.lag is None for e in row)), is_number=True),
        Column("LARGEST LAG", _largest_lag, is_number=True),
    )


def shared_rows(view: GroupView) -> list[list[PartitionView]]:
    """Return the partitions of each topic that have the same owner and the same next owner."""
    rows: dict[tuple[str, str | None, str | None], list[PartitionView]] = {}
    for partition in view.partitions:
        rows.setdefault((partition.topic, partition.owner, partition.moves_to), []).append(
            partition
        )
    return list(rows.values())


def first_of(row: list[PartitionView]) -> PartitionView:
    """Return the first of the partitions that share a row."""
    return row[0]


def row_ranges(row: list[PartitionView]) -> str:
    """Return the partitions of a row as ranges."""
    return partition_ranges(TopicPartition(each.topic, each.partition) for each in row)


def _largest_lag(row: list[PartitionView]) -> str:
    known = [each for each in row if each.lag is not None]
    largest = max(known, key=lambda each: each.lag or 0, default=None)
    return f"{number(largest.lag)} in {largest.partition}" if largest else UNKNOWN


def owner_columns(
    view: GroupView, names: MemberNames, partition: Callable[[Row], PartitionView]
) -> tuple[Column[Row], Column[Row]]:
    """Return the owner, and the next owner if any partition of the group moves.

    Args:
        partition: Returns the partition of a row, or one of those that share it.
    """

    def owner(row: Row) -> Text:
        member_id = partition(row).owner
        return Text(NO_MEMBER, ALARM_STYLE) if member_id is None else Text(names.brief(member_id))

    def next_owner(row: Row) -> Text:
        member_id = partition(row).moves_to
        return Text("" if member_id is None else names.brief(member_id), MOVING_STYLE)

    is_moving = view.totals.moving_partitions > 0
    return Column("OWNER", owner), Column("MOVES TO", next_owner, is_shown=is_moving)


def _pending(withheld: WithheldRange | None) -> Text:
    """Return the half-open range of unread offsets."""
    if withheld is None:
        return Text()
    start, end = number(withheld.committed_offset), number(withheld.log_end_offset)
    return Text(f"withheld [{start}, {end})", MOVING_STYLE)


def committed_text(partition: PartitionView) -> Text:
    """Return the committed offset of a partition."""
    if _counts_from_log_start(partition):
        return Text(NOTHING_COMMITTED)
    return Text(number(partition.committed_offset))


def lag_text(partition: PartitionView) -> Text:
    """Return the lag of a partition, with an asterisk if it counts from the log start."""
    is_marked = _counts_from_log_start(partition) and partition.lag is not None
    return Text(number(partition.lag) + ("*" if is_marked else ""))


def _counts_from_log_start(partition: PartitionView) -> bool:
    return partition.lag_origin is LagOrigin.LOG_START_OFFSET


def footnotes(
    partitions: tuple[PartitionView, ...], width: int, *, shared_rows: bool = False
) -> list[RenderableType]:
    """Return the notes below a table of partitions."""
    notes: list[RenderableType] = []
    uncommitted = sum(_counts_from_log_start(partition) for partition in partitions)
    if uncommitted:
        counted = f"{uncommitted:,} of {len(partitions):,} partitions"
        notes.append(Text(f"* no committed offset ({counted}): lag counts from the log start"))
    if shared_rows or width < WIDE_COLUMNS:
        notes += _limited(
            [
                _note(partition, _pending(partition.withheld).plain, MOVING_STYLE)
                for partition in partitions
                if partition.withheld
            ],
            "and withheld ranges of",
        )
    notes += _limited(
        [
            _note(partition, partition.remark, ALARM_STYLE)
            for partition in partitions
            if partition.remark
        ],
        "and remarks on",
    )
    return [Text(), *notes] if notes else []


def _note(partition: PartitionView, note: str, style: str) -> Text:
    return Text(f"{printable(partition.topic)}-{partition.partition}: {note}", style)


def _limited(notes: list[Text], more: str) -> list[Text]:
    rest = len(notes) - REMARKS_SHOWN
    return [*notes[:REMARKS_SHOWN], Text(f"{more} {rest:,} more partitions")] if rest > 0 else notes


class MemberNames:
    """Display names of members: full ids in wide terminals, else short ones if unique."""

    def __init__(self, members: tuple[MemberView, ...], width: int) -> None:
        client_ids = Counter(member.client_id for member in members)
        short_ids = Counter(_short_id(member) for member in members)
        self._names: dict[str, str] = {}
        self._brief: dict[str, str] = {}
        for member in members:
            is_short = width < WIDE_COLUMNS and short_ids[_short_id(member)] == 1
            member_id = _short_id(member) if is_short else member.member_id
            name = printable(f"{member.client_id} {member_id}".strip())
            is_unique = bool(member.client_id) and client_ids[member.client_id] == 1
            self._names[member.member_id] = name
            self._brief[member.member_id] = (
                printable(member.client_id) if width < NARROW_COLUMNS and is_unique else name
            )

    def __getitem__(self, member_id: str) -> str:
        return self._names[member_id]

    def brief(self, member_id: str) -> str:
        """Return the short name for tables of partitions."""
        return self._brief.get(member_id, printable(member_id))


def _short_id(member: MemberView) -> str:
    return member.member_id[:_SHORT_ID_LENGTH]
