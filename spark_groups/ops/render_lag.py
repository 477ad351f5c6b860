"""How far behind groups are, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_groups.errors import printable
from spark_groups.observation.views import LagOrigin
from spark_groups.ops.lag_rules import STATUS_MEANINGS, PartitionStatus, Verdict
from spark_groups.ops.lag_views import GroupLag, LagView, PartitionLag
from spark_groups.ops.render_text import UNKNOWN, number, plain_table

_STYLES: Final[Mapping[Verdict, str]] = {
    Verdict.OK: "green",
    Verdict.WARN: "yellow",
    Verdict.ERR: "red",
}


def render_lag(view: LagView, max_partition_rows: int | None = None) -> RenderableType:
    """Return a line for each group, and a row for each partition.

    Args:
        view: The groups.
        max_partition_rows: Of a group with more partitions than that, those that lag most are
            shown; None: all are.
    """
    parts: list[RenderableType] = []
    for group in view.groups:
        parts += [Text()] if parts else []
        parts.append(_line(group))
        parts += _partitions(group, max_partition_rows)
    return Group(*parts)


def _line(group: GroupLag) -> Text:
    unknown = group.unknown_lag_partitions
    line = Text.assemble(
        "group ",
        (printable(group.group_id), "bold"),
        f"  {printable(group.group_state) or UNKNOWN}  total lag {number(group.lag)}",
        f" in {len(group.partitions):,} partitions",
        f" ({unknown:,} unknown)" if unknown else "",
    )
    if group.verdict is not None:
        line.append("  ").append(group.verdict.name, _STYLES[group.verdict])
    return line


def _partitions(group: GroupLag, max_partition_rows: int | None) -> list[RenderableType]:
    shown = group.partitions
    if not shown:
        return []
    rest = 0
    if max_partition_rows is not None and len(shown) > max_partition_rows:
        rest = len(shown) - max_partition_rows
        by_lag = sorted(shown, key=lambda each: -1 if each.lag is None else each.lag, reverse=True)
        shown = tuple(by_lag[:max_partition_rows])
    notes = [Text(f"and {rest:,} partitions that lag less: --all shows them")] if rest else []
    if any(_counts_from_log_start(each) for each in shown):
        notes.append(Text("* nothing is committed: lag counts from the log start"))
    found = {each.status for each in shown} - {None, PartitionStatus.OK}
    notes += [
        Text(f"{status.value}: {meaning}")
        for status, meaning in STATUS_MEANINGS.items()
        if status in found
    ]
    if group.verdict is not None and any(each.status is None for each in shown):
        notes.append(Text(f"{UNKNOWN}: Too little is known to judge it."))
    return [_table(shown, judged=group.verdict is not None), *notes]


def _table(partitions: tuple[PartitionLag, ...], *, judged: bool) -> Table:
    table = plain_table()
    table.add_column("TOPIC", overflow="fold")
    for header in ("PARTITION", "COMMITTED", "LOG END", "LAG", *(["CHANGE"] if judged else [])):
        table.add_column(header, justify="right", no_wrap=True)
    if judged:
        table.add_column("STATUS")
    with_remarks = any(each.remark for each in partitions)
    if with_remarks:
        table.add_column("REMARK", overflow="fold")
    for each in partitions:
        mark = "*" if _counts_from_log_start(each) and each.lag is not None else ""
        judgement = [Text(_change(each)), Text(_status(each))] if judged else []
        table.add_row(
            Text(printable(each.topic)),
            Text(str(each.partition)),
            Text("none" if _counts_from_log_start(each) else number(each.committed_offset)),
            Text(number(each.log_end_offset)),
            Text(number(each.lag) + mark),
            *judgement,
            *([Text(printable(each.remark))] if with_remarks else []),
        )
    return table


def _counts_from_log_start(partition: PartitionLag) -> bool:
    return partition.lag_origin is LagOrigin.LOG_START_OFFSET


def _change(partition: PartitionLag) -> str:
    return UNKNOWN if partition.lag_change is None else f"{partition.lag_change:+,}"


def _status(partition: PartitionLag) -> str:
    return UNKNOWN if partition.status is None else partition.status.value
