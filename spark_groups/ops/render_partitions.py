"""The partitions of a group as tables, and what is said below them."""

from __future__ import annotations

from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.printable_text import partition_ranges
from spark_groups.observation.views import GroupView, LagOrigin, PartitionView
from spark_groups.offsets.events import WithheldRange
from spark_groups.ops.render_text import (
    ALARM_STYLE,
    MOVING_STYLE,
    NARROW_COLUMNS,
    UNKNOWN,
    WIDE_COLUMNS,
    MemberNames,
    number,
    plain_table,
)
from spark_groups.types import TopicPartition

NO_MEMBER: Final = "no member"
NOTHING_COMMITTED: Final = "none"
REMARKS_SHOWN: Final = 10


def partitions_table(view: GroupView, names: MemberNames, width: int) -> Table:
    """Return one row for each partition.

    Args:
        view: The group.
        names: What its members are called.
        width: Columns there are; what is withheld is a footnote where they are few.
    """
    moving = view.totals.moving_partitions > 0
    with_start = width >= NARROW_COLUMNS
    with_pending = _has_room_for_pending(width) and any(each.withheld for each in view.partitions)
    table = plain_table()
    table.add_column("TOPIC", overflow="fold")
    table.add_column("PARTITION", justify="right")
    table.add_column("OWNER", overflow="fold")
    if moving:
        table.add_column("MOVES TO", overflow="fold")
    for header in (*(("LOG START",) if with_start else ()), "COMMITTED", "LOG END", "LAG"):
        table.add_column(header, justify="right", no_wrap=True)
    if with_pending:
        table.add_column("PENDING", no_wrap=True)
    for each in view.partitions:
        table.add_row(
            Text(printable(each.topic)),
            Text(str(each.partition)),
            owner_text(each.owner, names),
            *([moves_to_text(each.moves_to, names)] if moving else []),
            *([Text(number(each.log_start_offset))] if with_start else []),
            committed_text(each),
            Text(number(each.log_end_offset)),
            lag_text(each),
            *([_pending(each.withheld)] if with_pending else []),
        )
    return table


def shared_rows_table(view: GroupView, names: MemberNames) -> Table:
    """Return one row for the partitions of a topic that share owner and next owner.

    Args:
        view: The group.
        names: What its members are called.
    """
    rows: dict[tuple[str, str | None, str | None], list[PartitionView]] = {}
    for each in view.partitions:
        rows.setdefault((each.topic, each.owner, each.moves_to), []).append(each)
    moving = view.totals.moving_partitions > 0
    table = plain_table()
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
            owner_text(owner, names),
            *([moves_to_text(moves_to, names)] if moving else []),
            Text(number(lag)),
            Text(number(len(partitions) - len(known))),
            Text(f"{number(largest.lag)} in {largest.partition}" if largest else UNKNOWN),
        )
    return table


def owner_text(member_id: str | None, names: MemberNames) -> Text:
    """Return who has a partition.

    Args:
        member_id: The member; None: no member has it.
        names: What members are called.
    """
    return Text(NO_MEMBER, ALARM_STYLE) if member_id is None else Text(names.brief(member_id))


def moves_to_text(member_id: str | None, names: MemberNames) -> Text:
    """Return who will have a partition.

    Args:
        member_id: The member; None: it does not move.
        names: What members are called.
    """
    return Text("" if member_id is None else names.brief(member_id), MOVING_STYLE)


def _has_room_for_pending(width: int) -> bool:
    return width >= WIDE_COLUMNS


def _pending(withheld: WithheldRange | None) -> Text:
    """Return the range that is not read yet, half-open as all ranges are."""
    if withheld is None:
        return Text()
    start, end = number(withheld.committed_offset), number(withheld.log_end_offset)
    return Text(f"withheld [{start}, {end})", MOVING_STYLE)


def committed_text(partition: PartitionView) -> Text:
    """Return the committed offset of a partition.

    Args:
        partition: The partition.
    """
    if _counts_from_log_start(partition):
        return Text(NOTHING_COMMITTED)
    return Text(number(partition.committed_offset))


def lag_text(partition: PartitionView) -> Text:
    """Return the lag of a partition, with the sign of the footnote that says what it counts from.

    Args:
        partition: The partition.
    """
    is_marked = _counts_from_log_start(partition) and partition.lag is not None
    return Text(number(partition.lag) + ("*" if is_marked else ""))


def _counts_from_log_start(partition: PartitionView) -> bool:
    return partition.lag_origin is LagOrigin.LOG_START_OFFSET


def footnotes(
    partitions: tuple[PartitionView, ...], width: int, *, shared_rows: bool = False
) -> list[RenderableType]:
    """Return what is said below a table of partitions.

    Args:
        partitions: The partitions.
        width: Columns there are.
        shared_rows: Whether the table has no row for each, so that less is said there.
    """
    notes: list[RenderableType] = []
    uncommitted = sum(_counts_from_log_start(each) for each in partitions)
    if uncommitted:
        counted = f"{uncommitted:,} of {len(partitions):,} partitions"
        notes.append(Text(f"* nothing is committed ({counted}): lag counts from the log start"))
    if shared_rows or not _has_room_for_pending(width):
        notes += _limited(
            [
                _note(each, _pending(each.withheld).plain, MOVING_STYLE)
                for each in partitions
                if each.withheld
            ],
            "and ranges withheld of",
        )
    notes += _limited(
        [_note(each, each.remark, ALARM_STYLE) for each in partitions if each.remark],
        "and remarks on",
    )
    return [Text(), *notes] if notes else []


def _note(partition: PartitionView, said: str, style: str) -> Text:
    return Text(f"{printable(partition.topic)}-{partition.partition}: {said}", style)


def _limited(notes: list[Text], more: str) -> list[Text]:
    rest = len(notes) - REMARKS_SHOWN
    return [*notes[:REMARKS_SHOWN], Text(f"{more} {rest:,} more partitions")] if rest > 0 else notes
